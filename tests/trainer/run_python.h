#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace equipoise {

// What a Python script of the test environment prints. The script has no double quotes.
inline std::string RunPython(const std::string& script) {
  const char* python = std::getenv("EQUIPOISE_PYTHON");
  if (python == nullptr) throw std::runtime_error("EQUIPOISE_PYTHON is not set; use scripts/test");
  const std::string command = std::string(python) + " -c \"" + script + "\"";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  for (int c; (c = fgetc(pipe.get())) != EOF;) text.push_back(static_cast<char>(c));
  return text;
}

}  // namespace equipoise
