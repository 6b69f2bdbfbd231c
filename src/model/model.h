// A model ready to run: config, weights bound once and resident in the layout of one ops table, and
// its forward pass. Immutable and shared by all sessions; sequences' state (KvSequence) belongs to
// the caller.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

class Model;

struct ModelOptions {
  std::string isa;                    // "" for the best
  std::vector<std::string> policies;  // --policy values, later rules win; empty: a16
  int64_t max_context = 0;            // 0: the config's
  // Linears whose input scale has a finding against it, and which: policy auto does not
  // use it.
  std::map<std::string, std::string, std::less<>> distrusted_inputs;
  // Multipliers of inputs by module, for policy a4:warmup; or who measures them, on the model as it
  // runs without them (a16, or what rules before say), before anybody else has it.
  std::map<std::string, float, std::less<>> warmup_scales;
  std::function<Result<std::map<std::string, float, std::less<>>>(const Model&)> warm_up;
  // Bind and check, pack nothing: load_stage() may be called, forward() may not.
  bool stages_on_demand = false;
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

// A part of the forward pass with the weights it needs, which go when it does: the embedding, a
// layer, or the final norm with the head. Must not outlive its model.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual int64_t weight_bytes() const = 0;  // resident
  // One step of a batch. hidden [rows of the step, d_model] is what the embedding writes, a layer
  // changes and the head reads; logits are written by the head, as forward() does. buffers are of
  // make_buffers(); kv needs the pages of this layer only (KvLayout::first_layer). probe may be
  // null.
  virtual void run(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> hidden,
                   Mat<float> logits, Probe* probe, ThreadPool& pool) const = 0;
};

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
  // What is done with a linear, whether it is built or not; the default for a name that is unknown.
  virtual LinearPolicy linear_policy(std::string_view module) const = 0;

  virtual StepBuffersPtr make_buffers(int64_t max_tokens, int64_t max_logit_rows) const = 0;
  // One step of a batch. logits [sum of n_logits, n_vocab], rows in the order of seqs. probe may be
  // null.
  virtual void forward(std::span<const StepSeq> seqs, StepBuffers& buffers, Mat<float> logits,
                       Probe* probe, ThreadPool& pool) const = 0;

  // The same in parts, for who wants no more of a model in memory than one of them: stage 0 embeds,
  // stage i + 1 is layer i, the last is the head. Run one after the other on the same steps they
  // are forward(), bit for bit. kUnsupported in a family that runs whole only.
  int64_t n_stages() const { return config().n_layers + 2; }
  virtual Result<std::unique_ptr<const Stage>> load_stage(int64_t stage, ThreadPool& pool) const;
};

}  // namespace sextant
