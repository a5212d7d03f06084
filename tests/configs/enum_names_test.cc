#include "configs/base/enum_names.h"

#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/config_json.h"
#include "configs/yaml/yaml_reader.h"
#include "configs/yaml/yaml_writer.h"

namespace equipoise {
namespace {

enum class Color { kRed, kGreen };

// Not in the order of the values.
constexpr auto NamesOf(Color) {
  return std::to_array<EnumName<Color>>({{Color::kGreen, "green+"}, {Color::kRed, "red"}});
}

enum class Nameless { kOne };
static_assert(NamedEnum<Color> && !NamedEnum<Nameless> && !NamedEnum<int>);

struct Paint {
  Color color = Color::kRed;
  std::optional<Color> trim;
  std::vector<Color> stripes;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("color", color, "of the walls");
    visit("trim", trim, "of the doors");
    visit("stripes", stripes, "from above");
  }
};

Paint Read(const std::string& text, const std::vector<Override>& overrides = {}) {
  Paint paint;
  ReadConfigText("p.yaml", text, overrides, paint);
  return paint;
}

TEST_CASE("an enum's names are those of its table, in its order", "[enum_names][cpu]") {
  CHECK(ToString(Color::kRed) == "red");
  CHECK(ParseEnum<Color>("green+") == Color::kGreen);
  CHECK(ParseEnum<Color>("Red") == std::nullopt);
  CHECK(EnumNames<Color>() == std::vector<std::string>{"green+", "red"});
  CHECK_THROWS_WITH(ToString(static_cast<Color>(7)), Catch::Matchers::Contains("7"));
}

TEST_CASE("enums are fields of a configuration", "[enum_names][cpu]") {
  const Paint paint = Read("{color: green+, trim: red, stripes: [red, green+]}");
  CHECK(paint.color == Color::kGreen);
  CHECK(paint.trim == Color::kRed);
  CHECK(paint.stripes == std::vector<Color>{Color::kRed, Color::kGreen});
  CHECK(Read("{}", {{"color", "green+"}}).color == Color::kGreen);
  CHECK(Read("{trim: red}", {{"trim", "green+"}}).trim == Color::kGreen);
  CHECK(Read("{}", {{"stripes", "[red]"}}).stripes.size() == 1);

  CHECK(WriteConfig(paint) == "color: green+\ntrim: red\nstripes: [red, green+]\n");
  CHECK(EqualConfig(Read(WriteConfig(paint)), paint));
  CHECK(DifferingKeys(paint, Paint()) == std::vector<std::string>{"color", "trim", "stripes"});
  CHECK(ConfigToJson(paint) ==
        Json::parse(R"({"color": "green+", "trim": "red", "stripes": ["red", "green+"]})"));
  const std::string help = HelpText(Paint());
  CHECK(help.find("green+ | red") != std::string::npos);
}

TEST_CASE("a word that an enum does not have is refused with the nearest", "[enum_names][cpu]") {
  const auto error = [](const std::string& text) -> std::string {
    try {
      Read(text);
    } catch (const ConfigError& refused) {
      return refused.what();
    }
    return "";
  };
  CHECK(error("color: gren+") ==
        "p.yaml:1:8: color: 'gren+' is not one of green+, red; did you mean 'green+'?");
  CHECK(error("stripes: [red, 7]") ==
        "p.yaml:1:16: stripes.1: '7' is not one of green+, red; choose one");
  CHECK(error("color:").find("no value") != std::string::npos);
}

}  // namespace
}  // namespace equipoise
