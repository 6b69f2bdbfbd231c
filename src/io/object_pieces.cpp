// Implements object_pieces.h: a walk over the bytes that knows strings and the depth of brackets.
#include "io/object_pieces.h"

namespace sextant {
namespace {

// The index behind a string's closing quote; json.size() where there is none.
size_t skip_string(std::string_view json, size_t at) {
  for (; at < json.size() && json[at] != '"'; ++at)
    if (json[at] == '\\') ++at;
  return at + 1;
}

}  // namespace

std::optional<ObjectPieces> cut_object(std::string_view json, int64_t piece_bytes) {
  if (json.empty() || json[0] != '{') return std::nullopt;
  ObjectPieces out;
  size_t begin = 1;
  int64_t depth = 1;
  for (size_t at = 1; at < json.size();) {
    const char c = json[at++];
    switch (c) {
      case '"': at = skip_string(json, at); break;
      case '{':
      case '[': ++depth; break;
      case '}':
      case ']':
        if (--depth > 0) break;
        if (c != '}' || json.find_first_not_of(' ', at) != std::string_view::npos)
          return std::nullopt;
        ++out.n_members;
        out.pieces.push_back(json.substr(begin, at - 1 - begin));
        return out;
      case ',':
        if (depth > 1) break;
        ++out.n_members;
        if (static_cast<int64_t>(at - begin) < piece_bytes) break;
        out.pieces.push_back(json.substr(begin, at - 1 - begin));
        begin = at;
        break;
      default: break;
    }
  }
  return std::nullopt;
}

}  // namespace sextant
