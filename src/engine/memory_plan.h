// How many tokens of context and pages of keys and values there is memory for. Pure, but for the
// one function that asks the system.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/kv_cache.h"

namespace sextant {

struct MemoryPlan {
  int64_t max_context = 0;
  int64_t n_pages = 0;
  std::string note;  // empty unless the context is shorter than the model's
};

// model_context: the longest sequence the model is made for. max_context and kv_bytes as in
// EngineOptions (0: not given). A context that was asked for and does not fit is an error
// (kResources), one that was not is shortened with a note.
Result<MemoryPlan> plan_memory(const KvLayout& layout, int64_t model_context, int64_t max_context,
                               int64_t kv_bytes, int64_t available_bytes);

// What may still be allocated: MemAvailable, or what the control group has left if that is less.
int64_t available_memory_bytes();

}  // namespace sextant
