// Every operation of the forward pass, declared once with shapes, as one plain table of pointers.
// ref/ fills the whole table slowly and obviously; an ISA's table starts as a copy of ref and
// replaces what it has, so a new backend is right on day one. select_ops picks the best table for
// this processor, or one by name.
//
// Shapes are checked in one line at the top of each op. ref sums in float64 and rounds once; every
// other table sums in float32. Results of a row never depend on how many other rows the call has,
// nor on the number of threads: each output element is summed over k in one fixed order, so decode,
// prefill of any chunking and batches agree bit for bit within one table. Ops allocate nothing
// after the first call with a width: each thread keeps its scratch (scratch.h), whose size depends
// on widths only, never on the number of rows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "quant/bf16.h"
#include "quant/dtype.h"

namespace sextant {

// How a linear takes its input. kF32: as it is. kBf16: rounded to BF16 first (policy a16), products
// and sums in float32. kNvfp4: values that are an E2M1 code times an E4M3 scale a block of 16
// (quant/input_quantizer.h). With NVFP4 weights the sum of a block and its product with the
// weight's scale are then exact in float32 (at most 20 significant bits), whatever the order within
// the block; every table, ref too, adds the blocks of a row in float32 from the first to the last,
// and so all tables agree bit for bit.
enum class ActForm : uint8_t { kF32, kBf16, kNvfp4 };

// In which form the weights stay in memory.
enum class WeightForm : uint8_t {
  kF32,
  kBf16,
  kF16,
  kFp8,    // E4M3 bytes, float32 scale per (block_n rows, block_k columns) or none
  kNvfp4,  // E2M1 nibbles, E4M3 scale per 16
  kMxfp4,  // E2M1 nibbles, UE8M0 scale per 32
};

// What a packer reads: one linear as the file has it, row-major; plain pointers, no checkpoint
// types. A weight counts as code * scale * row_multiplier: the exact product, no rounding between.
// NaN scales and codes make their row of the result NaN; negative E4M3 scales count as they are.
struct WeightSource {
  WeightForm form = WeightForm::kBf16;
  int64_t n = 0;
  int64_t k = 0;                      // even for the FP4 forms; a last block may be partial
  const std::byte* weight = nullptr;  // codes or values, row-major, rows without padding
  const std::byte* scales =
      nullptr;  // kNvfp4: E4M3 [n, ceil(k/16)]; kMxfp4: UE8M0 [n, ceil(k/32)]
                // kFp8: scale_dtype [ceil(n/block_n), ceil(k/block_k)] or null
  DType scale_dtype = DType::kF8E4M3;  // kFp8: kF32, kBF16, kF16 or kF8E8M0; others: not read
  int64_t block_n = 1;                 // kFp8 with scales
  int64_t block_k = 16;
  std::span<const float> row_multiplier;  // [n] (g of each row), or empty for 1

  // Called from the caller's thread, with growing row_end: rows [0, row_end) of weight and scales
  // are not read again, their pages may go. Null: not called.
  void (*release)(void* context, int64_t row_end) = nullptr;
  void* release_context = nullptr;
};

// Resident weights in the layout of one ops table; only that table's functions read `data`.
struct PackedLinear {
  WeightForm form = WeightForm::kBf16;
  int64_t n = 0;
  int64_t k = 0;
  AlignedBuffer data;            // layout of the table that packed it
  AlignedBuffer row_multiplier;  // float [n], padded; empty for 1
  AlignedBuffer scales;          // kFp8: float per (row block, k block); otherwise within data
  int64_t block_n = 1;
  int64_t block_k = 16;
  int64_t weight_bytes = 0;  // what one decode step reads
  const char* table = "";    // name of the ops table that packed it
  int32_t layout = 0;        // which of that table's layouts, for its own use
};

// One sequence's keys and values of one layer, in pages of page_tokens positions: page p holds
// [page_tokens, n_kv_heads, head_dim].
struct KvView {
  const void* const* k_pages = nullptr;
  const void* const* v_pages = nullptr;
  DType dtype = DType::kF32;  // kF32 or kBF16
  int64_t page_tokens = 0;
};

// Query rows [row_begin, row_begin + n_rows) of the call belong to one sequence at positions
// pos_begin ...; row i attends to positions max(0, pos - window + 1) .. pos, all of which are in kv
// already.
struct AttentionSeq {
  int64_t row_begin = 0;
  int64_t n_rows = 0;
  int64_t pos_begin = 0;
  KvView kv;
};

struct AttentionParams {
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0F;
  int64_t window = 0;  // 0: no sliding window
};

struct Ops {
  const char* name = "";  // "ref", "avx2", "avx512-nobf16", "avx512", "amx"

