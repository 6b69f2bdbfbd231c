// Codes are counted in bit planes. With b3 b2 b1 b0 the bits of a code, each plane a mask of one
// bit a nibble, the 15 products b0, b1, b1 b0, b2, ... (one a non-empty subset of the bits) are
// summed nibble by nibble: 16 codes a word at once, no table look-ups. The number of codes that
// have *at least* the bits of a subset follows for every subset, and inclusion-exclusion gives each
// code's own number. Worked example, one bit: 10 codes, 4 of them with b0: 6 have code 0 and 4
// code 1.
#include "doctor/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/cpu_info.h"
#include "checkpoint/row_order.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/ue8m0.h"

namespace sextant {
namespace {

using Words = uint64_t __attribute__((vector_size(32)));

constexpr int64_t kWordsBytes = 32;
constexpr int kPerFlush = 7;  // pairs of words: each adds at most 2 to a nibble, which holds 15
constexpr int kFlushes = 18;  // each adds at most 14 to a byte
constexpr uint64_t kNibbleOnes = 0x1111111111111111ULL;
constexpr int64_t kSampleBlocks = 1024;

[[gnu::always_inline]] inline Words all_lanes(uint64_t value) {
  return Words{value, value, value, value};
}

// Running sums: index s holds the codes with at least the bits of s. Index 0 is not used. Nibbles
// hold up to 15 and are emptied into bytes, which hold up to 255 and are emptied into integers.
struct PlaneSums {
  Words nibbles[16];
  Words low_bytes[16];  // of even columns, the low nibbles
  Words high_bytes[16];
  int64_t low[16] = {};
  int64_t high[16] = {};
  Words zero_blocks;  // minus the count, lane by lane
  Words full_blocks;
  int n_pairs = 0;    // since the nibbles were emptied
  int n_flushes = 0;  // since the bytes were
};

[[gnu::always_inline]] inline void empty_bytes(PlaneSums& sums) {
  for (size_t s = 1; s < 16; ++s) {
    for (size_t lane = 0; lane < 4; ++lane)
      for (int shift = 0; shift < 64; shift += 8) {
        sums.low[s] += static_cast<int64_t>((sums.low_bytes[s][lane] >> shift) & 0xFF);
        sums.high[s] += static_cast<int64_t>((sums.high_bytes[s][lane] >> shift) & 0xFF);
      }
    sums.low_bytes[s] = sums.high_bytes[s] = all_lanes(0);
  }
  sums.n_flushes = 0;
}

[[gnu::always_inline]] inline void empty_nibbles(PlaneSums& sums) {
  const Words mask = all_lanes(0x0F0F0F0F0F0F0F0FULL);
  for (size_t s = 1; s < 16; ++s) {
    const Words v = sums.nibbles[s];
    sums.low_bytes[s] += v & mask;
    sums.high_bytes[s] += (v >> 4) & mask;
    sums.nibbles[s] = all_lanes(0);
  }
  sums.n_pairs = 0;
  if (++sums.n_flushes == kFlushes) empty_bytes(sums);
}

// Two times 32 bytes of codes. The products of (b1 b0) with (b3 b2), in an order that keeps six
// masks of each in registers.
[[gnu::always_inline]] inline void count_pair(PlaneSums& sums, Words v, Words w) {
  const Words ones = all_lanes(kNibbleOnes);
  const Words zero = all_lanes(0);
  Words lo[2][4];  // [word][subset of b1 b0]
  Words hi[2][4];  // [word][subset of b3 b2]
  const Words words[2] = {v, w};
#pragma GCC unroll 2
  for (size_t i = 0; i < 2; ++i) {
    lo[i][1] = words[i] & ones;
    lo[i][2] = (words[i] >> 1) & ones;
    hi[i][1] = (words[i] >> 2) & ones;
    hi[i][2] = (words[i] >> 3) & ones;
    lo[i][3] = lo[i][1] & lo[i][2];
    hi[i][3] = hi[i][1] & hi[i][2];
    const Words full = lo[i][3] & hi[i][1];  // magnitude 7: 6.0
    const Words any = lo[i][1] | lo[i][2] | hi[i][1];
    sums.full_blocks += reinterpret_cast<Words>((full != zero));
    sums.zero_blocks += reinterpret_cast<Words>((any == zero));
  }
#pragma GCC unroll 4
  for (size_t l = 1; l < 4; ++l) sums.nibbles[l] += lo[0][l] + lo[1][l];
#pragma GCC unroll 4
  for (size_t h = 1; h < 4; ++h) {
    sums.nibbles[4 * h] += hi[0][h] + hi[1][h];
#pragma GCC unroll 4
    for (size_t l = 1; l < 4; ++l)
      sums.nibbles[4 * h + l] += (lo[0][l] & hi[0][h]) + (lo[1][l] & hi[1][h]);
  }
  if (++sums.n_pairs == kPerFlush) empty_nibbles(sums);
}

[[gnu::always_inline]] inline Words load_words(const uint8_t* p, int64_t n_bytes) {
  Words v = all_lanes(0);
  if (n_bytes >= kWordsBytes)
    std::memcpy(&v, p, kWordsBytes);
  else if (n_bytes > 0)
    std::memcpy(&v, p, static_cast<size_t>(n_bytes));
  return v;
}

[[gnu::always_inline]] inline int64_t count_of(Words negative) {
  uint64_t sum = 0;
  for (int lane = 0; lane < 4; ++lane) sum -= negative[lane];
  return static_cast<int64_t>(sum);
}

// Rows of row_bytes each, one after the other. Bytes that are read as padding at a row's end count
// as codes 0, in blocks of their own: the caller takes them off again.
[[gnu::always_inline]] inline void count_rows(const uint8_t* codes, int64_t n_rows,
                                              int64_t row_bytes, int64_t row_begin,
                                              CodeStatistics& out, PlaneSums& sums) {
  const int64_t padded_blocks = (row_bytes + 63) / 64 * 8;
  for (int64_t row = 0; row < n_rows; ++row) {
    const uint8_t* at = codes + row * row_bytes;
    sums.zero_blocks = all_lanes(0);
    int64_t i = 0;
    for (; i + 2 * kWordsBytes <= row_bytes; i += 2 * kWordsBytes)
      count_pair(sums, load_words(at + i, kWordsBytes),
                 load_words(at + i + kWordsBytes, kWordsBytes));
    if (i < row_bytes)
      count_pair(sums, load_words(at + i, row_bytes - i),
                 load_words(at + i + kWordsBytes, row_bytes - i - kWordsBytes));
    const int64_t n_zero = count_of(sums.zero_blocks);
    if (n_zero == padded_blocks && out.n_zero_rows++ == 0) out.first_zero_row = row_begin + row;
    out.n_zero_blocks += n_zero;
  }
  empty_nibbles(sums);
  empty_bytes(sums);
  out.n_full_blocks += count_of(sums.full_blocks);
}

[[gnu::target("avx2")]] void count_rows_avx2(const uint8_t* codes, int64_t n_rows,
                                             int64_t row_bytes, int64_t row_begin,
                                             CodeStatistics& out, PlaneSums& sums) {
  count_rows(codes, n_rows, row_bytes, row_begin, out, sums);
}
void count_rows_plain(const uint8_t* codes, int64_t n_rows, int64_t row_bytes, int64_t row_begin,
                      CodeStatistics& out, PlaneSums& sums) {
  count_rows(codes, n_rows, row_bytes, row_begin, out, sums);
}

// at_least[s] codes have at least the bits of s, at_least[0] all of them; in place to exactly s.
void exact_counts(std::array<int64_t, 16>& at_least) {
  for (size_t bit = 1; bit < 16; bit *= 2)
    for (size_t s = 0; s < 16; ++s)
      if ((s & bit) == 0) at_least[s] -= at_least[s | bit];
}

void count_codes(const LinearRecord& linear, int64_t row_begin, int64_t row_end,
                 CodeStatistics& out) {
  const int64_t row_bytes = linear.k / 2;
  const int64_t n_rows = row_end - row_begin;
  const auto* codes =
      reinterpret_cast<const uint8_t*>(linear.weight.bytes().data()) + row_begin * row_bytes;
  PlaneSums sums{};
  (cpu_info().avx2 ? count_rows_avx2 : count_rows_plain)(codes, n_rows, row_bytes, row_begin, out,
                                                         sums);
  for (size_t s = 1; s < 16; ++s) {
    out.low[s] = sums.low[s];
    out.high[s] = sums.high[s];
  }
  out.low[0] = out.high[0] = n_rows * row_bytes;
  exact_counts(out.low);
  exact_counts(out.high);
  out.n_codes = n_rows * linear.k;
  const int64_t blocks_a_row = (row_bytes + 7) / 8;
  out.n_blocks = n_rows * blocks_a_row;
  out.n_zero_blocks -= n_rows * ((row_bytes + 63) / 64 * 8 - blocks_a_row);
}

// Eight tables, so that equal bytes in a row do not wait for each other.
void count_scale_bytes(const uint8_t* bytes, int64_t n, std::array<int64_t, 256>& out) {
  uint32_t tables[8][256] = {};
  while (n > 0) {
    const int64_t part = std::min<int64_t>(n, int64_t{1} << 30);
    int64_t i = 0;
    for (; i + 8 <= part; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, 8);
      for (size_t j = 0; j < 8; ++j) ++tables[j][(word >> (8 * j)) & 0xFF];
    }
    for (; i < part; ++i) ++tables[0][bytes[i]];
    for (size_t byte = 0; byte < 256; ++byte)
      for (auto& table : tables) out[byte] += std::exchange(table[byte], 0U);
    bytes += part;
    n -= part;
  }
}

// Bytes of the block (row, group) of 16 columns; the last of a row may be short.
std::span<const uint8_t> block_codes(const LinearRecord& linear, int64_t row, int64_t group) {
  const auto* codes = reinterpret_cast<const uint8_t*>(linear.weight.bytes().data());
  const int64_t begin = 8 * group;
  return {codes + row * linear.k / 2 + begin,
          static_cast<size_t>(std::min<int64_t>(8, linear.k / 2 - begin))};
}

void find_lost_blocks(const LinearRecord& linear, int64_t row_begin, int64_t row_end,
                      CodeStatistics& out) {
  const auto* scales = reinterpret_cast<const uint8_t*>(linear.scales.bytes().data());
  const int64_t columns = linear.scales.info->shape[1];
  const uint8_t* const end = scales + row_end * columns;
  for (const uint8_t* at = scales + row_begin * columns; at < end; ++at) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0, static_cast<size_t>(end - at)));
    if (at == nullptr) return;
    const int64_t row = (at - scales) / columns;
    const int64_t group = (at - scales) % columns;
    const auto codes = block_codes(linear, row, group);
    if (std::all_of(codes.begin(), codes.end(), [](uint8_t b) { return (b & 0x77) == 0; }))
      continue;
    if (out.n_lost_blocks++ > 0) continue;
    out.first_lost_row = row;
    out.first_lost_group = group;
  }
}

