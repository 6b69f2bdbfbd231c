// Private to io/: a large JSON object cut between its members, so that a parser holds only a piece
// of it at a time (simdjson's DOM takes about three bytes for each byte of text).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace sextant {

struct ObjectPieces {
  std::vector<std::string_view> pieces;  // members with the commas between them, without braces
  int64_t n_members = 0;
};

// Pieces of about piece_bytes. Joined by commas they are the object; each in braces is valid JSON
// and not empty exactly if the whole is valid. nullopt for what is not one object, with brackets
// that match and nothing but spaces behind it: a parser says what is wrong.
std::optional<ObjectPieces> cut_object(std::string_view json, int64_t piece_bytes);

}  // namespace sextant
