// What the engine keeps for one request, and for a finished one that a conversation may continue.
// The keys and values of the first n_in_kv ids are in kv; ids beyond are still to be fed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "model/kv_cache.h"

namespace sextant {

struct Session {
  RequestId id = 0;
  Request request;
  std::unique_ptr<KvSequence> kv;  // none while it waits
  std::vector<int32_t> ids;        // prompt, then answer
  TokenCounts counts;              // enabled when a penalty is on
  int64_t n_in_kv = 0;
  int64_t n_reused = 0;
  int64_t n_generated = 0;
  int64_t n_limit = 0;  // ids never grow beyond
  bool cancelled = false;
  bool finished = false;

  int64_t n_prompt() const { return static_cast<int64_t>(request.prompt.size()); }
  bool prefilling() const { return n_in_kv < n_prompt(); }
};

}  // namespace sextant
