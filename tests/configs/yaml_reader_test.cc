#include "configs/yaml/yaml_reader.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "tests/configs/sample_config.h"

namespace equipoise {
namespace {

SampleConfig Read(const std::string& text, const std::vector<std::string>& settings = {}) {
  std::vector<Override> overrides;
  for (const std::string& setting : settings) overrides.push_back(ParseOverride(setting));
  SampleConfig config;
  ReadConfigText("f.yaml", text, overrides, config);
  return config;
}

std::string Failure(const std::string& text, const std::vector<std::string>& settings = {}) {
  try {
    Read(text, settings);
  } catch (const ConfigError& error) {
    CHECK(error.code() == ExitCode::kBadUsage);
    return error.what();
  }
  return "no error";
}

struct Case {
  std::string text;
  std::string message;
};

void CheckRefused(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK(Failure(c.text) == c.message);
  }
}

TEST_CASE("a configuration is read on top of its defaults") {
  const SampleConfig config = Read(R"(# comment
train:
  steps: 179000000
  lr: 1.0e-4
  shuffle: false
  schedule: 'linear'
sources:
  - {path: a b.jsonl, repeat: 2}
  - path: "b"
freeze: [vision, llm]
sizes: []
parallel: {data: 2}
)");
  CHECK(config.train.steps == 179000000);
  CHECK(config.train.lr == 1e-4);
  CHECK_FALSE(config.train.shuffle);
  CHECK(config.train.schedule == "linear");
  CHECK_FALSE(config.train.seed.has_value());
  REQUIRE(config.sources.size() == 2);
  CHECK(config.sources[0].path == "a b.jsonl");
  CHECK(config.sources[0].repeat == 2.0);
  CHECK(config.sources[1].path == "b");
  CHECK(config.sources[1].repeat == 1.0);
  CHECK(config.freeze == std::vector<std::string>{"vision", "llm"});
  CHECK(config.sizes.empty());
  CHECK_FALSE(config.parallel.automatic);
  CHECK(config.parallel.data == 2);
  CHECK(config.parallel.timeout == 600);
}

TEST_CASE("an empty file, an empty section and null for an optional value mean the defaults") {
  for (const char* text : {"", "# nothing\n", "train:\n", "train: {seed: null}", "train: {seed: ~}",
                           "---\ntrain: {}\n...\n", "\xef\xbb\xbftrain: {}\n", "train: {}\r\n"}) {
    INFO(text);
    const SampleConfig config = Read(text);
    CHECK(config.train.steps == 200);
    CHECK_FALSE(config.train.seed.has_value());
    CHECK(config.parallel.automatic);
  }
}

TEST_CASE("one text where a list of texts belongs is a list of one") {
  CHECK(Read("freeze: vision").freeze == std::vector<std::string>{"vision"});
  CHECK(Read("", {"freeze=llm"}).freeze == std::vector<std::string>{"llm"});
}

TEST_CASE("the forms of a number that mean one thing everywhere are read") {
  CHECK(Read("train: {steps: +5}").train.steps == 5);
  CHECK(Read("train: {steps: 9223372036854775807}").train.steps == 9223372036854775807);
  for (const char* text : {"1e-4", "1.0e-4", "1E-04", "0.0001", ".0001", "+1e-4"}) {
    INFO(text);
    CHECK(Read(std::string("train: {lr: ") + text + "}").train.lr == 1e-4);
  }
  CHECK(Read("train: {lr: 1}").train.lr == 1.0);
  CHECK(Read("train: {lr: 1.}").train.lr == 1.0);
  CHECK(Read("train: {lr: 0}").train.lr == 0.0);
}

TEST_CASE("numbers in a doubtful form, of another type or out of range are refused") {
  CheckRefused({
      {"train: {steps: four}",
       "f.yaml:1:16: train.steps: 'four' is not a whole number; write digits alone, such as 16"},
      {"train:\n  steps: 010", "f.yaml:2:10: train.steps: '010' is not a whole number; write 10"},
      {"train: {steps: 1_000}",
       "f.yaml:1:16: train.steps: '1_000' is not a whole number; write 1000"},
      {"train: {steps: 0x10}", "f.yaml:1:16: train.steps: '0x10' is not a whole number; write 16"},
      {"train: {steps: 1e3}", "f.yaml:1:16: train.steps: '1e3' is not a whole number; write 1000"},
      {"train: {steps: 2.0}", "f.yaml:1:16: train.steps: '2.0' is not a whole number; write 2"},
      {"train: {steps: 2.5}",
       "f.yaml:1:16: train.steps: '2.5' is not a whole number; write digits alone, such as 16"},
      {"train: {steps: '200'}",
       "f.yaml:1:16: train.steps: '200' is quoted, so it is text and not a whole number; remove "
       "the "
       "quotes"},
      {"train: {steps: -1}", "f.yaml:1:16: train.steps: -1 is too small; the least is 1"},
      {"train: {steps: 99999999999999999999}",
       "f.yaml:1:16: train.steps: '99999999999999999999' does not fit 64 bits; write a number "
       "between "
       "-9223372036854775808 and 9223372036854775807"},
      {"train: {steps: true}",
       "f.yaml:1:16: train.steps: 'true' is not a whole number; write digits alone, such as 16"},
      {"train: {steps: }",
       "f.yaml:1:16: train.steps: nothing where a whole number belongs; write one value"},
      {"train: {steps: [1]}",
       "f.yaml:1:16: train.steps: a list where a whole number belongs; write one value"},
      {"train: {lr: .nan}",
       "f.yaml:1:13: train.lr: '.nan' is not a finite decimal number; write one such as 0.5 or "
       "1e-4"},
      {"train: {lr: -.inf}",
       "f.yaml:1:13: train.lr: '-.inf' is not a finite decimal number; write one such as 0.5 or "
       "1e-4"},
      {"train: {lr: nan}",
       "f.yaml:1:13: train.lr: 'nan' is not a finite decimal number; write one such as 0.5 or "
       "1e-4"},
      {"train:\n  lr: 0,0001\n",
       "f.yaml:2:7: train.lr: '0,0001' is not a finite decimal number; write one such as 0.5 or "
       "1e-4"},
      {"train: {lr: 1_000}",
       "f.yaml:1:13: train.lr: '1_000' is not a finite decimal number; write 1000"},
      {"train: {lr: 00.5}",
       "f.yaml:1:13: train.lr: '00.5' is not a finite decimal number; write one such as 0.5 or "
       "1e-4"},
      {"train: {lr: 0x1p3}",
       "f.yaml:1:13: train.lr: '0x1p3' is not a finite decimal number; write one such as 0.5 or "
       "1e-4"},
      {"train: {lr: 1e}",
       "f.yaml:1:13: train.lr: '1e' is not a finite decimal number; write one such as 0.5 or 1e-4"},
      {"train: {lr: .}",
       "f.yaml:1:13: train.lr: '.' is not a finite decimal number; write one such as 0.5 or 1e-4"},
      {"train: {lr: 1e400}",
       "f.yaml:1:13: train.lr: '1e400' does not fit a double; write a number between 1e-307 and "
       "1e307 "
       "in size"},
      {"train: {lr: 1.5}", "f.yaml:1:13: train.lr: 1.5 is too large; the most is 1"},
      {"train: {lr: \"0.5\"}",
       "f.yaml:1:13: train.lr: '0.5' is quoted, so it is text and not a number; remove the quotes"},
      {"train: {seed: -3}", "f.yaml:1:15: train.seed: -3 is too small; the least is 0"},
      {"sizes: [1, 0]", "f.yaml:1:12: sizes.1: 0 is too small; the least is 1"},
      {"sources: [{repeat: 1001}]",
       "f.yaml:1:20: sources.0.repeat: 1001 is too large; the most is 1000"},
  });
}

TEST_CASE("values of another type are refused with the way to write them") {
  CheckRefused({
      {"train: {shuffle: yes}",
       "f.yaml:1:18: train.shuffle: 'yes' is neither true nor false; write true"},
      {"train: {shuffle: no}",
       "f.yaml:1:18: train.shuffle: 'no' is neither true nor false; write false"},
      {"train: {shuffle: maybe}",
       "f.yaml:1:18: train.shuffle: 'maybe' is neither true nor false; write true or false"},
      {"train: {shuffle: 'true'}",
       "f.yaml:1:18: train.shuffle: 'true' is quoted, so it is text and not true or false; remove "
       "the "
       "quotes"},
      {"train: {schedule: cosin}",
       "f.yaml:1:19: train.schedule: 'cosin' is not one of cosine, linear; did you mean 'cosine'?"},
      {"train: {schedule: step}",
       "f.yaml:1:19: train.schedule: 'step' is not one of cosine, linear; choose one"},
      {"train: {schedule: ~}",
       "f.yaml:1:19: train.schedule: no value; write text, or \"\" for none"},
      {"train: {schedule: {a: 1}}",
       "f.yaml:1:19: train.schedule: a map where text belongs; write one value"},
      {"train: 5",
       "f.yaml:1:8: train: '5' where a map belongs; write keys: steps, lr, shuffle, schedule, "
       "seed"},
      {"train: [1]",
       "f.yaml:1:8: train: a list where a map belongs; write keys: steps, lr, shuffle, schedule, "
       "seed"},
      {"parallel: automatic",
       "f.yaml:1:11: parallel: 'automatic' where a map belongs; write auto or keys: data, timeout"},
      {"sizes: 5", "f.yaml:1:8: sizes: '5' where a list belongs; write [5]"},
      {"freeze: vison",
       "f.yaml:1:9: freeze: 'vison' is not one of vision, llm; did you mean 'vision'?"},
      {"freeze:\n", "f.yaml:2:1: freeze: nothing where a list belongs; write []"},
      {"freeze: {a: 1}",
       "f.yaml:1:9: freeze: a map where a list belongs; write a '-' before each item"},
      {"freeze: [vison]",
       "f.yaml:1:10: freeze.0: 'vison' is not one of vision, llm; did you mean 'vision'?"},
      {"just text",
       "f.yaml:1:1: 'just text' where a map belongs; write keys: train, sources, freeze, "
       "sizes, parallel"},
  });
}

TEST_CASE("unknown and repeated keys are refused, the nearest known one named") {
  CheckRefused({
      {"trian: {}", "f.yaml:1:1: trian: unknown key; did you mean 'train'?"},
      {"train:\n  stepz: 5", "f.yaml:2:3: train.stepz: unknown key; did you mean 'train.steps'?"},
      {"train: {batch: 5}",
       "f.yaml:1:9: train.batch: unknown key; known here: steps, lr, shuffle, schedule, seed"},
      {"sources:\n- {path: a}\n- {pth: b}",
       "f.yaml:3:4: sources.1.pth: unknown key; did you mean 'sources.1.path'?"},
      {"parallel: {automatic: true}",
       "f.yaml:1:12: parallel.automatic: unknown key; known here: data, timeout"},
      {"train: {steps: 1}\nsizes: [1]\ntrain: {steps: 2}",
       "f.yaml:3:1: train: given twice, first on line 1; remove one"},
      {"train:\n  steps: 1\n  lr: 0.5\n  steps: 2",
       "f.yaml:4:3: train.steps: given twice, first on line 2; remove one"},
      {"sources: [{}, {path: a, path: b}]",
       "f.yaml:1:25: sources.1.path: given twice, first on line 1; remove one"},
  });
}

TEST_CASE("YAML that hides or multiplies values is refused") {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'i'; ++c) {
    const std::string last(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 10; ++i) bomb += (i > 0 ? ", *" : "*") + last;
    bomb += "]\n";
  }
  CheckRefused({
      {bomb,
       "f.yaml:5:36: more than 100000 values, aliases counted each time; write a smaller file"},
      {"freeze: &a [*a]",
       "f.yaml:1:13: this alias refers to the list or map that it stands in; write "
       "the value out"},
      {"train: &a\n  x: *a",
       "f.yaml:2:6: this alias refers to the list or map that it stands in; "
       "write the value out"},
      {"freeze: *none",
       "f.yaml:1:9: not YAML (the referenced anchor is not defined); correct the line"},
      {"a: &b {steps: 1}\ntrain: {<<: *b}",
       "f.yaml:2:9: '<<' merges are not supported; write the keys out"},
      {"train: {steps: !!str 5}",
       "f.yaml:1:16: the tag 'tag:yaml.org,2002:str' is not supported; remove it"},
      {"train: !x {}", "f.yaml:1:8: the tag '!x' is not supported; remove it"},
      {"? [a]\n: 1", "f.yaml:1:3: a key is no plain name; write a name before the ':'"},
      {"? [{a: 1, a: 2}]\n: 1", "f.yaml:1:11: a: given twice, first on line 1; remove one"},
      {"~: 1", "f.yaml:1:1: a key is no plain name; write a name before the ':'"},
      {"train: {}\n---\nsizes: []\n",
       "f.yaml:3:1: a second document; a configuration is one document"},
  });
  const SampleConfig config = Read("sources: [&a {path: x}, *a]\nfreeze: &b [vision]\n");
  CHECK(config.sources.at(1).path == "x");
}

