// Eight scale bytes at a time; a word with a hit is looked at byte by byte.
#include "checkpoint/scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "checkpoint/dialects/dialect.h"
#include "quant/bf16.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

enum HitKind : uint8_t { kNan, kNegative, kTiny, kHitKinds };

struct Hits {
  int64_t n[kHitKinds] = {};
  int64_t first[kHitKinds] = {-1, -1, -1};  // element index
  void at(HitKind kind, int64_t i) {
    if (n[kind]++ == 0) first[kind] = i;
  }
};

// E4M3: NaN is 0x7F or 0xFF. Adding 1 to the low seven bits of a byte reaches bit 7 only from 0x7F,
// and never carries into the next byte: 0x7F + 1 = 0x80, 0x7E + 1 = 0x7F.
void scan_e4m3(const uint8_t* bytes, int64_t begin, int64_t end, Hits& hits) {
  constexpr uint64_t kLow = 0x7F7F7F7F7F7F7F7FULL;
  constexpr uint64_t kOne = 0x0101010101010101ULL;
  const auto look = [&](int64_t i) {
    if ((bytes[i] & 0x7F) == 0x7F)
      hits.at(kNan, i);
    else if ((bytes[i] & 0x80) != 0)
      hits.at(kNegative, i);
  };
  int64_t i = begin;
  for (; i + 8 <= end; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    if ((((word & kLow) + kOne) | word) & ~kLow)
      for (int64_t j = i; j < i + 8; ++j) look(j);
  }
  for (; i < end; ++i) look(i);
}

void scan_e8m0(const uint8_t* bytes, int64_t begin, int64_t end, Hits& hits) {
  const uint8_t* at = bytes + begin;
  while (at < bytes + end) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, static_cast<size_t>(bytes + end - at)));
    if (at == nullptr) return;
    hits.at(kNan, at - bytes);
    ++at;
  }
}

float float_at(DType dtype, const std::byte* bytes, int64_t i) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * i, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, bytes + 2 * i, 2);
  return bf16_to_f32(half);
}

struct Piece {
  const LinearRecord* record = nullptr;
  int64_t begin = 0;  // elements
  int64_t end = 0;
  Hits hits;
};

// Row (of blocks) and group of a scale by its place in the file.
struct ScalePlace {
  int64_t row = 0;
  int64_t group = 0;
};
ScalePlace place_of(const LinearRecord& record, int64_t scale) {
  const TensorInfo& info = *record.scales.info;
  const int64_t columns = info.shape.size() < 2 ? 1 : info.n_elements() / info.shape[0];
  if (record.column_major && info.shape.size() == 2) return {scale % columns, scale / columns};
  return {scale / columns, scale % columns};
}

// A quantizer that divides by amax leaves a scale of 0 over weights of 0: no harm.
bool covers_zeros(const LinearRecord& record, int64_t scale) {
  const ScalePlace place = place_of(record, scale);
  const int64_t row_begin = place.row * record.block_n;
  const int64_t begin = place.group * record.block_k;
  const int64_t end = std::min(record.k, begin + record.block_k);
  const auto* codes = reinterpret_cast<const uint8_t*>(record.weight.bytes().data());
  for (int64_t row = row_begin; row < std::min(record.n, row_begin + record.block_n); ++row)
    for (int64_t i = begin; i < end; ++i)
      if ((codes[record.column_major ? i * record.n + row : row * record.k + i] & 0x7F) != 0)
        return false;
  return true;
}

void scan_piece(Piece& piece) {
  const TensorRef& scales = piece.record->scales;
  const auto* bytes = reinterpret_cast<const uint8_t*>(scales.bytes().data());
  switch (scales.info->dtype) {
    case DType::kF8E4M3: return scan_e4m3(bytes, piece.begin, piece.end, piece.hits);
    case DType::kF8E8M0: return scan_e8m0(bytes, piece.begin, piece.end, piece.hits);
    default:
      for (int64_t i = piece.begin; i < piece.end; ++i) {
        const float value = float_at(scales.info->dtype, scales.bytes().data(), i);
        if (!std::isfinite(value))
          piece.hits.at(kNan, i);
        else if (value < 0)
          piece.hits.at(kNegative, i);
        else if (value < 0x1p-126F && !covers_zeros(*piece.record, i))
          piece.hits.at(kTiny, i);
      }
  }
}

