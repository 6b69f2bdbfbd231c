#include "cli/warm_up.h"

#include <algorithm>

#include "base/clock.h"
#include "checkpoint/fingerprint.h"
#include "cli/format.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "forge/calibrate.h"
#include "io/sha256.h"
#include "model/linear_plan.h"

namespace sextant {
namespace {

using ScaleMap = std::map<std::string, float, std::less<>>;

constexpr int64_t kWarmupWindow = 512;

ScaleMap multipliers_of(const InputScales& scales) {
  ScaleMap multipliers;
  for (const auto& [module, entry] : scales.modules)
    if (entry.g) multipliers.emplace(module, *entry.g);
  return multipliers;
}

// Of scales that are of this checkpoint and lack none of its 4-bit linears.
Result<ScaleMap> checked_multipliers(const InputScales& scales, const std::filesystem::path& path,
                                     const Checkpoint& checkpoint, const std::string& hash) {
  SX_ASSIGN(const BoundModel bound, bind_model(checkpoint));
  std::vector<std::string> modules;
  for (const BoundLinear& linear : bound.linears)
    if (has_codes(linear.record->scheme)) modules.push_back(linear.module);
  SX_TRY(check_input_scales(scales, path.string(), hash, modules));
  return multipliers_of(scales);
}

// Measured before, on the same ids, under the same policies, with the same kernels as now.
std::optional<ScaleMap> kept_scales(const std::filesystem::path& path, const Checkpoint& checkpoint,
                                    const std::string& hash, const CalibrationInput& input,
                                    const ModelOptions& options) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const Result<InputScales> scales = read_input_scales(path);
  const Result<const Ops*> ops = select_ops(options.isa);
  if (!scales || !ops || scales->text.sha256 != input.text.sha256 ||
      scales->policies != options.policies || scales->isa != (*ops)->name)
    return std::nullopt;
  const Result<ScaleMap> multipliers = checked_multipliers(*scales, path, checkpoint, hash);
  if (!multipliers) return std::nullopt;
  say_note(fmt::format("activation scales that were measured before: {}", path.string()));
  return *multipliers;
}

// A measurement that cannot be kept is used all the same.
void keep(const std::filesystem::path& path, const InputScales& scales) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (const Status written = write_input_scales(path, scales); !written)
    say_warning(
        fmt::format("the scales that were measured are not kept: {}", written.error().text));
}

struct Measurement {
  const Checkpoint& checkpoint;
  const LoadedModel& loaded;
  std::vector<std::string> policies;
  std::filesystem::path path;
  CalibrationInput input;

  Result<ScaleMap> operator()(const Model& model) const {
    const int64_t start_us = now_us();
    const PollSignals poll;
    Progress progress("warming up", Progress::Unit::kTokens);
    CalibrateOptions wanted;
    wanted.cancel = &interrupt_flag();
    wanted.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
    SX_ASSIGN(InputScales scales,
              calibrate(model, checkpoint, input.sequences, wanted, *loaded.pool));
    Progress::erase_shown();
    scales.version = SX_VERSION;
    scales.model = checkpoint.root().filename().string();
    scales.policies = policies;
    const CalibrationText counts = scales.text;
    scales.text = input.text;
    scales.text.n_tokens = counts.n_tokens;
    scales.text.n_sequences = counts.n_sequences;
    keep(path, scales);
    say_note(fmt::format("activation scales measured on {} tokens of {} prompts in {}",
                         counts.n_tokens, counts.n_sequences,
                         format_seconds(seconds_since(start_us))));
    if (!scales.unreached.empty())
      say_warning(fmt::format(
          "no token chose {} experts, the first expert {} of layer {}: they take the checkpoint's "
          "scale, or the largest of their layer; sextant calibrate names them all",
          scales.unreached.size(), scales.unreached.front().expert,
          scales.unreached.front().layer));
    return multipliers_of(scales);
  }
};

}  // namespace

void add_warmup_options(Command command, CommonOptions& common, bool whole_model) {
  command.option("--input-scales", &common.input_scales,
                 "activation scales of sextant calibrate, for policy a4:warmup", {.value = "FILE"});
  if (whole_model)
    command.flag("--warmup", &common.warmup,
                 "measure them on built-in prompts first (without a policy: a4:warmup)");
}

bool takes_warmup(const Policy& policy) {
  return std::any_of(policy.rules.begin(), policy.rules.end(),
                     [](const PolicyRule& rule) { return rule.act == Act::kA4Warmup; });
}

std::string text_sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

Result<CalibrationInput> builtin_input(const LoadedModel& loaded, int64_t window, int64_t most) {
  SX_ASSIGN(const auto tokenizer, need_tokenizer(loaded));
  SX_ASSIGN(const std::optional<ChatPrompt> chat, ChatPrompt::of_model(loaded.root));
  CalibrationInput input;
  std::string all;
  for (const std::string_view prompt : builtin_prompts()) {
    if (most > 0 && static_cast<int64_t>(input.sequences.size()) == most) break;
    SX_ASSIGN(std::vector<int32_t> ids, encode_message(*tokenizer, chat, std::string(prompt), {}));
    ids.resize(std::min(ids.size(), static_cast<size_t>(window)));
    input.sequences.push_back(std::move(ids));
    // The ids, not the prompts: another chat template or tokenizer makes others.
    for (const int32_t id : input.sequences.back()) all += fmt::format("{} ", id);
    all += '\n';
  }
  input.text.source = "builtin";
  input.text.sha256 = text_sha256(all);
  return input;
}

Status prepare_warm_up(const CommonOptions& common, const Checkpoint& checkpoint,
                       const LoadedModel& loaded, ModelOptions& options) {
  if (common.input_scales.empty() && !common.warmup) return {};
  if (!common.input_scales.empty() && common.warmup)
    return fail_at(at_field("--warmup"), Code::kUsage,
                   "--warmup measures scales and --input-scales gives them: take one of the two");
  if (options.policies.empty()) options.policies = {"a4:warmup"};
  SX_ASSIGN(const Policy policy, parse_policy(options.policies));
  if (!takes_warmup(policy)) {
    return fail_at(at_field(common.warmup ? "--warmup" : "--input-scales"), Code::kUsage,
                   "no policy is a4:warmup, and so no measured activation scale would be used: add "
                   "--policy a4:warmup, or leave {} away",
                   common.warmup ? "--warmup" : "--input-scales");
  }
  SX_ASSIGN(const std::string hash, model_hash(checkpoint));
  if (!common.input_scales.empty()) {
    SX_ASSIGN(const InputScales scales, read_input_scales(common.input_scales));
    SX_ASSIGN(options.warmup_scales,
              checked_multipliers(scales, common.input_scales, checkpoint, hash));
    return {};
  }
  SX_ASSIGN(const BoundModel bound, bind_model(checkpoint));
  SX_ASSIGN(CalibrationInput input,
            builtin_input(loaded, std::min(kWarmupWindow, bound.config.max_context), 0));
  std::string name = hash;
  std::replace(name.begin(), name.end(), ':', '-');
  const std::filesystem::path path =
      models_home().parent_path() / "warmup" / fmt::format("{}.json", name);
  if (auto kept = kept_scales(path, checkpoint, hash, input, options)) {
    options.warmup_scales = std::move(*kept);
    return {};
  }
  options.warm_up = Measurement{checkpoint, loaded, options.policies, path, std::move(input)};
  return {};
}

}  // namespace sextant