  // Lays one linear out for this table. Rows in parallel, the source read once and in order. It may
  // be dropped afterwards.
  PackedLinear (*pack)(const WeightSource& source, ThreadPool& pool) = nullptr;

  // ys[i] [m, n_i] = x [m, k] * ws[i]^T, times row multipliers. All ws share x, so that it is
  // converted once and the fork is one. No y may overlap x.
  void (*linear)(std::span<const PackedLinear* const> ws, Mat<const float> x, ActForm act,
                 std::span<const Mat<float>> ys, ThreadPool& pool) = nullptr;

  // In words, how this table computes such a linear: what `explain` prints.
  std::string_view (*linear_path)(WeightForm form, ActForm act) = nullptr;

  // y[r, :] = x[r, :] / sqrt(mean(x^2) + eps) * weight; x and y [m, d] may be the same.
  void (*rms_norm)(Mat<const float> x, std::span<const float> weight, float eps, Mat<float> y,
                   ThreadPool& pool) = nullptr;

  // Rotates the first 2 * cos.cols dims of each head in place, half-split pairs (i, i + rot/2): x
  // [m, n_heads * head_dim], cos and sin [m, rot/2].
  void (*rope)(Mat<float> x, int64_t n_heads, int64_t head_dim, Mat<const float> cos,
               Mat<const float> sin, ThreadPool& pool) = nullptr;

  // out [m, n_heads * head_dim] = softmax(scale * q k^T, causal, windowed) v. Keys are visited in
  // blocks at fixed absolute positions. out may be q.
  void (*attention)(Mat<const float> q, std::span<const AttentionSeq> seqs,
                    const AttentionParams& params, Mat<float> out, ThreadPool& pool) = nullptr;

  // out = silu(gate) * up, elementwise; [m, d_ff]. out may be gate or up.
  void (*silu_mul)(Mat<const float> gate, Mat<const float> up, Mat<float> out,
                   ThreadPool& pool) = nullptr;

  // x += y, elementwise.
  void (*add)(Mat<float> x, Mat<const float> y, ThreadPool& pool) = nullptr;

  // x[r, :] += bias.
  void (*add_bias)(Mat<float> x, std::span<const float> bias, ThreadPool& pool) = nullptr;

  // Rows of a stored table (kF32, kBF16, kF16; row-major [n_vocab, d]) as float32; ids were checked
  // by the caller.
  void (*embed)(const std::byte* table, DType dtype, int64_t d, std::span<const int32_t> ids,
                Mat<float> out) = nullptr;

  // Keys or values into the cache's dtype: dst [n] from src [n].
  void (*store_kv)(std::span<const float> src, DType dtype, void* dst) = nullptr;
};

// The tables of this build that this processor can run, best first; "ref" is always last.
std::vector<const Ops*> available_ops();
// By name ("ref", "avx2", "avx512-nobf16", "avx512", "amx"), or the best for "" or "auto".
// kUnsupported with the list of what there is.
Result<const Ops*> select_ops(std::string_view name);

// Kernels keep scratch memory for each thread, made when a thread first meets a width. This gives
// every thread of the pool what any thread has made so far, so that later steps allocate nothing
// whichever thread takes which task. settled: what the last call with
// this pool, from this thread, returned; 0 at first.
uint64_t settle_scratch(ThreadPool& pool, uint64_t settled);

}  // namespace sextant
