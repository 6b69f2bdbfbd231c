// Json whole. io/json.h only names it, since few need more and the library's header is heavy.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "io/json.h"

namespace sextant {

// null for what is not there.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
inline Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace sextant
