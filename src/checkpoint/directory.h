// A model directory in Hugging Face layout (or a cache snapshot, its models--... folder, or one
// .safetensors file): config, generation config, shards (headers win over the index), every tensor
// by name, one LinearRecord a linear, findings on the way.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/finding.h"
#include "checkpoint/patterns.h"
#include "checkpoint/record.h"
#include "checkpoint/tensor_map.h"
#include "io/json.h"

namespace sextant {

struct CheckpointOptions {
  SafetensorsLimits limits;
  std::vector<Allowance> allow;
};

class Checkpoint {
 public:
  // Opens and resolves everything; nothing large is read. An Error for what cannot be opened at
  // all; what a checkpoint can have wrong with it is in findings(), errors included, so that
  // inspect and doctor can go on.
  static Result<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& path,
                                                  const CheckpointOptions& options = {});
  ~Checkpoint();

  const std::filesystem::path& root() const;   // the resolved directory (or the file's parent)
  const JsonValue* config() const;             // config.json, nullptr for a bare file
  const JsonValue* generation_config() const;  // nullptr where there is none
  // "modelopt", "compressed-tensors", "deepseek", "fp8", "mxfp4", "plain", "mixed"
  std::string_view dialect() const;
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const;

  // Every tensor, by name. Tensors that belong to a linear are found through their record as well.
  const TensorMap& tensors() const;
  TensorRef tensor(std::string_view name) const;  // empty where there is none
  const std::map<std::string, LinearRecord, std::less<>>& linears()
      const;  // by module; 2-D plain weights too, embeddings included, and the experts of stacks
  // nullptr where there is none; a wrapped linear ("q_proj.linear") is found by its plain name too.
  const LinearRecord* linear(std::string_view module) const;
  // The names of the tensors a record was made from (weight, scales, global and input scales), for
  // consumption accounting; of an expert in a stack those of the stack, which all its experts name.
  std::vector<std::string_view> tensors_of(const LinearRecord& linear) const;
  // The parts of a stack that are one expert's (views with the expert's place in the file), and
  // what the experts share; empty for linears with tensors of their own.
  const std::vector<TensorRef>& slices_of(const LinearRecord& linear) const;
  // Tensors that nobody has to consume, with the reason: unused draft layers, leaked quantizer
  // buffers, KV cache scales, scales of no known name. A model may still use them.
  const std::map<std::string, std::string, std::less<>>& harmless_tensors() const;
  // By attention module ("model.layers.0.self_attn").
  const std::map<std::string, KvScales, std::less<>>& kv_scales() const;
  // Errors first. Block scales are not read at open: see scan_scales (scan.h) and refuse_errors
  // (finding.h).
  const std::vector<Finding>& findings() const;
  const std::vector<PatternReport>& patterns() const;
  const std::vector<Allowance>& allowed() const;  // what open() was told

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sextant
