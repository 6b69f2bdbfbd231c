// Implements calibrate.h.
#include "forge/calibrate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/finding.h"
#include "checkpoint/fingerprint.h"
#include "forge/input_statistics.h"
#include "forge/run_sequence.h"
#include "model/linear_plan.h"
#include "quant/fp8.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

// Tokens a step: logits of all of them are wanted, since the head is a linear like others.
constexpr int64_t kStepTokens = 128;

Status check_calibration(const ModelConfig& config, std::span<const std::vector<int32_t>> sequences,
                         double headroom) {
  if (!(headroom >= 1 && headroom <= kMostHeadroom))
    return fail(Code::kUsage, "a headroom of {:g}; expected a number from 1 to {:g}", headroom,
                kMostHeadroom);
  if (sequences.empty())
    return fail(Code::kInput, "there is nothing to calibrate on: expected a sequence of tokens");
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto n = static_cast<int64_t>(sequences[i].size());
    if (n < 1 || n > config.max_context)
      return fail(Code::kInput, "sequence {} has {} tokens; expected 1 to {}", i, n,
                  config.max_context);
    SX_TRY(check_ids(config, sequences[i], fmt::format("sequence {}", i)));
  }
  return {};
}

std::optional<StoredInputScale> stored_scale(const LinearRecord& record) {
  if (!record.input_scale || !is_usable_multiplier(*record.input_scale)) return std::nullopt;
  const double g = *record.input_scale;
  if (record.scheme == Scheme::kNvfp4)
    return StoredInputScale{*record.input_scale, g * kNvfp4Range};
  if (is_fp8(record.scheme)) return StoredInputScale{*record.input_scale, g * kE4m3Max};
  return std::nullopt;
}

MeasuredInput measured_input(const InputStatistics::Module& module) {
  const TapStatistics& s = module.statistics;
  const double amax = s.amax;
  const auto percentile = [&](double share) {
    return std::min(module.histogram.percentile(share), amax);
  };
  return {s.n_rows, amax, s.rms(), percentile(0.99), percentile(0.999), percentile(0.9999)};
}

Error bad_input(SequenceRunner& runner, std::span<const int32_t> ids,
                std::span<const int64_t> steps, size_t sequence, const std::string& module) {
  const FirstBadTap bad = runner.first_bad(ids, steps);
  Error error;
  error.code = Code::kModel;
  error.text = fmt::format(
      "the input of {} is not finite in sequence {}; first bad tensor: {}; sextant trace names "
      "its cause",
      module, sequence, bad.found() ? bad.describe() : "none (not reproduced)");
  error.where.tensor = bad.found() ? bad.found()->module : module;
  return error;
}

Status run_sequences(const Model& model, std::span<const std::vector<int32_t>> sequences,
                     const CalibrateOptions& options, InputStatistics& statistics,
                     ThreadPool& pool) {
  int64_t longest = 0;
  int64_t total = 0;
  for (const auto& ids : sequences) {
    longest = std::max(longest, static_cast<int64_t>(ids.size()));
    total += static_cast<int64_t>(ids.size());
  }
  const int64_t chunk = is_one_step(model.config()) ? longest : std::min(longest, kStepTokens);
  SequenceRunner runner(model, longest, chunk, SequenceRunner::Logits::kAll, pool);
  int64_t done = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<int32_t>& ids = sequences[i];
    const std::vector<int64_t> steps = even_steps(static_cast<int64_t>(ids.size()), chunk);
    SequenceHooks hooks;
    hooks.probe = &statistics;
    hooks.cancel = options.cancel;
    hooks.after = [&](int64_t, int64_t n, Mat<const float>) -> Status {
      if (!statistics.bad_module().empty())
        return tl::unexpected(bad_input(runner, ids, steps, i, statistics.bad_module()));
      done += n;
      if (options.progress) options.progress(done, total);
      return {};
    };
    SX_TRY(runner.run(ids, steps, hooks));
  }
  return {};
}

// "model.layers.1.mlp.experts.*.down_proj": what the experts of a layer have in common.
std::string peers_of(std::string_view module, int64_t expert) {
  const std::string part = fmt::format(".experts.{}.", expert);
  const size_t at = module.find(part);
  if (at == module.npos) return std::string(module);
  return fmt::format("{}.experts.*.{}", module.substr(0, at), module.substr(at + part.size()));
}

