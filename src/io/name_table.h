// Private to io/: which of many names were seen, for duplicates and look-ups. An open-addressed
// table of 8 bytes a slot whose hash (xxHash) has a seed drawn at start, so that a file cannot
// choose names that collide. Names stay where they are; the caller gives them back by index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace sextant {

uint64_t hash_name(std::string_view name);

class NameTable {
 public:
  // Room for n names.
  void reserve(size_t n) {
    size_t n_slots = 16;
    while (n_slots < 2 * n) n_slots *= 2;
    slots_.assign(n_slots, kEmpty);
  }

  // The index of an equal name that is in the table; nullopt after idx was put in.
  template <class NameOf>
  std::optional<uint32_t> insert(std::string_view name, uint32_t idx, const NameOf& name_of) {
    uint64_t* slot = probe(name, name_of);
    if (*slot != kEmpty) return static_cast<uint32_t>(*slot);
    *slot = (hash_name(name) & kHashMask) | idx;
    return std::nullopt;
  }

  template <class NameOf>
  std::optional<uint32_t> find(std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return std::nullopt;
    const uint64_t slot = *const_cast<NameTable*>(this)->probe(name, name_of);
    return slot == kEmpty ? std::nullopt : std::optional(static_cast<uint32_t>(slot));
  }

  // After the names moved: index i is now new_idx[i].
  void renumber(std::span<const uint32_t> new_idx) {
    for (uint64_t& slot : slots_)
      if (slot != kEmpty) slot = (slot & kHashMask) | new_idx[static_cast<uint32_t>(slot)];
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // an index is below 2^32 - 1
  static constexpr uint64_t kHashMask = ~uint64_t{0xFFFFFFFF};

  // The slot of an equal name or the empty one where it belongs.
  template <class NameOf>
  uint64_t* probe(std::string_view name, const NameOf& name_of) {
    const uint64_t hash = hash_name(name);
    const size_t mask = slots_.size() - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      uint64_t& slot = slots_[i];
      if (slot == kEmpty) return &slot;
      if (((slot ^ hash) & kHashMask) == 0 && name_of(static_cast<uint32_t>(slot)) == name)
        return &slot;
    }
  }

  std::vector<uint64_t> slots_;
};

}  // namespace sextant
