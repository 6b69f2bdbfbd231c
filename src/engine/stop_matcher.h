// Stop strings in streamed text. Text that may still become a stop string is held back; what push
// returns is final. The stop that is complete first ends the text (of several that end at the same
// byte, the longest), however the text was cut into pieces. Pure; bytes, so UTF-8 is never split
// where the stop strings are whole characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sextant {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
    stops_.erase(std::remove(stops_.begin(), stops_.end(), std::string()), stops_.end());
  }

  // What may be shown now. Nothing more comes once matched().
  std::string push(std::string_view text) {
    if (matched_) return {};
    held_ += text;
    size_t stop_begin = std::string::npos;
    size_t stop_end = std::string::npos;
    for (const std::string& stop : stops_) {
      const size_t begin = held_.find(stop);
      if (begin == std::string::npos) continue;
      const size_t end = begin + stop.size();
      if (end < stop_end || (end == stop_end && begin < stop_begin)) {
        stop_begin = begin;
        stop_end = end;
      }
    }
    if (stop_end != std::string::npos) {
      matched_ = true;
      std::string shown = held_.substr(0, stop_begin);
      held_.clear();
      return shown;
    }
    const size_t n_shown = held_.size() - n_undecided();
    std::string shown = held_.substr(0, n_shown);
    held_.erase(0, n_shown);
    return shown;
  }

  // What was held back, at the end of a text without a stop.
  std::string finish() { return std::exchange(held_, {}); }
  bool matched() const { return matched_; }

 private:
  // The length of the longest end of held_ that a stop string begins with.
  size_t n_undecided() const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
      size_t n = std::min(stop.size() - 1, held_.size());
      while (n > longest && !std::string_view(held_).ends_with(std::string_view(stop).substr(0, n)))
        --n;
      longest = std::max(longest, n);
    }
    return longest;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace sextant
