#include "kernels/plan.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/checked.h"

namespace sextant {
namespace {

// Ranges a thread: enough that a thread that was held up does not hold up the others.
constexpr int64_t kTasksPerThread = 4;
// Rows of x whose prepared copy stays in L2 or L3 while every group passes over it.
constexpr int64_t kTokenChunk = 192;
// A fork and join costs a few microseconds, about this many elements of a memory-bound loop.
constexpr int64_t kForkElements = 16384;

int64_t panel_columns(const LinearShape& shape, const LinearLimits& limits) {
  const int64_t row_bytes = limits.group_rows * static_cast<int64_t>(sizeof(float));
  const int64_t columns = std::max<int64_t>(64, limits.panel_bytes / row_bytes);
  if (shape.k <= columns) return std::max<int64_t>(1, shape.k);
  if (shape.block_k == 0) return columns;
  return std::max<int64_t>(1, columns / shape.block_k) * shape.block_k;
}

}  // namespace

LinearPlan plan_linear(const LinearShape& shape, const LinearLimits& limits, int n_threads) {
  LinearPlan plan;
  const int64_t want = n_threads <= 1 ? 1 : kTasksPerThread * n_threads;
  if (shape.m <= limits.max_direct_rows) {
    plan.path = shape.m <= 1 ? LinearPath::kDecode : LinearPath::kSmall;
    const int64_t passes = ceil_div(std::max<int64_t>(1, shape.m), limits.direct_tokens);
    plan.token_tile = ceil_div(std::max<int64_t>(1, shape.m), passes);  // 5 rows: 3 and 2
    plan.token_chunk = std::max<int64_t>(1, shape.m);
    plan.n_tasks = std::clamp<int64_t>(want, 1, std::max<int64_t>(1, shape.n_groups));
    return plan;
  }
  plan.path = LinearPath::kPanel;
  plan.k_chunk = panel_columns(shape, limits);
  plan.token_tile = limits.tile_tokens;
  const int64_t chunk = round_up(kTokenChunk, limits.tile_tokens);
  plan.token_chunk = std::min(round_up(shape.m, limits.tile_tokens), chunk);
  // Splitting tokens repeats the expansion, so only as far as threads would idle, and never below
  // four tiles.
  const int64_t tiles = plan.token_chunk / limits.tile_tokens;
  const int64_t groups = std::max<int64_t>(1, shape.n_groups);
  plan.token_split =
      std::clamp<int64_t>(ceil_div(want, groups), 1, std::max<int64_t>(1, tiles / 4));
  plan.n_tasks = groups * plan.token_split;
  return plan;
}

std::string to_string(const LinearPlan& plan) {
  static constexpr const char* kNames[] = {"decode", "small", "panel"};
  const char* name = kNames[static_cast<size_t>(plan.path)];
  if (plan.path != LinearPath::kPanel)
    return fmt::format("{}: {} rows a pass, {} ranges of groups", name, plan.token_tile,
                       plan.n_tasks);
  return fmt::format("{}: {} rows a tile, {} a chunk in {} parts, {} columns expanded, {} tasks",
                     name, plan.token_tile, plan.token_chunk, plan.token_split, plan.k_chunk,
                     plan.n_tasks);
}

AttentionPlan plan_attention(const AttentionShape& shape, int n_threads) {
  // Rows and heads of a task share converted keys; about 32 rows in all keep its state in L1 and
  // L2.
  constexpr int64_t kTaskRows = 32;
  AttentionPlan plan;
  const int64_t group = shape.n_heads / std::max<int64_t>(1, shape.n_kv_heads);
  const int64_t want = n_threads <= 1 ? 1 : 2 * n_threads;
  const auto tasks = [&](int64_t heads, int64_t rows) {
    return shape.n_heads / heads * ceil_div(shape.n_rows, rows);
  };
  plan.heads_per_task = std::max<int64_t>(1, group);
  plan.rows_per_task =
      std::clamp<int64_t>(kTaskRows / plan.heads_per_task, 1, std::max<int64_t>(1, shape.n_rows));
  // Even shares first: fewer heads a task until every thread has some, or none can be split off.
  for (int64_t heads = plan.heads_per_task; heads >= 1; --heads) {
    if (group % heads != 0) continue;
    plan.heads_per_task = heads;
    const int64_t n = tasks(heads, plan.rows_per_task);
    if (n >= want || n % std::max(1, n_threads) == 0) break;
  }
  plan.n_tasks = tasks(plan.heads_per_task, plan.rows_per_task);
  return plan;
}

std::string to_string(const AttentionPlan& plan) {
  return fmt::format("{} heads and {} rows a task, {} tasks", plan.heads_per_task,
                     plan.rows_per_task, plan.n_tasks);
}

int64_t rows_per_task(int64_t n_rows, int64_t n_cols, int n_threads) {
  if (n_threads <= 1 || n_rows * n_cols <= kForkElements) return std::max<int64_t>(1, n_rows);
  return std::max<int64_t>(1, ceil_div(n_rows, n_threads));
}

}  // namespace sextant
