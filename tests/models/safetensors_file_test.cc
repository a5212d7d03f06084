#include "models/weights/safetensors_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "configs/base/error.h"

namespace equipoise {
namespace {

// The directory that Bazel gives each test.
std::string TempPath(const std::string& name) {
  return (std::filesystem::temp_directory_path() / (std::to_string(getpid()) + "_" + name))
      .string();
}

std::string Prefix(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

std::string FileOf(const std::string& header, const std::string& data) {
  return Prefix(header.size()) + header + data;
}

// The message with which the file is refused; empty when it is accepted.
std::string Refusal(const std::string& bytes) {
  const std::string path = TempPath("attack.safetensors");
  std::ofstream(path, std::ios::binary) << bytes;
  std::string message;
  try {
    SafetensorsFile file(path);
  } catch (const DataError& error) {
    message = error.what();
    CHECK(message.rfind(path + ":", 0) == 0);
    CHECK(message.find('\n') == std::string::npos);
  }
  std::filesystem::remove(path);
  return message;
}

std::string Entry(const std::string& name, const std::string& rest) {
  return "\"" + name + "\":{" + rest + "}";
}

std::string F32(const std::string& name, const std::string& shape, const std::string& offsets) {
  return Entry(name, R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets);
}

const std::string kEight(8, 'x');

struct Attack {
  const char* what;
  std::string bytes;
  const char* expected;  // in the message
};

std::vector<Attack> Attacks() {
  const std::string a = F32("a", "[1]", "[0,4]");
  std::string ones;
  for (int i = 0; i < 64; ++i) ones += "1,";
  return {
      {"empty file", "", "too short"},
      {"seven bytes", "1234567", "too short"},
      {"header above the limit", Prefix(10'000'001) + "{}", "above the limit"},
      {"length that overflows with 8", Prefix(~uint64_t{0} - 3) + "{}", "above the limit"},
      {"header longer than the file", Prefix(50) + "{}", "cut off"},
      {"a pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"},
      {"empty header", Prefix(0), "does not begin"},
      {"leading white space", FileOf(" {}", ""), "does not begin"},
      {"an array", FileOf("[]", ""), "does not begin"},
      {"not JSON", FileOf("{\"a\":", ""), ""},
      {"text after the object", FileOf("{}x", ""), ""},
      {"not UTF-8", FileOf("{" + F32("\xff\xfe", "[1]", "[0,4]") + "}", "1234"), ""},
      {"deep nesting", FileOf("{\"a\":" + std::string(100000, '['), ""), ""},
      {"duplicate names", FileOf("{" + a + "," + a + "}", "1234"), ""},
      {"entry that is no object", FileOf(R"({"a":3})", ""), "not an object"},
      {"unknown key in an entry", FileOf("{" + F32("a", R"([1],"more":1)", "[0,4]") + "}", "1234"),
       "unknown key"},
      {"no dtype", FileOf(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234"), "dtype"},
      {"unknown dtype", FileOf(R"({"a":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", "1234"),
       "unknown dtype"},
      {"no shape", FileOf(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234"), "shape"},
      {"shape that is no list", FileOf("{" + F32("a", "1", "[0,4]") + "}", "1234"), "shape"},
      {"negative size", FileOf("{" + F32("a", "[-1]", "[0,4]") + "}", "1234"), "no size"},
      {"fractional size", FileOf("{" + F32("a", "[1.0]", "[0,4]") + "}", "1234"), "no size"},
      {"size above int64", FileOf("{" + F32("a", "[18446744073709551615]", "[0,4]") + "}", "1234"),
       "no size"},
      {"product that overflows",
       FileOf("{" + F32("a", "[4294967296,4294967296,4294967296]", "[0,4]") + "}", "1234"),
       "too large"},
      {"product that wraps to the right size",
       FileOf("{" + F32("a", "[4611686018427387905]", "[0,4]") + "}", "1234"), "too large"},
      {"65 dimensions", FileOf("{" + F32("a", "[" + ones + "1]", "[0,4]") + "}", "1234"),
       "at most 64"},
      {"no offsets", FileOf(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"), "data_offsets"},
      {"three offsets", FileOf("{" + F32("a", "[1]", "[0,4,8]") + "}", "1234"), "data_offsets"},
      {"end before begin", FileOf("{" + F32("a", "[1]", "[4,0]") + "}", "1234"), "data_offsets"},
      {"negative offset", FileOf("{" + F32("a", "[1]", "[-4,0]") + "}", "1234"), "data_offsets"},
      {"offsets beyond int64",
       FileOf("{" + F32("a", "[1]", "[9223372036854775808,9223372036854775812]") + "}", "1234"),
       "data_offsets"},
      {"too few bytes for the shape", FileOf("{" + F32("a", "[2]", "[0,4]") + "}", "1234"),
       "need 8"},
      {"too many bytes for the shape", FileOf("{" + F32("a", "[1]", "[0,8]") + "}", kEight),
       "need 4"},
      {"data that does not begin at 0", FileOf("{" + F32("a", "[1]", "[4,8]") + "}", kEight),
       "gap or overlap"},
      {"a gap", FileOf("{" + a + "," + F32("b", "[1]", "[8,12]") + "}", "123412341234"),
       "gap or overlap"},
      {"an overlap",
       FileOf("{" + F32("a", "[2]", "[0,8]") + "," + F32("b", "[1]", "[4,8]") + "}", kEight),
       "gap or overlap"},
      {"two names for the same bytes",
       FileOf("{" + a + "," + F32("b", "[1]", "[0,4]") + "}", "1234"), "gap or overlap"},
      {"an empty tensor inside another",
       FileOf("{" + F32("a", "[2]", "[0,8]") + "," + F32("b", "[0]", "[4,4]") + "}", kEight),
       "gap or overlap"},
      {"trailing bytes", FileOf("{" + a + "}", "1234PK"), "the file has 6"},
      {"missing bytes", FileOf("{" + a + "}", "12"), "the file has 2"},
      {"data without tensors", FileOf("{}", "1234"), "the file has 4"},
      {"metadata that is no object", FileOf(R"({"__metadata__":3})", ""), "__metadata__"},
      {"metadata that is no text", FileOf(R"({"__metadata__":{"a":1}})", ""), "not a string"},
      {"a name with a line break", FileOf("{" + F32("a\\nb", "[2]", "[0,4]") + "}", "1234"),
       "a\\nb"},
  };
}

TEST_CASE("a crafted safetensors file is refused with one line that names it", "[models][cpu]") {
  for (const Attack& attack : Attacks()) {
    INFO(attack.what);
    const std::string message = Refusal(attack.bytes);
    CHECK_FALSE(message.empty());
    CHECK_THAT(message, Catch::Matchers::Contains(attack.expected));
  }
}

TEST_CASE("legal oddities of safetensors are accepted", "[models][cpu]") {
  CHECK(Refusal(FileOf("{}", "")).empty());
  CHECK(Refusal(FileOf("{}      ", "")).empty());                               // padding
  CHECK(Refusal(FileOf("{" + F32("a", "[]", "[0,4]") + "}", "1234")).empty());  // a scalar
  CHECK(Refusal(FileOf("{" + F32("a", "[0]", "[0,0]") + "}", "")).empty());     // empty tensors
  CHECK(Refusal(FileOf("{" + F32("a", "[0,9]", "[4,4]") + "," + F32("b", "[1]", "[0,4]") + "," +
                           F32("c", "[0]", "[4,4]") + "}",
                       "1234"))
            .empty());
}

TEST_CASE("what is no regular file is refused without waiting", "[models][cpu]") {
  const std::string fifo = TempPath("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_AS(SafetensorsFile(fifo), DataError);
  std::filesystem::remove(fifo);
  CHECK_THROWS_AS(SafetensorsFile("/"), DataError);
  CHECK_THROWS_AS(SafetensorsFile("/nowhere/model.safetensors"), DataError);
}

TEST_CASE("a file that was cut short after it was opened gives an error", "[models][cpu]") {
  const std::string path = TempPath("shrinking.safetensors");
  std::ofstream(path, std::ios::binary) << FileOf("{" + F32("a", "[2]", "[0,8]") + "}", kEight);
  const SafetensorsFile file(path);
  REQUIRE(truncate(path.c_str(), static_cast<off_t>(std::filesystem::file_size(path)) - 4) == 0);
  char data[8];
  CHECK_THROWS_WITH(file.ReadBytes(0, 8, data), Catch::Matchers::Contains("ends early"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace equipoise
