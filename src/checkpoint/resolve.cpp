// Grouping of tensors by module, the dialects in turn, KV scales, and the extra tensors that are
// known to be harmless.
#include "checkpoint/resolve.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "checkpoint/dialects/dialect.h"
#include "checkpoint/dialects/expert_stack.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr std::array<std::string_view, kPartCount> kPartNames = {
    "weight", "weight_packed",       "weight_scale", "weight_scale_2",     "weight_scale_inv",
    "scale",  "weight_global_scale", "input_scale",  "input_global_scale", "pre_quant_scale"};

struct SplitName {
  std::string_view module;
  std::string_view last;
};
SplitName split_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {{}, name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Experts by two naming schemes: w1 gate, w3 up, w2 down (case C062).
std::string other_expert_name(std::string_view module) {
  const auto [parent, last] = split_name(module);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNames = {
      {{"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}}};
  for (const auto& [letter, word] : kNames) {
    if (last == letter) return fmt::format("{}.{}", parent, word);
    if (last == word) return fmt::format("{}.{}", parent, letter);
  }
  return {};
}

using Modules = std::map<std::string, ModuleTensors, std::less<>>;

bool has_weight(const ModuleTensors& m) { return m[Part::kWeight] || m[Part::kWeightPacked]; }

// Experts in stacks go to `stacks`; most checkpoints have none, and are not gone through for them.
Modules group_by_module(const TensorMap& tensors, ExpertStacks& stacks) {
  Modules modules;
  bool has_stacks = false;
  auto at = modules.end();  // the module of the tensor before, most often this one's too
  for (const auto& [name, ref] : tensors) {
    has_stacks = has_stacks || (ref.info->shape.size() >= 3 && stack_part(name));
    const auto [module, last] = split_name(name);
    const auto it = std::find(kPartNames.begin(), kPartNames.end(), last);
    if (it == kPartNames.end() || module.empty()) continue;
    if (at == modules.end() || at->first != module)
      at = modules.try_emplace(std::string(module)).first;
    at->second.module = module;
    at->second.parts[static_cast<size_t>(it - kPartNames.begin())] = ref;
  }
  if (has_stacks) stacks = collect_stacks(tensors);
  for (const auto& [module, stack] : stacks) modules.erase(module);
  // Scales under the other name of an expert's linear join the module that has the weight.
  for (auto& [name, entry] : modules) {
    if (has_weight(entry)) continue;
    const std::string other = other_expert_name(name);
    const auto target = other.empty() ? modules.end() : modules.find(other);
    if (target == modules.end() || !has_weight(target->second)) continue;
    for (size_t i = 0; i < kPartCount; ++i) {
      if (!entry.parts[i] || target->second.parts[i]) continue;
      target->second.parts[i] = entry.parts[i];
      entry.parts[i] = {};
    }
  }
  return modules;
}

using UsedNames = std::vector<std::string_view>;  // of tensors that linears were made from

// --- extra tensors ---

constexpr std::string_view kDraftReason =
    "belongs to a draft (multi-token prediction) layer, which the model itself does not need";

bool is_draft(std::string_view name, const JsonValue* config) {
  if (name.starts_with("mtp.") || name.find(".mtp.") != std::string_view::npos) return true;
  const auto n_layers = model_int(config, "num_hidden_layers");
  const auto n_draft = model_int(config, "num_nextn_predict_layers");
  const NamePosition position = name_position(name);
  if (!n_layers || !position.layer || *position.layer < *n_layers) return false;
  return n_draft.value_or(0) > 0;
}

// Layers beyond num_hidden_layers that hold a draft head's parts are one even where the config does
// not count them.
std::set<int64_t> draft_layers(const TensorMap& tensors, const JsonValue* config) {
  std::set<int64_t> layers;
  const auto n_layers = model_int(config, "num_hidden_layers");
  if (!n_layers) return layers;
  for (const auto& [name, ref] : tensors) {
    const bool part = name.find(".eh_proj.") != std::string::npos ||
                      name.find(".enorm.") != std::string::npos ||
                      name.find(".hnorm.") != std::string::npos ||
                      name.find(".shared_head.") != std::string::npos;
    if (!part) continue;
    const auto layer = name_position(name).layer;
    if (layer && *layer >= *n_layers) layers.insert(*layer);
  }
  return layers;
}

std::string_view leaked_buffer_reason(std::string_view name) {
  if (name.find("_quantizer.") != std::string_view::npos || name.ends_with("._amax") ||
      name.ends_with("._double_scale"))
    return "is a leaked internal buffer of the exporter's quantizer";
  if (name.ends_with("rotary_emb.inv_freq")) return "is recomputed from the config";
  if (name.ends_with(".k_bias") || name.ends_with(".v_bias") || name.ends_with(".q_scale") ||
      name.ends_with(".prob_scale"))
    return "is used only with a quantized KV cache";
  return {};
}

void note_harmless(const TensorRef& ref, std::string_view reason, std::string_view id,
                   std::string_view slug, Resolved& out, FindingSet& findings) {
  out.harmless[ref.info->name] = reason;
  findings.add(finding_at(std::string(id), std::string(slug), Severity::kNote, ref,
                          fmt::format("{} is ignored: it {}", quote_name(ref.info->name), reason),
                          ""));
}

void collect_harmless(const TensorMap& tensors, const JsonValue* config, const UsedNames& used,
                      Resolved& out, FindingSet& findings) {
  const std::set<int64_t> drafts = draft_layers(tensors, config);
  for (const auto& [name, ref] : tensors) {
    const auto layer = name_position(name).layer;
    if (is_draft(name, config) || (layer && drafts.count(*layer) != 0)) {
      note_harmless(ref, kDraftReason, "K2", "draft-layer", out, findings);
      continue;
    }
    if (std::binary_search(used.begin(), used.end(), name) || out.harmless.count(name) != 0)
      continue;
    if (const auto reason = leaked_buffer_reason(name); !reason.empty()) {
      note_harmless(ref, reason, "C16", "ignored-tensor", out, findings);
      continue;
    }
    // An activation scale that no linear has a place for (case C062). One that a linear needs and
    // lacks is an error of its own; an unknown weight scale is never harmless.
    const std::string_view last = split_name(name).last;
    const bool is_part = std::find(kPartNames.begin(), kPartNames.end(), last) != kPartNames.end();
    const bool of_input = last.find("input_scale") != std::string_view::npos ||
                          last.find("input_global_scale") != std::string_view::npos;
    if (!is_part && of_input && ref.info->n_elements() == 1)
      note_harmless(ref, "is an activation scale of no known name", "E1", "unknown-scale-name", out,
                    findings);
  }
}

// --- KV scales ---

void read_kv_scale(const TensorRef& ref, std::optional<float>& value, DialectContext& context) {
  const std::vector<float> values = read_scalars(ref, context);
  if (values.empty()) return;
  const float scale = *std::max_element(values.begin(), values.end());
  const bool sound = std::all_of(values.begin(), values.end(),
                                 [](float v) { return std::isfinite(v) && v >= 0x1p-126F; });
  if (sound) {
    value = scale;
    return;
  }
  Finding f = finding_at("K1", "bad-kv-scale", Severity::kError, ref,
                         fmt::format("{} is {}: expected a finite positive normal number",
                                     quote_name(ref.info->name), values[0]),
                         "remove the KV scales, or take the checkpoint from its source again");
  f.value = values[0];
  f.expected = "finite, at least 2^-126";
  context.findings.add(std::move(f));
}

// k_proj.k_scale, v_proj.v_scale (ModelOpt), k_scale, v_scale on the attention
// (compressed-tensors), and their older output_scale: attached to the attention, whatever the
// projections are fused into (case C059).
void collect_kv_scales(const TensorMap& tensors, DialectContext& context, Resolved& out) {
  for (const auto& [name, ref] : tensors) {
    const auto [module, last] = split_name(name);
    const auto [parent, projection] = split_name(module);
    const bool of_k = projection == "k_proj";
    const bool of_v = projection == "v_proj";
    bool is_k = false;
    std::string_view attention;
    if (last == "k_scale" || last == "v_scale") {
      is_k = last == "k_scale";
      attention = of_k || of_v ? parent : module;
    } else if (last == "output_scale" && (of_k || of_v)) {
      is_k = of_k;
      attention = parent;
    } else {
      continue;
    }
    KvScales& scales = out.kv_scales[std::string(attention)];
    (is_k ? scales.k : scales.v) = ref;
    read_kv_scale(ref, is_k ? scales.k_scale : scales.v_scale, context);
    out.harmless[std::string(name)] = "is a KV cache scale, which only a quantized cache uses";
  }
}

// --- linears ---

struct Reader {
  Outcome (*read)(const ModuleTensors&, DialectContext&, LinearRecord&);
  Dialect dialect;
};
constexpr Reader kReaders[] = {
    {read_compressed_tensors_linear, Dialect::kCompressedTensors},
    {read_modelopt_linear, Dialect::kModelOpt},
    {read_mxfp4_linear, Dialect::kMxfp4},
    {read_fp8_linear, Dialect::kFp8},
    {read_plain_linear, Dialect::kPlain},
};

// Scales that nothing owns: their weight is missing or has another name.
void report_orphans(const ModuleTensors& module, FindingSet& findings) {
  for (size_t i = 0; i < kPartCount; ++i) {
    const TensorRef& ref = module.parts[i];
    const auto part = static_cast<Part>(i);
    if (!ref || part == Part::kScale) continue;  // "scale" alone is also a plain parameter's name
    findings.add(finding_at("C15", "orphan-scale", Severity::kError, ref,
                            fmt::format("{} has no weight beside it: neither {}.weight nor "
                                        "{}.weight_packed is in the checkpoint",
                                        quote_name(ref.info->name), module.module, module.module),
                            "fetch or export the checkpoint again"));
  }
}

// Whether a dialect's linear has a place for a part.
bool takes(Dialect dialect, Part part, const ModuleTensors& module) {
  switch (dialect) {
    case Dialect::kModelOpt:
      return part == Part::kWeight || part == Part::kWeightScale || part == Part::kWeightScale2 ||
             part == Part::kInputScale || part == Part::kPreQuantScale;
    case Dialect::kCompressedTensors:
      return part == Part::kWeightPacked || part == Part::kWeightScale ||
             part == Part::kWeightGlobalScale || part == Part::kInputGlobalScale;
    case Dialect::kMxfp4:
      return part == (module[Part::kWeightPacked] ? Part::kWeightPacked : Part::kWeight) ||
             part == (module[Part::kWeightScale] ? Part::kWeightScale : Part::kScale);
    case Dialect::kFp8:
      return part == Part::kWeight || part == Part::kInputScale || part == Part::kPreQuantScale ||
             part == (module[Part::kWeightScaleInv] ? Part::kWeightScaleInv
                      : module[Part::kWeightScale]  ? Part::kWeightScale
                                                    : Part::kScale);
    default: return part == Part::kWeight;
  }
}

// A linear's tensors and their bytes. A scale too many could mean other numbers than those that are
// computed, so it is an error; an activation scale too many is only ignored.
bool take_parts(const ModuleTensors& module, Dialect dialect, FindingSet& findings, Resolved& out,
                LinearRecord& record) {
  size_t n_taken = 0;
  // What all experts of a stack share counts with none of them.
  const bool of_stack =
      module[Part::kWeight].expert >= 0 || module[Part::kWeightPacked].expert >= 0;
  for (size_t i = 0; i < kPartCount; ++i) {
    const TensorRef& ref = module.parts[i];
    const auto part = static_cast<Part>(i);
    if (!ref) continue;
    if (takes(dialect, part, module)) {
      SX_CHECK(n_taken < record.tensors.size(), "{} has too many parts", module.module);
      record.tensors[n_taken++] = ref.info;
      if (!of_stack || ref.expert >= 0) record.n_bytes += ref.info->n_bytes();
    } else if (part == Part::kInputScale || part == Part::kInputGlobalScale) {
      note_harmless(ref, "is an activation scale that this kind of weight does not take", "C16",
                    "ignored-tensor", out, findings);
    } else if (dialect != Dialect::kPlain || part != Part::kScale) {
      findings.add(finding_at(
          "C15", "conflicting-scale", Severity::kError, ref,
          fmt::format("{} is there, but the other tensors of {} already make a complete linear: "
                      "which of them are meant?",
                      quote_name(ref.info->name), quote_name(module.module)),
          "take the checkpoint from its source again"));
      return false;
    }
  }
  return true;
}

// Offers a module to the dialects; false unless one of them made a record of it.
bool read_module(const ModuleTensors& module, bool column_major, DialectContext& context,
                 Resolved& out, UsedNames& used) {
  for (const Reader& reader : kReaders) {
    LinearRecord record;
    record.module = module.module;
    const Outcome outcome = reader.read(module, context, record);
    if (outcome == Outcome::kNotMine) continue;
    if (outcome == Outcome::kBroken) return false;
    if (column_major && !finish_slice(record, context)) return false;
    if (!take_parts(module, reader.dialect, context.findings, out, record)) return false;
    for (const TensorInfo* info : record.tensors)
      if (info != nullptr) used.push_back(info->name);
    const bool deepseek = module[Part::kScale] && is_quantized(record.scheme);
    out.dialects.insert(deepseek ? Dialect::kDeepSeek : reader.dialect);
    out.linears.emplace_hint(out.linears.end(), module.module, std::move(record));
    return true;
  }
  return false;
}

void resolve_module(const ModuleTensors& module, DialectContext& context, Resolved& out,
                    UsedNames& used) {
  const TensorRef& weight =
      module[Part::kWeightPacked] ? module[Part::kWeightPacked] : module[Part::kWeight];
  if (!weight) {
    report_orphans(module, context.findings);
    return;
  }
  // Norms and convolutions are no linears; whoever needs them reads the tensors.
  if (weight.info->shape.size() == 2) read_module(module, false, context, out, used);
}

void resolve_stack(const ExpertStack& stack, const ExpertStacks& all, DialectContext& context,
                   Resolved& out, UsedNames& used) {
  if (!has_weight(stack.tensors)) {
    report_orphans(stack.tensors, context.findings);
    return;
  }
  // A record costs far more memory than the few bytes that a crafted stack needs for an expert.
  constexpr int64_t kMaxStackedExperts = int64_t{1} << 18;
  const auto so_far = static_cast<int64_t>(out.slices_of.size());
  const auto slices = slice_stack(stack, all, kMaxStackedExperts - so_far, context);
  if (!slices) return;
  for (const ModuleTensors& module : slices->experts) {
    if (out.linears.contains(module.module)) {
      const TensorRef& weight =
          module[Part::kWeight] ? module[Part::kWeight] : module[Part::kWeightPacked];
      context.findings.add(
          finding_at("C15", "duplicate-tensor", Severity::kError, weight,
                     fmt::format("{} is stored by itself as well, as {}", tensor_text(weight),
                                 quote_name(module.module)),
                     "remove the copy that does not belong, or fetch the checkpoint again"));
      continue;
    }
    if (!read_module(module, slices->column_major, context, out, used)) continue;
    const auto& taken = out.linears.find(module.module)->second.tensors;
    std::vector<TensorRef>& parts = out.slices_of[module.module];
    for (const TensorRef& ref : module.parts)
      if (ref && std::find(taken.begin(), taken.end(), ref.info) != taken.end())
        parts.push_back(ref);
  }
}

// attention_k_eq_v: layers without v_proj take all of K's tensors (case C026).
void share_k_as_v(const JsonValue* config, const TensorMap& tensors, Resolved& out) {
  if (!model_flag(config, "attention_k_eq_v")) return;
  std::vector<std::pair<std::string, std::string>> shared;
  for (const auto& [module, record] : out.linears) {
    const auto [parent, last] = split_name(module);
    if (last != "k_proj") continue;
    const std::string v = fmt::format("{}.v_proj", parent);
    const auto it = tensors.lower_bound(v + ".");
    if (it == tensors.end() || !it->first.starts_with(v + ".")) shared.emplace_back(module, v);
  }
  for (const auto& [k, v] : shared) {
    LinearRecord record = out.linears.find(k)->second;
    record.module = v;
    out.linears.emplace(v, std::move(record));
  }
}

}  // namespace

std::string_view part_name(Part part) { return kPartNames[static_cast<size_t>(part)]; }

Resolved resolve_tensors(const TensorMap& tensors, const QuantConfig& quant,
                         const JsonValue* config, FindingSet& findings) {
  Resolved out;
  DialectContext context{quant, config, findings, out.owned};
  UsedNames used;
  ExpertStacks stacks;
  // Each group makes room for its record.
  for (Modules modules = group_by_module(tensors, stacks); !modules.empty();)
    resolve_module(modules.extract(modules.begin()).mapped(), context, out, used);
  for (const auto& [name, stack] : stacks) resolve_stack(stack, stacks, context, out, used);
  std::sort(used.begin(), used.end());
  collect_kv_scales(tensors, context, out);
  collect_harmless(tensors, config, used, out, findings);
  share_k_as_v(config, tensors, out);
  return out;
}

}  // namespace sextant
