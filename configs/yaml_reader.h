#pragma once

#include <string>
#include <vector>

namespace equipoise {

// One `--set a.b=c`: `key` is the dotted path, `value` is YAML text.
struct Override {
  std::string key;
  std::string value;
};

// Parses "a.b=c". Throws ConfigError.
Override ParseOverride(const std::string& text);

// ReadConfig(path, overrides, config) fills `config` from a YAML file on top of its defaults,
// overrides applied last; it is a template over VisitFields and lives at the end of this header.
// Throws ConfigError whose text is `file:line:col: key: what; what to do` for unknown keys (with the
// nearest known one), duplicate keys, wrong types, numbers out of range or in a doubtful form (`010`),
// cycles, alias bombs, and files that are too large or nested too deep.
// ReadConfigText does the same for text; `name` stands for the file in messages.

}  // namespace equipoise
