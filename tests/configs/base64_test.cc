#include "configs/base/base64.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

TEST_CASE("Base64 is RFC 4648's, and read back", "[base][cpu]") {
  const std::pair<std::string, std::string> cases[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foobar", "Zm9vYmFy"},
                                                       {"\xff\xfe\xfd", "//79"},
                                                       {"foob", "Zm9vYg=="}};
  for (const auto& [bytes, text] : cases) {
    CHECK(Base64(bytes) == text);
    CHECK(FromBase64(text) == bytes);
    CHECK(FromBase64(text.substr(0, text.find('='))) == bytes);
  }
  CHECK(FromBase64("Zm9v\r\nYmFy\n") == "foobar");
}

TEST_CASE("a text that is not Base64 is refused", "[base][cpu]") {
  for (const char* text : {"Z", "Zg=", "Zg===", "Zg==Zg==", "Zm9vY", "Zm 9v", "Zm9-", "Zm9v=", "=",
                           "\xff\xff\xff\xff", "=Zm9v"}) {
    INFO(text);
    CHECK_FALSE(FromBase64(text));
  }
}

}  // namespace
}  // namespace equipoise