TEST_CASE("files that are no YAML text, too deep or too large are refused") {
  CheckRefused({
      {"train:\n\tsteps: 5", "f.yaml:2:1: a tab in the indentation; indent with spaces"},
      {"train:\n  steps: 5\n \tlr: 0.5",
       "f.yaml:3:2: a tab in the indentation; indent with spaces"},
      {"train: {steps: 5", "f.yaml:1:17: not YAML (end of map flow not found); correct the line"},
      {"train: [1\nlr: 2",
       "f.yaml:2:3: not YAML (end of sequence flow not found); correct the line"},
      {"freeze: [a, vision[-8:], \"llm[:2]\"]",
       "f.yaml:1:19: not YAML (end of sequence flow not found); write \"vision[-8:]\" in quotes"},
      {"train: \"a", "f.yaml:1:10: not YAML (illegal EOF in scalar); correct the line"},
      {"freeze:\n- \xff", "f.yaml:2:3: not text in UTF-8; save the file as UTF-8"},
      {"freeze: \xed\xa0\x80", "f.yaml:1:9: not text in UTF-8; save the file as UTF-8"},
      {std::string("freeze: a\0", 10), "f.yaml:1:10: not text in UTF-8; save the file as UTF-8"},
      {"\xff\xfe", "f.yaml:1:1: not text in UTF-8; save the file as UTF-8"},
      {std::string(40, '[') + std::string(40, ']'),
       "f.yaml:1:33: nested deeper than 32 levels; no key lies so deep"},
      {std::string(100000, '['), "f.yaml:1:17: nested deeper than 32 levels; no key lies so deep"},
      {std::string((1 << 20) + 1, ' '), "f.yaml: larger than 1 MiB; is this a configuration file?"},
  });
}