// What a kind of hit is called and what comes of it.
struct HitText {
  const char* id;
  const char* slug;
  Severity severity;
  const char* effect;
  const char* expected;
};
HitText text_of(HitKind kind, bool is_bytes) {
  constexpr const char* kRow = "; it makes the whole row of every result NaN";
  switch (kind) {
    case kNegative:
      return {"C2", "negative-block-scale", Severity::kWarning,
              "; block scales are never written negative: it is used as it stands", "not negative"};
    case kTiny:
      return {"C3", "bad-scalar-scale", Severity::kWarning,
              "; the weights it covers become zero, and engines that divide by it overflow",
              "at least 2^-126"};
    default:
      return {is_bytes ? "C1" : "C3", is_bytes ? "nan-block-scale" : "bad-scalar-scale",
              Severity::kError, kRow, "a finite scale"};
  }
}

void report(const LinearRecord& record, const Hits& hits, HitKind kind, FindingSet& findings) {
  const TensorRef& scales = record.scales;
  const TensorInfo& info = *scales.info;
  const int64_t at = hits.first[kind];
  const int64_t count = hits.n[kind];
  const ScalePlace place = place_of(record, at);
  const bool bytes = info.dtype == DType::kF8E4M3 || info.dtype == DType::kF8E8M0;
  const auto raw = static_cast<uint8_t>(scales.bytes()[static_cast<size_t>(bytes ? at : 0)]);
  float value = std::numeric_limits<float>::quiet_NaN();
  if (info.dtype == DType::kF8E4M3) value = e4m3_decode(raw);
  if (!bytes) value = float_at(info.dtype, scales.bytes().data(), at);
  const std::string found =
      bytes ? fmt::format("byte 0x{:02X} ({})", raw, value) : fmt::format("{}", value);
  std::string message =
      fmt::format("{}: {} at row {}, group {}", tensor_text(scales), found, place.row, place.group);
  if (count > 1) message += fmt::format(" and {} more in this tensor", count - 1);
  const HitText text = text_of(kind, bytes);
  Finding f = finding_at(text.id, text.slug, text.severity, scales, message + text.effect,
                         text.severity == Severity::kWarning
                             ? "compare the layer with its source"
                             : "the true scale is lost: take the checkpoint from its source again");
  f.index = {place.row, place.group};
  if (f.offset) *f.offset += at * (dtype_bits(info.dtype) / 8);
  f.value = value;
  f.expected = text.expected;
  f.count = count;
  findings.add(std::move(f), static_cast<double>(count));
}

}  // namespace

std::vector<Finding> scan_scales(const Checkpoint& checkpoint, ThreadPool& pool,
                                 const std::function<bool(const LinearRecord&)>& skip) {
  std::vector<Piece> pieces;
  for (const auto& [module, record] : checkpoint.linears()) {
    if (!record.scales || (skip && skip(record))) continue;
    const int64_t n = record.scales.info->n_elements();
    for (int64_t begin = 0; begin < n; begin += kChunkBytes)
      pieces.push_back({&record, begin, std::min(n, begin + kChunkBytes), {}});
  }
  pool.run(static_cast<int64_t>(pieces.size()),
           [&](int64_t i, int) { scan_piece(pieces[static_cast<size_t>(i)]); });
  FindingSet findings(checkpoint.allowed());
  for (size_t i = 0; i < pieces.size();) {
    Hits all;
    size_t j = i;
    for (; j < pieces.size() && pieces[j].record == pieces[i].record; ++j) {
      const Hits& hits = pieces[j].hits;
      for (int kind = 0; kind < kHitKinds; ++kind) {
        if (all.n[kind] == 0) all.first[kind] = hits.first[kind];
        all.n[kind] += hits.n[kind];
      }
    }
    for (const HitKind kind : {kNan, kNegative, kTiny})
      if (all.n[kind] > 0) report(*pieces[i].record, all, kind, findings);
    i = j;
  }
  return findings.take();
}

}  // namespace sextant
