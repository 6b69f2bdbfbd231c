// What the bytes of one 4-bit linear look like: histograms and block counts from one pass over
// every code and every block scale, at the speed of memory. What follows from the numbers is for
// checks/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "checkpoint/record.h"

namespace sextant {

struct CodeStatistics {
  int64_t n_codes = 0;
  int64_t n_blocks = 0;  // of 16 columns, whatever the scheme
  // Codes by value 0-15, of even columns (low nibbles) and odd ones (high nibbles).
  std::array<int64_t, 16> low{};
  std::array<int64_t, 16> high{};
  std::array<int64_t, 256> scale_bytes{};  // E4M3 or UE8M0, as stored
  int64_t n_zero_blocks = 0;               // every code is +0 or -0
  int64_t n_full_blocks = 0;               // some code is +6 or -6
  int64_t n_zero_rows = 0;
  int64_t first_zero_row = -1;
  // Blocks with scale byte 0x00 (NVFP4) whose codes are not all zero: values that were lost.
  int64_t n_lost_blocks = 0;
  int64_t first_lost_row = -1;
  int64_t first_lost_group = -1;
  double rms =
      0;  // of q * S, without the global scale; of a sample: 1024 blocks of the whole linear

  int64_t codes(int value) const {
    return low[static_cast<size_t>(value)] + high[static_cast<size_t>(value)];
  }
};

// The same in a few hundred bytes, for models of hundreds of thousands of linears: each count in as
// many bytes as it needs, so that none is ever cut off.
class PackedStatistics {
 public:
  PackedStatistics() = default;
  PackedStatistics(const CodeStatistics& statistics);         // NOLINT(google-explicit-constructor)
  explicit operator bool() const { return !bytes_.empty(); }  // whether it holds any
  CodeStatistics unpack() const;
  double rms() const { return rms_; }
  int64_t n_bytes() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  double rms_ = 0;
  std::vector<uint8_t> bytes_;
};

// Rows [row_begin, row_end) of a linear with codes (kNvfp4 or kMxfp4). Ranges of one linear are
// summed with add().
CodeStatistics code_statistics(const LinearRecord& linear, int64_t row_begin, int64_t row_end);
void add(CodeStatistics& sum, const CodeStatistics& part);

}  // namespace sextant