TEST_CASE("damaged text is read or refused, never anything else") {
  const std::string whole =
      "train: {steps: 5, lr: 1e-4}\nsources:\n  - &a {path: 'x y', repeat: 2}\n  - *a\n"
      "freeze: [vision]\nparallel:\n  data: 2 # two\n";
  const std::string pieces = "{}[]:,&*!|>'\"%@`#-?~<\\ \n\t\r0aA.\x80\xff";
  std::mt19937 random(301);
  size_t refused = 0, read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      const char piece = pieces[random() % pieces.size()];
      switch (random() % 3) {
        case 0:
          text[at] = piece;
          break;
        case 1:
          text.insert(at, 1, piece);
          break;
        default:
          text.erase(at, 1 + random() % 8);
      }
      if (text.empty()) text = "a";
    }
    const std::string message = Failure(text);
    const bool fine = message == "no error";
    (fine ? read : refused) += 1;
    if (!fine && message.rfind("f.yaml:", 0) != 0) FAIL(text << "\n" << message);
    if (message.find('\n') != std::string::npos) FAIL(text << "\n" << message);
  }
  CHECK(read > 50);
  CHECK(refused > 100);
}

TEST_CASE("settings from the command line come last and reach every key") {
  const SampleConfig config =
      Read("train: {steps: 5}\nsources: [{path: a}, {path: b}]",
           {"train.steps=7", "train.lr=1e-3", "sources.1.repeat=2", "freeze=[llm]", "train.seed=3",
            "train.schedule=linear", "sizes.0=9", "train.steps=8"});
  CHECK(config.train.steps == 8);
  CHECK(config.train.lr == 1e-3);
  CHECK(config.train.schedule == "linear");
  CHECK(config.train.seed == 3);
  CHECK(config.sources[0].repeat == 1.0);
  CHECK(config.sources[1].repeat == 2.0);
  CHECK(config.freeze == std::vector<std::string>{"llm"});
  CHECK(config.sizes == std::vector<int64_t>{9, 2});
  CHECK_FALSE(Read("train: {seed: 4}", {"train.seed=null"}).train.seed.has_value());
  CHECK(Read("", {"train={steps: 3, lr: 0.5}"}).train.steps == 3);
  CHECK(Read("", {"sources=[{path: 'a=b'}]"}).sources.at(0).path == "a=b");
}