// Mean square of q * S over evenly spread blocks.
double sampled_rms(const LinearRecord& linear, int64_t row_begin, int64_t row_end) {
  const auto* scales = reinterpret_cast<const uint8_t*>(linear.scales.bytes().data());
  const int64_t columns = (linear.k + 15) / 16;
  const int64_t n = (row_end - row_begin) * columns;
  const int64_t step = std::max<int64_t>(1, n / kSampleBlocks);
  double sum = 0;
  int64_t n_values = 0;
  for (int64_t i = 0; i < n; i += step) {
    const int64_t row = row_begin + i / columns;
    const int64_t group = i % columns;
    const bool nvfp4 = linear.scheme == Scheme::kNvfp4;
    const int64_t at = row * linear.scales.info->shape[1] + (nvfp4 ? group : group / 2);
    const double s = nvfp4 ? double{e4m3_decode(scales[at])} : double{ue8m0_decode(scales[at])};
    if (!std::isfinite(s)) continue;
    for (const uint8_t byte : block_codes(linear, row, group))
      for (const int code : {byte & 0x0F, byte >> 4}) {
        const double q = double{e2m1_decode(static_cast<uint8_t>(code))};
        sum += q * q * s * s;
        ++n_values;
      }
  }
  return n_values == 0 ? 0 : std::sqrt(sum / static_cast<double>(n_values));
}

}  // namespace

