// Names, shapes and options to a plan.
#include "forge/quantize_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "checkpoint/patterns.h"
#include "io/quote.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

std::string_view last_part(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}
std::string_view parent_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

struct GroupRow {
  std::string_view leaf;
  std::string_view group;
};
// kv_proj is DeepSeek-V4's second first projection, kv_a_proj_with_mqa V3's.
constexpr std::array<GroupRow, 10> kGroups = {{{"q_proj", "qkv"},
                                               {"k_proj", "qkv"},
                                               {"v_proj", "qkv"},
                                               {"gate_proj", "gate_up"},
                                               {"up_proj", "gate_up"},
                                               {"w1", "gate_up"},
                                               {"w3", "gate_up"},
                                               {"q_a_proj", "q_a_kv_a"},
                                               {"kv_a_proj_with_mqa", "q_a_kv_a"},
                                               {"kv_proj", "q_a_kv_a"}}};

Status refuse_quantized(const Checkpoint& source) {
  const JsonValue* config = source.config();
  if (config == nullptr)
    return fail_at(Where{source.root().string(), {}, {}, {}}, Code::kInput,
                   "{} has no config.json, which the result needs: give a model directory",
                   source.root().string());
  for (const auto& [module, record] : source.linears())
    if (is_quantized(record.scheme) || record.pre_quant_scale)
      return fail_at(Where{{}, record.weight.info->name, {}, {}}, Code::kUnsupported,
                     "expected BF16, F16 or F32 weights, found {} in {} of {}: quantize the "
                     "original model, or dequantize this one first",
                     scheme_name(record.scheme), quote_name(record.weight.info->name),
                     source.root().string());
  const JsonValue* quantization = config->find("quantization_config");
  if (quantization != nullptr && !quantization->is_null())
    return fail_at(Where{"config.json", {}, "quantization_config", {}}, Code::kUnsupported,
                   "the config.json of {} has a quantization_config although no linear is "
                   "quantized: remove it if the weights are meant to be plain",
                   source.root().string());
  return {};
}

class Planner {
 public:
  Planner(const Checkpoint& source, const QuantizeOptions& options)
      : source_(source), options_(options), keep_matched_(options.keep.size()) {}

  Result<QuantizePlan> run() {
    SX_TRY(refuse_quantized(source_));
    SX_TRY(refuse_errors(source_.findings(), false));
    make_shards();
    std::map<std::string, std::vector<PlannedLinear>> groups;
    std::map<std::string, std::vector<std::string>> kept_groups;
    for (const auto& [name, tensor] : source_.tensors()) {
      const LinearRecord* record = linear_of(name);
      const std::string reason = record != nullptr ? keep_reason(*record) : "";
      if (record == nullptr || !reason.empty()) {
        copy(tensor);
        if (record != nullptr) {
          keep(record->module, reason);
          kept_groups[fused_group(record->module)].push_back(record->module);
        } else {
          note_fused_experts(name, tensor);
        }
        continue;
      }
      const bool fused = options_.global_scale == GlobalScaleRule::kFused;
      groups[fused ? fused_group(record->module) : record->module].push_back(quantized(*record));
    }
    SX_TRY(check_patterns());
    if (groups.empty())
      return fail(Code::kUnsupported,
                  "no linear of {} would be quantized: all are kept (embeddings, heads, norms, "
                  "routers, --keep) or have rows that are no multiple of 16 values",
                  source_.root().string());
    note_split_groups(groups, kept_groups);
    for (auto& [name, members] : groups) plan_.groups.push_back(std::move(members));
    // In the order of the files, so that the source is read once from front to back.
    std::sort(plan_.groups.begin(), plan_.groups.end(), [](const auto& a, const auto& b) {
      const auto key = [](const std::vector<PlannedLinear>& g) {
        return std::pair(g.front().shard, g.front().record->weight.info->begin);
      };
      return key(a) < key(b);
    });
    finish_ignore();
    return std::move(plan_);
  }

 private:
  void make_shards() {
    std::set<const SafetensorsFile*> used;
    for (const auto& [name, tensor] : source_.tensors()) used.insert(tensor.file);
    for (const auto& file : source_.files())
      if (used.count(file.get()) != 0) {
        shard_of_[file.get()] = plan_.shards.size();
        plan_.shards.emplace_back();
      }
    const size_t n = plan_.shards.size();
    for (size_t i = 0; i < n; ++i)
      plan_.shards[i].file_name =
          n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
  }

  // Only what is stored as MODULE.weight is renamed as a linear.
  const LinearRecord* linear_of(std::string_view tensor_name) const {
    if (!tensor_name.ends_with(".weight")) return nullptr;
    const auto it = source_.linears().find(parent_of(tensor_name));
    if (it == source_.linears().end() || it->second.weight.info->name != tensor_name)
      return nullptr;
    return &it->second;
  }

  std::string keep_reason(const LinearRecord& record) {
    std::string reason(kept_by_default(record.module));
    for (size_t i = 0; i < options_.keep.size(); ++i) {
      if (!shell_match(options_.keep[i], record.module)) continue;
      keep_matched_[i] = true;
      if (reason.empty()) reason = fmt::format("kept by {}", quote_name(options_.keep[i]));
    }
    if (reason.empty() && record.k % kNvfp4Block != 0) {
      reason = fmt::format("rows of {} values, no multiple of 16", record.k);
      plan_.notes.push_back(
          fmt::format("{} stays as it is: its rows have {} values, and NVFP4 "
                      "needs a multiple of 16",
                      quote_name(record.module), record.k));
    }
    return reason;
  }

