#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "configs/base/json.h"
#include "configs/yaml/fields.h"

namespace equipoise {

// A struct with VisitFields (fields.h) as a JSON object, one key a field; absent optionals are
// null.
template <class Value>
Json ConfigToJson(const Value& value);

namespace internal {

struct JsonVisitor {
  Json object = Json::object();
  template <class Value>
  void operator()(const char* name, const Value& value, const char*, const Rule& = {}) {
    object[name] = ConfigToJson(value);
  }
};

}  // namespace internal

template <class Value>
Json ConfigToJson(const Value& value) {
  if constexpr (NamedEnum<Value>) {
    return ToString(value);
  } else if constexpr (std::is_enum_v<Value>) {
    return FieldValue(value);
  } else if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (IsOptional<Value>::value) {
    return value ? ConfigToJson(*value) : Json();
  } else if constexpr (IsList<Value>::value) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(ConfigToJson(item));
    return list;
  } else {
    internal::JsonVisitor visitor;
    const_cast<Value&>(value).VisitFields(visitor);  // a visitor changes nothing
    return visitor.object;
  }
}

}  // namespace equipoise
