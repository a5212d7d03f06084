#include "configs/base/json.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "configs/base/error.h"

namespace equipoise {
namespace {

template <class Call>
std::string Failure(const Call& call) {
  try {
    call();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("JSON that is well formed is read with its types") {
  const Json json =
      ParseJson(R"( {"a": [1, -2, 1.5, true, null, "é\u0000x"], "b": {"c": {}}} )", "x");
  CHECK(json["a"].size() == 6);
  CHECK(json["a"][0].is_number_unsigned());
  CHECK(json["a"][1] == -2);
  CHECK(json["a"][2] == 1.5);
  CHECK(json["a"][3] == true);
  CHECK(json["a"][4].is_null());
  CHECK(json["a"][5].get<std::string>() == std::string("\xc3\xa9\0x", 4));
  CHECK(json["b"]["c"].is_object());
  CHECK(ParseJson("[[1, 2], [3], [], {}]", "x").dump() == "[[1,2],[3],[],{}]");
  CHECK(ParseJson("7", "x") == 7);
}

TEST_CASE("JSON that is not well formed is refused with its place") {
  struct Case {
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", "x: empty; JSON text is expected"},
      {"{",
       "x:1:2: syntax error while parsing object key - unexpected end of input; expected string "
       "literal"},
      {"{\"a\": 1,\n \"a\": 2}", "x:2:4: the key \"a\" is given twice; remove one"},
      {"{\"a\": {\"b\": 1, \"b\": {}}}", "x:1:18: the key \"b\" is given twice; remove one"},
      {"[1] 2",
       "x:1:5: syntax error while parsing value - unexpected number literal; expected end of "
       "input"},
      {"[NaN]", "x:1:2: syntax error while parsing value - invalid literal"},
      {"[1e400]", "x:1:6: number overflow parsing '1e400'"},
      {"[01]", "x:1:3: syntax error while parsing array - unexpected number literal; expected ']'"},
      {"[1,]",
       "x:1:4: syntax error while parsing value - unexpected ']'; expected '[', '{', or a "
       "literal; remove the comma before it"},
      {"{\"a\": 1 ,\n}",
       "x:2:1: syntax error while parsing object key - unexpected '}'; expected string literal; "
       "remove the comma before it"},
      {"[\"\xff\"]",
       "x:1:3: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; "
       "write it in UTF-8, from Latin-1: iconv -f LATIN1 -t UTF-8 FILE > NEW"},
      {"[\"\xe9t\xe9\"]",
       "x:1:4: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; "
       "write it in UTF-8, from Latin-1: iconv -f LATIN1 -t UTF-8 FILE > NEW"},
      {"[\"\\ud800\"]",
       "x:1:9: syntax error while parsing value - invalid string: surrogate "
       "U+D800..U+DBFF must be followed by U+DC00..U+DFFF"},
      {"[\"a\nb\"]",
       "x:1:4: syntax error while parsing value - invalid string: control character "
       "U+000A (LF) must be escaped to \\u000A or \\n"},
      {"'a'",
       "x:1:1: syntax error while parsing value - invalid literal; JSON's quotation marks are \""},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK(Failure([&] { ParseJson(c.text, "x"); }) == c.message);
  }
}

TEST_CASE("JSON nested too deep or too large is refused before it is built") {
  const std::string deep = std::string(100000, '[');
  CHECK(Failure([&] { ParseJson(deep, "x"); }) == "x:1:65: nested deeper than 64 levels");
  const std::string objects = [] {
    std::string text;
    for (int i = 0; i < 5; ++i) text += "{\"a\":";
    return text;
  }();
  CHECK(Failure([&] { ParseJson(objects, "x", {.depth = 4}); }) ==
        "x:1:21: nested deeper than 4 levels");
  CHECK(ParseJson("[[[[1]]]]", "x", {.depth = 4}).dump() == "[[[[1]]]]");
  CHECK(Failure([] { ParseJson("[1, 2]", "x", {.bytes = 5}); }) ==
        "x: larger than the limit of 5 bytes; is this the right file?");
}

TEST_CASE("typed access to JSON converts nothing silently") {
  const Json json = ParseJson(
      R"({"one": 1, "big": 18446744073709551615, "huge": 99999999999999999999, "part": 1.9,
          "yes": true, "text": "a", "none": null, "list": []})",
      "x");
  CHECK(GetInt(json, "one", "x") == 1);
  CHECK(GetNumber(json, "one", "x") == 1.0);
  CHECK(GetNumber(json, "part", "x") == 1.9);
  CHECK(GetBool(json, "yes", "x"));
  CHECK(GetString(json, "text", "x") == "a");
  CHECK(GetInt(json, "none", "x", 7) == 7);
  CHECK(GetInt(json, "absent", "x", 7) == 7);
  CHECK(GetString(json, "absent", "x", "b") == "b");
  CHECK(GetNumber(json, "absent", "x", 0.5) == 0.5);
  CHECK_FALSE(GetBool(json, "absent", "x", false));

  CHECK(Failure([&] { GetInt(json, "absent", "x"); }) == "x: absent: missing");
  CHECK(Failure([&] { GetInt(json, "none", "x"); }) == "x: none: missing");
  CHECK(Failure([&] { GetInt(json, "part", "x"); }) == "x: part: must be a whole number, not 1.9");
  CHECK(Failure([&] { GetInt(json, "big", "x"); }) ==
        "x: big: must be a whole number, not 18446744073709551615");
  CHECK(Failure([&] { GetInt(json, "huge", "x"); }) ==
        "x: huge: must be a whole number, not 1e+20");
  CHECK(Failure([&] { GetInt(json, "yes", "x", 1); }) ==
        "x: yes: must be a whole number, not true");
  CHECK(Failure([&] { GetNumber(json, "text", "x"); }) == "x: text: must be a number, not \"a\"");
  CHECK(Failure([&] { GetBool(json, "one", "x"); }) == "x: one: must be true or false, not 1");
  CHECK(Failure([&] { GetString(json, "list", "x"); }) == "x: list: must be text, not an array");
  CHECK(Failure([] { GetString(Json::array(), "a", "x"); }) == "x: must be an object, not array");
}

TEST_CASE("JSON files are read, and what cannot be read is named") {
  const std::string folder = std::getenv("TEST_TMPDIR");
  const std::string path = folder + "/a.json";
  std::ofstream(path) << "{\"a\":\n1, x}";
  CHECK(Failure([&] { ReadJsonFile(path); }).find(path + ":2:4: syntax error") == 0);
  std::ofstream(path) << "{\"a\": 1}\n";
  CHECK(ReadJsonFile(path)["a"] == 1);
  CHECK(Failure([&] { ReadJsonFile(path, {.bytes = 4}); }) ==
        path + ": larger than the limit of 4 bytes; is this the right file?");
  const std::string pipe = folder + "/pipe.json";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(Failure([&] { ReadJsonFile(pipe); }) == pipe + ": is not a regular file");
  CHECK(Failure([&] { ReadJsonFile(folder); }) == folder + ": is a folder");
  CHECK(Failure([&] { ReadJsonFile(folder + "/none"); }) ==
        folder + "/none: cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace equipoise