TEST_CASE("a setting of text is taken as the shell gives it") {
  for (const std::string text : {"runs/#1", "a # b", "a: b", "[a", "*x", "- a", "it's", "@x"}) {
    INFO(text);
    CHECK(Read("sources: [{path: a}]", {"sources.0.path=" + text}).sources[0].path == text);
  }
  CHECK(Read("sources: [{path: a}]", {"sources.0.path=\"\""}).sources[0].path.empty());
  CHECK(Failure("", {"train.steps=3 #"}) == "no error");
  CHECK(Failure("", {"train.steps=[3"}).find("not YAML") != std::string::npos);
}

TEST_CASE("what other trainers and shells write is told apart") {
  CHECK(Failure("train: {learning_rate: 1}") ==
        "f.yaml:1:9: train.learning_rate: unknown key; the key here is train.lr");
  CHECK(Failure("train: {num_train_epochs: 1}") ==
        "f.yaml:1:9: train.num_train_epochs: unknown key; the key here is train.epochs");
  CHECK(Failure("lora_rank: 8").find("model.adapter") != std::string::npos);
  CHECK(Failure("sources: a.jsonl") ==
        "f.yaml:1:10: sources: 'a.jsonl' where a list belongs; write [{path: a.jsonl}]");
  CHECK(Failure("sources: [{path: ~/a.jsonl}]").find("without the shell") != std::string::npos);
  CHECK(Failure("sources: [{path: ${HOME}/a}]").find("${HOME} are not replaced") !=
        std::string::npos);
}

