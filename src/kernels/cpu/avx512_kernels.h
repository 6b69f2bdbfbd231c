// What the AVX-512 object files offer to the driver (avx512_linear.cpp, avx512_ops.cpp): plain
// structs and plain functions, so that the per-ISA files need no other header of ours. The layouts
// of packed weights are defined here.
//
// R16 layout. 16 output rows are a group, one row a 32-bit lane; up to four groups are a
// supergroup, whose bytes are contiguous (groups = 4, but fewer in the last one). Along k, padded
// to a multiple of 16 with zeros, a supergroup holds
//   kNvfp4, kFp4Words  per 16 of k: groups x 16 scale bytes, then groups x 128 bytes of nibbles
//   kFp8    per 16 of k: groups x 256 bytes of codes
//   kBf16   per 2 of k:  groups x 64 bytes, lane r the pair (k, k + 1) of row r
//   kF16    per 1 of k:  groups x 32 bytes
//   kF32    per 1 of k:  groups x 64 bytes
// Byte order inside the 64-byte vectors of nibbles and codes: interleaving bytes with bytes (the
// instruction works within quarters of 16) must leave row r in lane r. So quarter q holds rows
// 4q .. 4q+3, row 4q + i at bytes 2i, 2i + 1 (k pair A) and 8 + 2i, 9 + 2i (pair B). A nibble
// vector covers 8 of k: low nibbles are pairs 0 and 1, high nibbles pairs 2 and 3.
//
// The scale byte of kNvfp4 is E << 3 | s: weight = E2M1 code * (1 + s/8) * 2^(8 - E). Every
// non-negative E4M3 value has this form (448 = 1.75 * 2^8 is E 0, s 6; the subnormal 2^-9 is E 17,
// s 0), MXFP4's powers of two do too, within 31 octaves of the row's largest.
//
// kFp4Words is the form of the tables without tiles. Lane r of a nibble vector is row r's 8 codes:
// nibble j of its lower half is k = 2j, of its upper half k = 2j + 1, so that a look-up by 16-bit
// words gives a vector of pairs. The scale byte is (31 - E) << 3 | s, the upper bits of a float32
// but for a constant. There the weights of 16 of k stay unscaled: they are summed from zero, then
// one FMA by the scale adds their sum to the row's.
#pragma once

#include <cstdint>

#if defined(SX_AVX512_EMULATED)
#define SX_AVX512_NAMESPACE avx512_emulated
#else
#define SX_AVX512_NAMESPACE avx512
#endif

