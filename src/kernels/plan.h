// How an operation is cut into tiles and tasks: pure functions over plain structs, so that a choice
// can be printed, tested and reasoned about without running it. Results never depend on a plan
// (ops.h): it decides speed only.
#pragma once

#include <cstdint>
#include <string>

namespace sextant {

// What a table's kernels offer.
struct LinearLimits {
  int64_t group_rows = 32;          // output rows interleaved in the packed layout
  int64_t direct_tokens = 4;        // tokens one pass over packed codes serves
  int64_t tile_tokens = 6;          // tokens of one panel tile
  int64_t max_direct_rows = 8;      // calls of up to this many rows read the codes directly
  int64_t panel_bytes = 128 << 10;  // expanded weights a worker keeps in L2
};

struct LinearShape {
  int64_t m = 0;         // rows of x
  int64_t k = 0;         // columns
  int64_t n_groups = 0;  // row groups of all weights of the call
  int64_t block_k = 0;   // columns a block scale covers, 0 without; panels end between blocks
};

enum class LinearPath : uint8_t {
  kDecode,  // one row: codes straight from memory
  kSmall,   // a few rows: codes decoded once for several rows
  kPanel,   // many rows: weights expanded once into L2, then register tiles over the rows
};

struct LinearPlan {
  LinearPath path = LinearPath::kDecode;
  int64_t token_tile = 1;   // rows of x a kernel call serves
  int64_t token_chunk = 1;  // rows of x prepared at once
  int64_t token_split = 1;  // parts a chunk is split into, so that every thread has work
  int64_t k_chunk = 0;      // columns expanded at once (kPanel)
  int64_t n_tasks = 1;      // ranges of groups (kDecode, kSmall), or groups times token_split
};

LinearPlan plan_linear(const LinearShape& shape, const LinearLimits& limits, int n_threads);
std::string to_string(const LinearPlan& plan);

struct AttentionShape {
  int64_t n_rows = 0;  // query rows of the sequence
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
};

struct AttentionPlan {
  int64_t heads_per_task = 1;  // query heads of one key head that share a pass over its keys
  int64_t rows_per_task = 1;
  int64_t n_tasks = 1;
};

AttentionPlan plan_attention(const AttentionShape& shape, int n_threads);
std::string to_string(const AttentionPlan& plan);

// Rows of a cheap elementwise operation that one task does: all of them where a fork costs more
// than the work.
int64_t rows_per_task(int64_t n_rows, int64_t n_cols, int n_threads);

}  // namespace sextant
