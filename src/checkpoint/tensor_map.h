// Every tensor of a checkpoint by name: one sorted array whose names are views into the TensorInfo
// they stand for, because a large model has more than a million of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/record.h"

namespace sextant {

class TensorMap {
 public:
  using Entry = std::pair<std::string_view, TensorRef>;
  using const_iterator = std::vector<Entry>::const_iterator;

  TensorMap() = default;
  // Of entries in any order. Of equal names the first stays; the others go to `repeated`.
  TensorMap(std::vector<Entry> entries, std::vector<Entry>& repeated)
      : entries_(std::move(entries)) {
    const auto less = [](const Entry& a, const Entry& b) { return a.first < b.first; };
    if (!std::is_sorted(entries_.begin(), entries_.end(), less))
      std::stable_sort(entries_.begin(), entries_.end(), less);
    size_t n = 0;
    for (const Entry& entry : entries_)
      if (n > 0 && entries_[n - 1].first == entry.first)
        repeated.push_back(entry);
      else
        entries_[n++] = entry;
    entries_.resize(n);
  }

  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const_iterator lower_bound(std::string_view name) const {
    return std::lower_bound(begin(), end(), name, [](const Entry& entry, std::string_view wanted) {
      return entry.first < wanted;
    });
  }
  const_iterator find(std::string_view name) const {
    const auto it = lower_bound(name);
    return it != end() && it->first == name ? it : end();
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace sextant
