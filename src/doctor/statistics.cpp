// One pass over the codes (quant/count_codes.h), one over the block scales.
#include "doctor/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "checkpoint/row_order.h"
#include "quant/count_bytes.h"
#include "quant/count_codes.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/ue8m0.h"

namespace sextant {
namespace {

constexpr int64_t kSampleBlocks = 1024;

// Whether every code of a row is zero; most rows say no at their first byte.
bool is_zero_row(const uint8_t* codes, int64_t row_bytes) {
  return std::all_of(codes, codes + row_bytes, [](uint8_t byte) { return (byte & 0x77) == 0; });
}

void count_rows(const LinearRecord& linear, int64_t row_begin, int64_t row_end,
                CodeStatistics& out) {
  const int64_t row_bytes = linear.k / 2;
  const int64_t n_rows = row_end - row_begin;
  const auto* codes =
      reinterpret_cast<const uint8_t*>(linear.weight.bytes().data()) + row_begin * row_bytes;
  CodeCounts counts;
  if (row_bytes % 8 == 0)  // blocks do not straddle rows
    count_codes(codes, n_rows * row_bytes, counts);
  else
    for (int64_t row = 0; row < n_rows; ++row)
      count_codes(codes + row * row_bytes, row_bytes, counts);
  out.low = counts.low;
  out.high = counts.high;
  out.n_zero_blocks = counts.n_zero_blocks;
  out.n_full_blocks = counts.n_full_blocks;
  out.n_codes = n_rows * linear.k;
  const int64_t blocks_a_row = (row_bytes + 7) / 8;
  out.n_blocks = n_rows * blocks_a_row;
  if (out.n_zero_blocks < blocks_a_row) return;
  for (int64_t row = 0; row < n_rows; ++row)
    if (is_zero_row(codes + row * row_bytes, row_bytes) && out.n_zero_rows++ == 0)
      out.first_zero_row = row_begin + row;
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

// 4 q^2 of both codes of a byte: whole numbers.
constexpr std::array<uint16_t, 256> kSquares = [] {
  std::array<uint16_t, 256> squares{};
  for (size_t byte = 0; byte < 256; ++byte)
    for (const size_t code : {byte & 15, byte >> 4}) {
      const float q = e2m1_decode(static_cast<uint8_t>(code));
      squares[byte] = static_cast<uint16_t>(squares[byte] + static_cast<int>(4 * q * q));
    }
  return squares;
}();

// Mean square of q * S over evenly spread blocks.
double sampled_rms(const LinearRecord& linear, int64_t row_begin, int64_t row_end) {
  const auto* scales = reinterpret_cast<const uint8_t*>(linear.scales.bytes().data());
  const int64_t columns = (linear.k + 15) / 16;
  const int64_t n = (row_end - row_begin) * columns;
  const int64_t step = std::max<int64_t>(1, linear.n * columns / kSampleBlocks);
  double sum = 0;
  int64_t n_values = 0;
  for (int64_t i = 0; i < n; i += step) {
    const int64_t row = row_begin + i / columns;
    const int64_t group = i % columns;
    const bool nvfp4 = linear.scheme == Scheme::kNvfp4;
    const int64_t at = row * linear.scales.info->shape[1] + (nvfp4 ? group : group / 2);
    const double s = nvfp4 ? double{e4m3_decode(scales[at])} : double{ue8m0_decode(scales[at])};
    if (!std::isfinite(s)) continue;
    const auto codes = block_codes(linear, row, group);
    int squares = 0;
    for (const uint8_t byte : codes) squares += kSquares[byte];
    sum += 0.25 * squares * s * s;
    n_values += 2 * static_cast<int64_t>(codes.size());
  }
  return n_values == 0 ? 0 : std::sqrt(sum / static_cast<double>(n_values));
}

// Every count, in one order; those that are -1 for "none" with 1 added.
template <class Statistics, class Count>
void for_each_count(Statistics& s, const Count& count) {
  count(s.n_codes, 0);
  count(s.n_blocks, 0);
  for (auto* list : {&s.low, &s.high})
    for (auto& n : *list) count(n, 0);
  for (auto& n : s.scale_bytes) count(n, 0);
  count(s.n_zero_blocks, 0);
  count(s.n_full_blocks, 0);
  count(s.n_zero_rows, 0);
  count(s.first_zero_row, 1);
  count(s.n_lost_blocks, 0);
  count(s.first_lost_row, 1);
  count(s.first_lost_group, 1);
}

// Seven bits a byte, the lowest first, bit 7 set where more follow: 300 is 0xAC 0x02.
void put_number(uint64_t value, std::vector<uint8_t>& out) {
  for (; value >= 0x80; value >>= 7U) out.push_back(static_cast<uint8_t>(value | 0x80));
  out.push_back(static_cast<uint8_t>(value));
}

uint64_t take_number(const uint8_t*& at) {
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    value |= uint64_t{*at & 0x7FU} << shift;
    if (*at++ < 0x80) return value;
  }
}

}  // namespace

// A run of zeros is one zero and how many follow it.
PackedStatistics::PackedStatistics(const CodeStatistics& statistics) : rms_(statistics.rms) {
  std::vector<uint8_t> bytes;
  bytes.reserve(sizeof statistics);
  int64_t n_zeros = 0;
  const auto end_zeros = [&] {
    if (n_zeros == 0) return;
    bytes.push_back(0);
    put_number(static_cast<uint64_t>(n_zeros - 1), bytes);
    n_zeros = 0;
  };
  for_each_count(statistics, [&](int64_t count, int64_t add) {
    if (count + add == 0) {
      ++n_zeros;
      return;
    }
    end_zeros();
    put_number(static_cast<uint64_t>(count + add), bytes);
  });
  end_zeros();
  bytes_.assign(bytes.begin(), bytes.end());  // no room to spare
}

CodeStatistics PackedStatistics::unpack() const {
  CodeStatistics out;
  out.rms = rms_;
  if (bytes_.empty()) return out;
  const uint8_t* at = bytes_.data();
  uint64_t n_zeros = 0;
  for_each_count(out, [&](int64_t& count, int64_t add) {
    uint64_t value = 0;
    if (n_zeros > 0) {
      --n_zeros;
    } else {
      value = take_number(at);
      if (value == 0) n_zeros = take_number(at);
    }
    count = static_cast<int64_t>(value) - add;
  });
  return out;
}

CodeStatistics code_statistics(const LinearRecord& linear, int64_t row_begin, int64_t row_end) {
  SX_CHECK(has_codes(linear.scheme));
  SX_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= linear.n);
  CodeStatistics out;
  if (linear.column_major) {
    const RowOrdered rows(linear, row_begin, row_end);
    out = code_statistics(rows.record(), 0, row_end - row_begin);
    if (out.first_zero_row >= 0) out.first_zero_row += row_begin;
    if (out.first_lost_row >= 0) out.first_lost_row += row_begin;
    return out;
  }
  count_rows(linear, row_begin, row_end, out);
  const int64_t columns = linear.scales.info->shape[1];
  const auto* scales = reinterpret_cast<const uint8_t*>(linear.scales.bytes().data());
  count_bytes(scales + row_begin * columns, (row_end - row_begin) * columns, out.scale_bytes);
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
