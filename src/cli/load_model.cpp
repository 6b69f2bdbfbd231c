#include "cli/load_model.h"

#include "base/clock.h"
#include "cli/format.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace sextant {
namespace {

std::string finding_text(const Finding& finding) {
  std::string text = fmt::format("{} {}: {}", finding.id, finding.slug, finding.message);
  if (finding.count > 1) text += fmt::format(" ({} in all)", finding.count);
  if (!finding.remedy.empty()) text += "; " + finding.remedy;
  return text;
}

GenerationDefaults read_defaults(const JsonValue* config) {
  GenerationDefaults defaults;
  if (config == nullptr) return defaults;
  const auto number = [config](std::string_view name) -> std::optional<float> {
    const JsonValue* value = config->find(name);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return static_cast<float>(value->as_double());
  };
  defaults.temperature = number("temperature");
  defaults.top_p = number("top_p");
  defaults.min_p = number("min_p");
  defaults.repetition_penalty = number("repetition_penalty");
  const JsonValue* top_k = config->find("top_k");
  if (top_k != nullptr && top_k->is_int() && top_k->as_int() >= 0 && top_k->as_int() < INT32_MAX)
    defaults.top_k = static_cast<int32_t>(top_k->as_int());
  return defaults;
}

}  // namespace

void show_findings(std::span<const Finding> findings) {
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kNote) {
      if (talk_style().verbose) say_note(finding_text(finding));
    } else {
      say_warning(finding_text(finding));
    }
  }
}

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& typed) {
  SX_ASSIGN(const std::filesystem::path path, find_model(typed));
  SX_ASSIGN(auto checkpoint, Checkpoint::open(path));
  // Errors about activation scales alone leave weights-only policies possible: they stay warnings.
  std::vector<const Finding*> errors;
  for (const Finding& finding : checkpoint->findings())
    if (finding.severity == Severity::kError && !finding.activation_only)
      errors.push_back(&finding);
  if (errors.size() > 1)
    for (const Finding* finding : errors)
      say_line(fmt::format("  {}", one_line(finding_text(*finding))));
  SX_TRY(refuse_errors(checkpoint->findings(), false));
  return checkpoint;
}

Result<LoadedModel> load_model(const CommonOptions& common, const std::string& typed) {
  const int64_t start_us = now_us();
  LoadedModel loaded;
  SX_ASSIGN(auto checkpoint, open_checkpoint(typed));
  loaded.root = checkpoint->root();
  loaded.generation = read_defaults(checkpoint->generation_config());
  loaded.pool = make_pool(common);
  Progress progress("loading");
  progress.update(0, 0, typed);
  ModelOptions options;
  options.isa = common.isa;
  options.policies = common.policies;
  SX_ASSIGN(loaded.model, Model::load(std::move(checkpoint), options, *loaded.pool));
  std::error_code error;
  if (std::filesystem::exists(loaded.root / "tokenizer.json", error)) {
    SX_ASSIGN(loaded.tokenizer, Tokenizer::from_file(loaded.root));
  }
  loaded.load_s = seconds_since(start_us);
  Progress::erase_shown();
  show_findings(loaded.model->findings());
  return loaded;
}

Result<std::shared_ptr<const Tokenizer>> need_tokenizer(const LoadedModel& loaded) {
  if (loaded.tokenizer == nullptr)
    return fail_at(at_file(loaded.root.string()), Code::kInput,
                   "{} has no tokenizer.json, so text cannot become tokens: put the model's there, "
                   "or give token ids with --ids FILE",
                   loaded.root.string());
  return loaded.tokenizer;
}

}  // namespace sextant