TEST_CASE("all unknown keys are named in one line, in the order of the file") {
  CHECK(Failure("learning_rate: 1\ntrain:\n  stepz: 5\n  foo: [1]\nbar: 2\nneftune_alpha: 5\n"
                "sources: [{}, {pth: b}]\nsizes: {x: 1}\n") ==
        "f.yaml:1:1: learning_rate: unknown key; the key here is train.lr; also unknown: "
        "'train.stepz' (line 3: write train.steps), 'train.foo' (line 4), 'bar' (line 5), "
        "'neftune_alpha' (line 6: not supported), 'sources.1.pth' (line 7: write sources.1.path)");
  CHECK(Failure("train: {steps: x}\nfoo: 1") ==
        "f.yaml:2:1: foo: unknown key; known here: train, sources, freeze, sizes, parallel");
  CHECK(Failure("", {"train={stepz: 1, foo: 2}"}) ==
        "--set train={stepz: 1, foo: 2}: train.stepz: unknown key; did you mean 'train.steps'?; "
        "also unknown: 'train.foo'");
  std::string many;
  for (int i = 0; i < 50; ++i) many += "k" + std::to_string(i) + ": 1\n";
  const std::string message = Failure(many);
  CHECK(message.find("'k39' (line 40) and 10 more") != std::string::npos);
  CHECK(message.find("k40") == std::string::npos);
}