namespace sextant::SX_AVX512_NAMESPACE {

enum class Layout : int32_t { kNvfp4, kFp4Words, kFp8, kBf16, kF16, kF32 };

constexpr int64_t kGroupRows = 16;
constexpr int64_t kSuperRows = 64;
constexpr int64_t kTileTokens = 12;  // the widest register tile
constexpr int64_t kChunk = 256;      // k range of one pass; its panel, 32 KB in BF16, stays in L1
constexpr int64_t kMaxBlock = 512;   // longest FP8 scale block kept as one chain
constexpr int64_t kPanelBytes = kSuperRows * kMaxBlock * 2;

constexpr int64_t kMaxTokens = 42 * kTileTokens;  // of one pass; bounds the packed input
constexpr int64_t kAmxTokens = 16;  // a multiple of it covers kMaxTokens in kSumFloats
constexpr int64_t kAmxStep = 32;
constexpr int64_t kAmxTileBytes = 1024;
// Element of the input of linear_amx: tiles along k, then blocks of tokens; k_stride is k rounded
// up to a multiple of 32. Tiles lie apart from each other's cache sets, rows of a power of two do
// not.
constexpr int64_t amx_input_at(int64_t token, int64_t k, int64_t k_stride) {
  return token / 16 * 16 * k_stride + k / 32 * 512 + token % 16 * 32 + k % 32;
}
constexpr int64_t kSumFloats = (kMaxTokens + kAmxTokens - 1) / kAmxTokens * kAmxTokens * kSuperRows;

// Tokens are taken in tiles of 12, 8, 6, 4, 3, 2, 1. The input is packed tile by tile: a tile of T
// tokens that starts at token t is at element t * k_padded, and holds per pair of k T words of two
// BF16, or per k T floats.
constexpr int64_t tile_width(int64_t n_left) {
  if (n_left >= 12) return 12;
  if (n_left >= 8) return 8;
  if (n_left >= 6) return 6;
  return n_left >= 4 ? 4 : n_left;
}

// One supergroup times tokens [token_begin, token_end) of the packed input.
struct LinearTask {
  Layout layout = Layout::kBf16;
  const unsigned char* data = nullptr;
  int64_t groups = 0;  // 1..4
  int64_t rows = 0;    // valid rows of the supergroup
  int64_t k_padded = 0;
  int64_t block_k = 0;            // k range of one scale; 0 without scales
  const float* scales = nullptr;  // [k / block_k], rows of scale_stride; at this supergroup's row
  int64_t scale_stride = 0;
  const float* multiplier = nullptr;  // one a row, padded; or null for 1
  const void* x = nullptr;
  int64_t x_stride = 0;     // linear_amx: k_stride of amx_input_at
  int64_t token_begin = 0;  // a multiple of kTileTokens
  int64_t token_end = 0;    // likewise, or the last token
  float* y = nullptr;       // token 0, first row of the supergroup
  int64_t y_stride = 0;
  void* panel = nullptr;  // kPanelBytes, 64-byte aligned
  float* sums = nullptr;  // linear_amx: kSumFloats, 64-byte aligned
};

// Chains of vdpbf16ps over k ascending; layouts kFp4Words, kFp8, kBf16; packed input in BF16.
void linear_bf16(const LinearTask& task);
// Chains of AMX tile products, 32 of k a step; layouts kNvfp4, kFp8, kBf16, scale blocks that are
// multiples of 32. Input in tiles of 16 tokens by 32 of k (amx_input_at), zeros beyond k; rows
// beyond the last token may hold anything. token_begin is a multiple of 16. Needs the system's
// permission to use tiles.
void linear_amx(const LinearTask& task);
// Chains of float32 FMA over k ascending; every layout; packed input in float32.
void linear_f32(const LinearTask& task);

// One tile of the packed input: T rows of x from x[0], x_stride apart, k values each, zeros up to
// k_padded.
void pack_input_bf16(const float* x, int64_t x_stride, int64_t width, int64_t k, int64_t k_padded,
                     uint32_t* out);
// One token of the input of linear_amx.
void pack_input_amx(const float* x, int64_t token, int64_t k, int64_t k_stride, uint16_t* out);
void pack_input_f32(const float* x, int64_t x_stride, int64_t width, int64_t k, int64_t k_padded,
                    bool round_to_bf16, float* out);

void rms_norm_row(const float* x, const float* weight, float eps, int64_t d, float* y);
void rope_head(float* v, int64_t half, const float* cos, const float* sin);
void silu_mul_row(const float* gate, const float* up, int64_t n, float* out);
void add_row(float* x, const float* y, int64_t n);

// Some query heads of one row that share a key head. Pages as in KvView.
struct AttentionTask {
  const float* q = nullptr;  // first head; heads head_dim apart
  float* out = nullptr;      // may be q
  int64_t n_heads = 0;       // heads that share the key head
  int64_t head_dim = 0;
  const void* const* k_pages = nullptr;
  const void* const* v_pages = nullptr;
  bool bf16 = false;
  int64_t page_tokens = 0;
  int64_t kv_stride = 0;  // elements from one position to the next
  int64_t kv_offset = 0;  // first element of the key head
  int64_t pos_begin = 0;  // keys [pos_begin, pos_end)
  int64_t pos_end = 0;
  float scale = 1.0F;
  float* scratch = nullptr;  // attention_scratch_floats(head_dim)
};
constexpr int64_t kAttentionKeys = 64;  // keys of one absolute block
constexpr int64_t kAttentionHeads = 4;  // heads of one pass
constexpr int64_t attention_scratch_floats(int64_t head_dim) {
  return kAttentionHeads * (kAttentionKeys + (head_dim + 15) / 16 * 16);
}
void attention_heads(const AttentionTask& task);

}  // namespace sextant::SX_AVX512_NAMESPACE
