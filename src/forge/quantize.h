// `sextant quantize`: a checkpoint of BF16, F16 or F32 weights to NVFP4, weights only, in either
// dialect. File to file: it works on the checkpoint's records and knows no architecture. Shards of
// the source become shards of the destination, one group of linears at a time, so memory does not
// grow with the model; the destination directory appears whole or not at all.
//
// Codes and block scales are ModelOpt's bytes (profile D of nvfp4.md 1.4) under both dialects. The
// compressed-tensors dialect has its own rule for scale bytes of zero (profile C): a block of zeros
// has 0x20, and a block whose scale underflows is profile C's in full.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/directory.h"

namespace sextant {

enum class QuantizeDialect : uint8_t { kModelOpt, kCompressedTensors };

enum class GlobalScaleRule : uint8_t {
  kFused,  // linears that engines fuse share the scale of their largest amax (quantize_plan.h)
  kOwn,    // every linear has the scale of its own amax
};

struct QuantizeProgress {
  int64_t done_bytes = 0;  // of the source's weights
  int64_t total_bytes = 0;
  std::string_view module;
};

struct QuantizeOptions {
  QuantizeDialect dialect = QuantizeDialect::kModelOpt;
  GlobalScaleRule global_scale = GlobalScaleRule::kFused;
  std::vector<std::string> keep;  // shell-style patterns of modules that stay as they are
  bool force = false;             // replace an existing destination
  // Working memory: buffers of all threads together, and pages of the source that stay mapped
  // in. Speed does not depend on it above a few tens of megabytes.
  int64_t max_memory_bytes = int64_t{512} << 20;
  std::string writer = "sextant";  // named in the configuration as who wrote it
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(const QuantizeProgress&)> progress;  // called by the caller's thread
};

struct KeptModule {
  std::string module;
  std::string reason;  // "embedding", "router", "kept by 'lm_head*'", ...
};

struct QuantizeReport {
  int64_t n_quantized = 0;   // linears
  int64_t n_weights = 0;     // elements of those
  int64_t source_bytes = 0;  // of all tensors
  int64_t output_bytes = 0;
  int64_t n_files = 0;  // shards
  int64_t n_zero_tensors = 0;
  std::vector<KeptModule> kept;    // in name order
  std::vector<std::string> notes;  // what a user should know, one sentence each
  double seconds = 0;
};

// kUnsupported for a source that is quantized already or has nothing to quantize, kModel for a
// weight that is NaN or infinite (its tensor and index are named) and for the checkpoint's error
// findings, kUsage for a pattern that matches nothing and for a destination that exists or is the
// source.
Result<QuantizeReport> quantize(const Checkpoint& source, const std::filesystem::path& destination,
                                const QuantizeOptions& options, ThreadPool& pool);

}  // namespace sextant