TEST_CASE("a map of very many keys is read in good time") {
  std::string text;
  for (int i = 0; i < 49'000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  CHECK(Failure(text).find("k0: unknown key") != std::string::npos);
  CHECK(Failure(text + "k7: 1\n").find("k7: given twice, first on line 8") != std::string::npos);
}

TEST_CASE("settings that cannot be made are refused") {
  struct SettingCase {
    std::string setting;
    std::string message;
  };
  const std::vector<SettingCase> cases = {
      {"train.stepz=3",
       "--set train.stepz=3: train.stepz: unknown key; did you mean 'train.steps'?"},
      {"trian.steps=3", "--set trian.steps=3: trian: unknown key; did you mean 'train'?"},
      {"train.steps=x",
       "--set train.steps=x: train.steps: 'x' is not a whole number; write digits "
       "alone, such as 16"},
      {"train.steps=0", "--set train.steps=0: train.steps: 0 is too small; the least is 1"},
      {"train.steps.x=1",
       "--set train.steps.x=1: train.steps: is one value and has no keys; write "
       "--set train.steps=VALUE"},
      {"sources.0.repeat=2",
       "--set sources.0.repeat=2: sources.0: no such item; sources is empty, "
       "write --set sources=[...]"},
      {"sizes.2=3", "--set sizes.2=3: sizes.2: no such item; sizes has the items 0 to 1"},
      {"sizes.a=3",
       "--set sizes.a=3: sizes.a: not the number of an item; sizes has the items 0 to 1"},
      {"sizes.-1=3",
       "--set sizes.-1=3: sizes.-1: not the number of an item; sizes has the items 0 to 1"},
      {"train={steps: 1, steps: 2}",
       "--set train={steps: 1, steps: 2}: steps: given twice; remove one"},
      {"train.steps=[",
       "--set train.steps=[: not YAML (end of sequence flow not found); correct the "
       "line"},
      {"train..steps=1",
       "--set train..steps=1: train.: unknown key; known here: steps, lr, shuffle, "
       "schedule, seed"},
      {"train.steps",
       "--set train.steps: no key and value; write --set key=value, such as --set "
       "train.steps=100"},
      {"=3", "--set =3: no key and value; write --set key=value, such as --set train.steps=100"},
  };
  for (const SettingCase& c : cases) {
    INFO(c.setting);
    CHECK(Failure("", {c.setting}) == c.message);
  }
}

TEST_CASE("a struct's scalar form stands for all defaults until a key of it is pinned") {
  CHECK(Read("parallel: auto").parallel.automatic);
  CHECK_FALSE(Read("parallel: {timeout: 5}").parallel.automatic);
  const SampleConfig pinned = Read("parallel: auto", {"parallel.data=2"});
  CHECK_FALSE(pinned.parallel.automatic);
  CHECK(pinned.parallel.data == 2);
  const SampleConfig reset = Read("parallel: {data: 2, timeout: 5}", {"parallel=auto"});
  CHECK(reset.parallel.automatic);
  CHECK_FALSE(reset.parallel.data.has_value());
  CHECK(reset.parallel.timeout == 600);
}

TEST_CASE("a file is read, and a file that cannot be read is named") {
  const std::string folder = std::getenv("TEST_TMPDIR");
  const std::string path = folder + "/a.yaml";
  const auto failure = [](const std::string& file) -> std::string {
    SampleConfig config;
    try {
      ReadConfig(file, {}, config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  std::ofstream(path) << "train:\n  steps: 6\n";
  SampleConfig config;
  ReadConfig(path, {{"train.lr", "0.5"}}, config);
  CHECK(config.train.steps == 6);
  CHECK(config.train.lr == 0.5);
  std::ofstream(path) << "train:\n  step: 6\n";
  CHECK(failure(path) == path + ":2:3: train.step: unknown key; did you mean 'train.steps'?");
  CHECK(failure(folder) == folder + ": is a folder; check the path");
  const std::string pipe = folder + "/pipe.yaml";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(failure(pipe) == pipe + ": is not a regular file; check the path");
  CHECK(failure("/dev/zero") == "/dev/zero: is not a regular file; check the path");
  CHECK(failure(folder + "/b.yaml") ==
        folder + "/b.yaml: cannot be opened: No such file or directory; check the path");
}

}  // namespace
}  // namespace equipoise