  Status check_patterns() const {
    for (size_t i = 0; i < options_.keep.size(); ++i)
      if (!keep_matched_[i])
        return fail(
            Code::kUsage,
            "--keep {} matches no linear of {}: patterns are shell-style and match whole "
            "module names such as {} ('sextant inspect' lists them)",
            quote_name(options_.keep[i]), source_.root().string(),
            quote_name(source_.linears().empty() ? "lm_head" : source_.linears().begin()->first));
    return {};
  }

  void copy(const TensorRef& tensor) {
    const size_t shard = shard_of_.at(tensor.file);
    plan_.copies.push_back(
        {tensor, shard, add(shard, tensor.info->name, tensor.info->dtype, tensor.info->shape)});
  }

  PlannedLinear quantized(const LinearRecord& record) {
    const bool ct = options_.dialect == QuantizeDialect::kCompressedTensors;
    PlannedLinear linear;
    linear.record = &record;
    linear.shard = shard_of_.at(record.weight.file);
    const std::string prefix = record.module + ".";
    linear.codes_idx = add(linear.shard, prefix + (ct ? "weight_packed" : "weight"), DType::kU8,
                           {record.n, record.k / 2});
    linear.scales_idx = add(linear.shard, prefix + "weight_scale", DType::kF8E4M3,
                            {record.n, record.k / kNvfp4Block});
    linear.global_idx = add(linear.shard, prefix + (ct ? "weight_global_scale" : "weight_scale_2"),
                            DType::kF32, ct ? std::vector<int64_t>{1} : std::vector<int64_t>{});
    return linear;
  }

  int64_t add(size_t shard, std::string name, DType dtype, std::vector<int64_t> shape) {
    auto& tensors = plan_.shards[shard].tensors;
    tensors.push_back({std::move(name), dtype, std::move(shape)});
    return static_cast<int64_t>(tensors.size()) - 1;
  }

  void keep(const std::string& module, const std::string& reason) {
    plan_.kept.push_back({module, reason});
    if (reason != "embedding" && reason != "norm") ignore_.insert(module);
  }

  // Experts stored as one three-dimensional tensor stay as they are.
  void note_fused_experts(std::string_view name, const TensorRef& tensor) {
    if (tensor.info->shape.size() != 3 || dtype_bits(tensor.info->dtype) < 16) return;
    plan_.kept.push_back({std::string(name), "three-dimensional"});
    ignore_.insert(std::string(parent_of(name)));
    if (!noted_experts_)
      plan_.notes.push_back(
          fmt::format("{} and other tensors of three dimensions stay as they "
                      "are: only linears stored one by one are quantized",
                      quote_name(name)));
    noted_experts_ = true;
  }

  // An engine that fuses linears wants all of a group in one form.
  void note_split_groups(const std::map<std::string, std::vector<PlannedLinear>>& groups,
                         const std::map<std::string, std::vector<std::string>>& kept_groups) {
    std::set<std::string> quantized_groups;
    for (const auto& [name, members] : groups)
      for (const PlannedLinear& member : members)
        quantized_groups.insert(fused_group(member.record->module));
    for (const auto& [group, modules] : kept_groups)
      if (quantized_groups.count(group) != 0)
        plan_.notes.push_back(
            fmt::format("{} stays as it is while linears that it is fused with are quantized: "
                        "some engines refuse that",
                        quote_name(modules.front())));
  }

  void finish_ignore() {
    const JsonValue* tied = source_.config()->find("tie_word_embeddings");
    if (tied != nullptr && tied->is_bool() && tied->as_bool()) ignore_.insert("lm_head");
    plan_.ignore.assign(ignore_.begin(), ignore_.end());
  }

  const Checkpoint& source_;
  const QuantizeOptions& options_;
  QuantizePlan plan_;
  std::map<const SafetensorsFile*, size_t> shard_of_;
  std::vector<bool> keep_matched_;
  std::set<std::string> ignore_;
  bool noted_experts_ = false;
};

}  // namespace

std::string fused_group(std::string_view module) {
  const std::string_view leaf = last_part(module);
  for (const GroupRow& row : kGroups)
    if (row.leaf == leaf) return fmt::format("{}|{}", parent_of(module), row.group);
  return std::string(module);
}

std::string_view kept_by_default(std::string_view module) {
  const std::string_view leaf = last_part(module);
  if (leaf.starts_with("embed_") || leaf.ends_with("embeddings") || leaf.ends_with("embedding") ||
      leaf == "embed" || leaf == "wte" || leaf == "wpe")
    return leaf == "embed_out" ? "head" : "embedding";
  if (leaf == "lm_head" || module == "output" || module == "head") return "head";
  if (leaf == "gate" || leaf == "router" || leaf == "shared_expert_gate" ||
      parent_of(module).ends_with(".router"))
    return "router";
  if (leaf.ends_with("norm")) return "norm";
  return "";
}

Result<QuantizePlan> plan_quantization(const Checkpoint& source, const QuantizeOptions& options) {
  return Planner(source, options).run();
}

}  // namespace sextant