CodeStatistics code_statistics(const LinearRecord& linear, int64_t row_begin, int64_t row_end) {
  SX_CHECK(linear.scheme == Scheme::kNvfp4 || linear.scheme == Scheme::kMxfp4);
  SX_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= linear.n);
  CodeStatistics out;
  if (linear.column_major) {
    const RowOrdered rows(linear, row_begin, row_end);
    out = code_statistics(rows.record(), 0, row_end - row_begin);
    if (out.first_zero_row >= 0) out.first_zero_row += row_begin;
    if (out.first_lost_row >= 0) out.first_lost_row += row_begin;
    return out;
  }
  count_codes(linear, row_begin, row_end, out);
  const int64_t columns = linear.scales.info->shape[1];
  const auto* scales = reinterpret_cast<const uint8_t*>(linear.scales.bytes().data());
  count_scale_bytes(scales + row_begin * columns, (row_end - row_begin) * columns, out.scale_bytes);
  if (linear.scheme == Scheme::kNvfp4 && out.scale_bytes[0] > 0)
    find_lost_blocks(linear, row_begin, row_end, out);
  out.rms = sampled_rms(linear, row_begin, row_end);
  return out;
}

void add(CodeStatistics& sum, const CodeStatistics& part) {
  if (sum.n_codes + part.n_codes > 0) {
    const double a = static_cast<double>(sum.n_codes);
    const double b = static_cast<double>(part.n_codes);
    sum.rms = std::sqrt((a * sum.rms * sum.rms + b * part.rms * part.rms) / (a + b));
  }
  sum.n_codes += part.n_codes;
  sum.n_blocks += part.n_blocks;
  for (size_t i = 0; i < 16; ++i) {
    sum.low[i] += part.low[i];
    sum.high[i] += part.high[i];
  }
  for (size_t i = 0; i < 256; ++i) sum.scale_bytes[i] += part.scale_bytes[i];
  sum.n_full_blocks += part.n_full_blocks;
  sum.n_zero_blocks += part.n_zero_blocks;
  if (sum.n_zero_rows == 0) sum.first_zero_row = part.first_zero_row;
  sum.n_zero_rows += part.n_zero_rows;
  if (sum.n_lost_blocks == 0) {
    sum.first_lost_row = part.first_lost_row;
    sum.first_lost_group = part.first_lost_group;
  }
  sum.n_lost_blocks += part.n_lost_blocks;
}

}  // namespace sextant
