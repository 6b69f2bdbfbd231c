// Tokens and their ids, both ways: one arena of bytes and an open-addressed table. Owns the bounds
// of a vocabulary. Must stay one to one: a token or an id that comes twice is an error, holes are
// not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_json.h"

namespace sextant {

inline constexpr int64_t kMaxTokenId = (1 << 22) - 1;
inline constexpr size_t kMaxTokenBytes = 1 << 16;
inline constexpr size_t kMaxVocabBytes = size_t{1} << 30;

class Vocab {
 public:
  // place: where the token stands, for messages.
  Status add(std::string_view token, int64_t id, const JsonPlace& place);
  void reserve(size_t n_tokens);

  int32_t find(std::string_view token) const;  // -1 where there is none
  std::string_view token(int32_t id) const;    // empty for holes and ids out of range
  bool has(int32_t id) const;
  int32_t end_id() const { return static_cast<int32_t>(spans_.size()); }  // highest id + 1
  size_t count() const { return count_; }

 private:
  struct Span {
    uint32_t begin = 0;
    int32_t length = -1;  // -1: a hole
  };
  size_t slot_of(std::string_view token) const;

  std::string arena_;
  std::vector<Span> spans_;     // by id
  std::vector<int32_t> slots_;  // ids, -1 where free; a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace sextant