void choose_own(InputScaleEntry& entry, double headroom) {
  entry.g.reset();
  entry.source = ScaleSource::kNone;
  const double measured = entry.measured ? headroom * entry.measured->amax : 0;
  const double stored = entry.stored && !is_stored_far_off(entry) ? entry.stored->amax : 0;
  const double g = std::max(measured, stored) / double{kNvfp4Range};
  if (!is_usable_multiplier(g)) return;
  entry.g = static_cast<float>(g);
  entry.source = measured > stored ? ScaleSource::kMeasured : ScaleSource::kStored;
}

}  // namespace

bool is_stored_far_off(const InputScaleEntry& entry) {
  return entry.measured && entry.stored && entry.measured->amax > 0 &&
         entry.measured->amax < kLowestRatio * entry.stored->amax;
}

void choose_multipliers(InputScales& scales) {
  std::map<std::string, float> largest;  // by peers
  for (auto& [module, entry] : scales.modules) {
    choose_own(entry, scales.headroom);
    if (const auto expert = name_position(module).expert; expert && entry.g) {
      float& most = largest[peers_of(module, *expert)];
      most = std::max(most, *entry.g);
    }
  }
  std::map<std::pair<int64_t, int64_t>, ScaleSource> unreached;
  for (auto& [module, entry] : scales.modules) {
    const NamePosition at = name_position(module);
    if (!at.layer || !at.expert) continue;
    const auto layer = scales.expert_tokens.find(*at.layer);
    if (layer == scales.expert_tokens.end() ||
        *at.expert >= static_cast<int64_t>(layer->second.size()) ||
        layer->second[static_cast<size_t>(*at.expert)] > 0)
      continue;
    const auto peers = largest.find(peers_of(module, *at.expert));
    if (!entry.g && peers != largest.end()) {
      entry.g = peers->second;
      entry.source = ScaleSource::kPeerMax;
    }
    ScaleSource& weakest = unreached[{*at.layer, *at.expert}];
    weakest = std::max(weakest, entry.source);  // in the order of the enum
  }
  scales.unreached.clear();
  for (const auto& [at, source] : unreached)
    scales.unreached.push_back({at.first, at.second, source});
}

std::vector<std::vector<int32_t>> calibration_windows(std::span<const int32_t> ids, int64_t window,
                                                      int64_t max_windows) {
  std::vector<std::vector<int32_t>> out;
  size_t begin = 0;
  for (const int64_t n : even_steps(static_cast<int64_t>(ids.size()), window)) {
    if (n < 2 || (max_windows > 0 && static_cast<int64_t>(out.size()) == max_windows)) break;
    const auto at = ids.subspan(begin, static_cast<size_t>(n));
    out.emplace_back(at.begin(), at.end());
    begin += at.size();
  }
  return out;
}

Result<InputScales> calibrate(const Model& model, const Checkpoint& checkpoint,
                              std::span<const std::vector<int32_t>> sequences,
                              const CalibrateOptions& options, ThreadPool& pool) {
  SX_TRY(check_calibration(model.config(), sequences, options.headroom));
  InputScales scales;
  SX_ASSIGN(scales.model_hash, model_hash(checkpoint));
  SX_ASSIGN(const BoundModel bound, bind_model(checkpoint));
  InputStatistics statistics(pool);
  SX_TRY(run_sequences(model, sequences, options, statistics, pool));
  scales.isa = model.ops().name;
  scales.headroom = options.headroom;
  scales.text.n_sequences = static_cast<int64_t>(sequences.size());
  for (const auto& ids : sequences) scales.text.n_tokens += static_cast<int64_t>(ids.size());
  for (const BoundLinear& linear : bound.linears) {
    InputScaleEntry& entry = scales.modules[linear.module];
    const auto seen = statistics.modules().find(linear.module);
    if (seen != statistics.modules().end()) entry.measured = measured_input(seen->second);
    entry.stored = stored_scale(*linear.record);
  }
  scales.expert_tokens = statistics.expert_tokens();
  for (auto& [layer, tokens] : scales.expert_tokens)
    tokens.resize(static_cast<size_t>(model.config().n_experts));
  choose_multipliers(scales);
  return scales;
}

}  // namespace sextant
