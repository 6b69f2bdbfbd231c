// A model ready to run: config, weights bound once and resident in the layout of one ops table, and
// its forward pass. Immutable and shared by all sessions; sequences' state (KvSequence) belongs to
// the caller.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "checkpoint/directory.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/policy.h"
#include "model/probe.h"

namespace sextant {

struct ModelOptions {
  std::string isa;                    // "" for the best
  std::vector<std::string> policies;  // --policy values, later rules win; empty: a16
  int64_t max_context = 0;            // 0: the config's
  // Linears whose input scale has a finding against it, and which: policy auto takes a16 for them.
  std::map<std::string, std::string, std::less<>> distrusted_inputs;
};

struct Linear;  // weights.h

// Some consecutive tokens of one sequence in a step.
struct StepSeq {
  KvSequence* kv = nullptr;  // its pages already cover pos_begin + ids.size()
  std::span<const int32_t> ids;
  int64_t pos_begin = 0;
  int64_t n_logits = 1;  // logits of the last n rows are wanted (0 for a middle chunk of prefill)
};

// Buffers of a step, sized once for max_tokens rows; a step allocates nothing.
class StepBuffers;
struct StepBuffersDeleter {
  void operator()(StepBuffers* buffers) const;
};
using StepBuffersPtr = std::unique_ptr<StepBuffers, StepBuffersDeleter>;

// What binding would refuse, a finding a name: nothing is packed, nothing large is read.
// kUnsupported for an architecture that no family here knows, kInput for a config that says too
// little.
Result<std::vector<Finding>> check_parameters(const Checkpoint& checkpoint);

class Model {
 public:
  // Opens a path, allowing nothing.
  static Result<std::shared_ptr<const Model>> load(const std::filesystem::path& path,
                                                   const ModelOptions& options, ThreadPool& pool);
  // Binds (every parameter once; unbound and unconsumed tensors are reported by name and stop the
  // load), repacks. What the checkpoint was opened with is allowed: C16, unconsumed tensors; C15,
  // missing biases count as 0.
  static Result<std::shared_ptr<const Model>> load(std::unique_ptr<Checkpoint> checkpoint,
                                                   const ModelOptions& options, ThreadPool& pool);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const Policy& policy() const = 0;
  virtual const Ops& ops() const = 0;
  virtual const std::vector<Finding>& findings() const = 0;  // warnings and notes of the load
  virtual int64_t weight_bytes() const = 0;                  // resident
  virtual int64_t bytes_per_token()
      const = 0;  // weight bytes that one decode step of one token reads
  virtual KvLayout kv_layout() const = 0;
  // A linear by its module, as forward() runs it, for those who look at one alone; nullptr where
  // there is none of this name.
  virtual const Linear* linear(std::string_view module) const = 0;

  virtual StepBuffersPtr make_buffers(int64_t max_tokens, int64_t max_logit_rows) const = 0;
  // One step of a batch. logits [sum of n_logits, n_vocab], rows in the order of seqs. probe may be
  // null.
  virtual void forward(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> logits,
                       Probe* probe, ThreadPool& pool) const = 0;
};

}  // namespace sextant
