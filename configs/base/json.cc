#include "configs/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/regular_file.h"

namespace equipoise {
namespace {

// An input iterator that records how far the lexer has read: the parser's events have no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// "line:column" of a byte offset, both from 1.
std::string LineColumn(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return fmt::format("{}:{}", line, column);
}

// nlohmann's text without "[json.exception.parse_error.101] parse error at line 1, column 2: " and
// without "; last read: ", which repeats a whole string, also one that is not text.
std::string Reason(const std::exception& error) {
  std::string text = error.what();
  for (const char* lead : {"] ", "column "}) {
    const size_t at = text.find(lead);
    if (at != std::string::npos) text.erase(0, at + std::strlen(lead));
  }
  const size_t digits = text.find_first_not_of("0123456789");
  if (digits > 0 && text.compare(digits, 2, ": ") == 0) text.erase(0, digits + 2);
  return text.substr(0, text.find("; last read: "));
}

// What to do about a fault at `offset`, where it is a common one; empty otherwise.
std::string_view Advice(std::string_view reason, std::string_view text, size_t offset) {
  if (reason.find("ill-formed UTF-8") != reason.npos)
    return "; write it in UTF-8, from Latin-1: iconv -f LATIN1 -t UTF-8 FILE > NEW";
  if (text.starts_with("version https://git-lfs"))
    return "; it is Git LFS's pointer to the file: run `git lfs pull` in its folder";
  if (offset >= text.size()) return "";
  if (text[offset] == '\'') return "; JSON's quotation marks are \"";
  const size_t before = text.substr(0, offset).find_last_not_of(" \t\r\n");
  const bool closes = text[offset] == ']' || text[offset] == '}';
  if (closes && before != text.npos && text[before] == ',') return "; remove the comma before it";
  return "";
}

// A value as text for a message, truncated to a part of a line.
std::string Shown(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Builds the value; refuses duplicate keys and deep nesting, which nlohmann's own builder accepts.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(std::string_view text, const std::string& source, int depth)
      : text_(text), source_(source), depth_(depth), reached_(text.data()) {}

  const char** reached() { return &reached_; }
  Json Take() { return std::move(root_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    auto [place, added] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!added) Fail(fmt::format("the key {} is given twice; remove one", Shown(name)));
    place_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const size_t at = position == 0 ? 0 : position - 1;
    const std::string reason = Reason(error);
    throw DataError(fmt::format("{}:{}: {}{}", source_, LineColumn(text_, at), reason,
                                Advice(reason, text_, at)));
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    const size_t read = static_cast<size_t>(reached_ - text_.data());
    throw DataError(
        fmt::format("{}:{}: {}", source_, LineColumn(text_, read == 0 ? 0 : read - 1), what));
  }

  // The destination of the next value: the root, the last key's value, or a new array element.
  Json& Place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *place_;
    return open_.back()->emplace_back();
  }

  template <class Value>
  bool Put(Value&& value) {
    Place() = std::forward<Value>(value);
    return true;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= depth_) {
      Fail(fmt::format("nested deeper than {} levels", depth_));
    }
    Json& place = Place();
    place = std::move(container);
    open_.push_back(&place);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& source_;
  int depth_;
  const char* reached_;
  Json root_;
  // Addresses stay valid: an array grows only while its last element is closed.
  std::vector<Json*> open_;
  Json* place_ = nullptr;
};

[[noreturn]] void FailSize(const std::string& source, size_t limit) {
  throw DataError(
      fmt::format("{}: larger than the limit of {} bytes; is this the right file?", source, limit));
}

const Json* Find(const Json& object, const char* key, const std::string& source) {
  if (!object.is_object()) {
    throw DataError(fmt::format("{}: must be an object, not {}", source, object.type_name()));
  }
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& Require(const Json& object, const char* key, const std::string& source) {
  const Json* value = Find(object, key, source);
  if (value == nullptr) throw DataError(fmt::format("{}: {}: missing", source, key));
  return *value;
}

[[noreturn]] void FailType(const Json& value, const char* key, const std::string& source,
                           const char* wanted) {
  throw DataError(fmt::format("{}: {}: must be {}, not {}", source, key, wanted, Shown(value)));
}

int64_t AsInt(const Json& value, const char* key, const std::string& source) {
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_integer() || too_large) FailType(value, key, source, "a whole number");
  return value.get<int64_t>();
}

double AsNumber(const Json& value, const char* key, const std::string& source) {
  if (!value.is_number()) FailType(value, key, source, "a number");
  return value.get<double>();
}

bool AsBool(const Json& value, const char* key, const std::string& source) {
  if (!value.is_boolean()) FailType(value, key, source, "true or false");
  return value.get<bool>();
}

std::string AsString(const Json& value, const char* key, const std::string& source) {
  if (!value.is_string()) FailType(value, key, source, "text");
  return value.get<std::string>();
}

}  // namespace

Json ParseJson(std::string_view text, const std::string& source, const JsonLimits& limits) {
  if (text.size() > limits.bytes) FailSize(source, limits.bytes);
  if (text.empty()) throw DataError(fmt::format("{}: empty; JSON text is expected", source));
  StrictBuilder builder(text, source, limits.depth);
  Json::sax_parse(CountingIterator(text.data(), builder.reached()),
                  CountingIterator(text.data() + text.size(), builder.reached()), &builder);
  return builder.Take();
}

Json ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  const FileText file = ReadRegularFile(path, limits.bytes);
  if (!file.problem.empty()) throw DataError(fmt::format("{}: {}", path, file.problem));
  return ParseJson(file.text, path, limits);
}

int64_t GetInt(const Json& object, const char* key, const std::string& source) {
  return AsInt(Require(object, key, source), key, source);
}

double GetNumber(const Json& object, const char* key, const std::string& source) {
  return AsNumber(Require(object, key, source), key, source);
}

bool GetBool(const Json& object, const char* key, const std::string& source) {
  return AsBool(Require(object, key, source), key, source);
}

std::string GetString(const Json& object, const char* key, const std::string& source) {
  return AsString(Require(object, key, source), key, source);
}

int64_t GetInt(const Json& object, const char* key, const std::string& source, int64_t fallback) {
  const Json* value = Find(object, key, source);
  return value == nullptr ? fallback : AsInt(*value, key, source);
}

double GetNumber(const Json& object, const char* key, const std::string& source, double fallback) {
  const Json* value = Find(object, key, source);
  return value == nullptr ? fallback : AsNumber(*value, key, source);
}

bool GetBool(const Json& object, const char* key, const std::string& source, bool fallback) {
  const Json* value = Find(object, key, source);
  return value == nullptr ? fallback : AsBool(*value, key, source);
}

std::string GetString(const Json& object, const char* key, const std::string& source,
                      const std::string& fallback) {
  const Json* value = Find(object, key, source);
  return value == nullptr ? fallback : AsString(*value, key, source);
}

}  // namespace equipoise
