#include "cli/load_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>

#include "base/clock.h"
#include "cli/format.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/warm_up.h"
#include "doctor/diagnosis.h"
#include "doctor/lock.h"
#include "engine/sampler.h"

namespace sextant {
namespace {

std::string finding_text(const Finding& finding) {
  std::string text = fmt::format("{} {}: {}", finding.id, finding.slug, finding.message);
  if (finding.count > 1) text += fmt::format(" ({} in all)", finding.count);
  if (!finding.remedy.empty()) text += "; " + finding.remedy;
  return text;
}

// Takes what generation_config.json wishes for one parameter; a wish that no sampler can follow is
// said and left out, since the user did not type it.
template <class T>
void read_default(const JsonValue& config, const char* name, T SamplingParams::*field,
                  std::optional<T>& wish) {
  const JsonValue* value = config.find(name);
  if (value == nullptr || value->is_null()) return;
  const bool is_whole = std::is_integral_v<T>;
  if (is_whole ? !value->is_int() || std::abs(value->as_double()) > INT32_MAX
               : !value->is_number()) {
    say_warning(fmt::format("generation_config.json: {}: expected {}, found {}; it is not used",
                            name, is_whole ? "a whole number" : "a number", value->kind_name()));
    return;
  }
  SamplingParams params;
  params.*field = static_cast<T>(value->as_double());
  if (const Status valid = check_sampling(params, INT32_MAX); !valid)
    say_warning(fmt::format("generation_config.json: {}; it is not used", valid.error().text));
  else
    wish = params.*field;
}

GenerationDefaults read_defaults(const JsonValue* config) {
  GenerationDefaults defaults;
  if (config == nullptr) return defaults;
  read_default(*config, "temperature", &SamplingParams::temperature, defaults.temperature);
  read_default(*config, "top_p", &SamplingParams::top_p, defaults.top_p);
  read_default(*config, "min_p", &SamplingParams::min_p, defaults.min_p);
  read_default(*config, "top_k", &SamplingParams::top_k, defaults.top_k);
  read_default(*config, "repetition_penalty", &SamplingParams::repetition_penalty,
               defaults.repetition_penalty);
  // What sampling parameters stand beside it, transformers takes the most likely token then.
  const JsonValue* sample = config->find("do_sample");
  if (sample != nullptr && sample->is_bool() && !sample->as_bool()) defaults.temperature = 0.0F;
  return defaults;
}

// Ids that the tokenizer can give and the embedding has no row for (docs/bad-inputs.md, 49).
Status check_vocabulary(const LoadedModel& loaded, std::span<const Allowance> allowed) {
  const int64_t n_rows = loaded.model->config().n_vocab;
  if (loaded.tokenizer == nullptr || loaded.tokenizer->n_vocab() <= n_rows) return {};
  const std::string path = (loaded.root / "tokenizer.json").string();
  const std::string text = fmt::format(
      "{} has ids up to {}, but the model has {} embedding rows: one of them is of another model, "
      "or tokens were added without rows for them [P9 vocabulary-beyond-embedding]",
      path, loaded.tokenizer->n_vocab() - 1, n_rows);
  if (!allows(allowed, "P9", "tokenizer.json"))
    return fail_at(at_file(path), Code::kModel, "{}", text);
  say_warning(text + " (allowed)");
  return {};
}

bool refuses_load(const Finding& finding) {
  // Errors about activation scales alone leave weights-only policies possible: they stay warnings.
  return finding.severity == Severity::kError && !finding.activation_only;
}

// The first of what refuses the load is its error, and with -v the others stand before it: each
// sentence once.
Status refuse_said_once(std::span<const Finding> findings) {
  const Status refused = refuse_errors(findings, false);
  if (refused || !talk_style().verbose) return refused;
  bool first = true;
  for (const Finding& finding : findings) {
    if (!refuses_load(finding)) continue;
    if (!first) say_line(fmt::format("  {}", one_line(finding_text(finding))));
    first = false;
  }
  return refused;
}

// Input scales that were inverted are sound numbers: no load sees what is wrong with them. Like
// other errors about activation scales they refuse policies that would use them.
Status refuse_inverted_inputs(const Checkpoint& checkpoint, std::span<const Finding> findings,
                              std::span<const std::string> specs) {
  std::vector<Finding> inverted;
  std::copy_if(findings.begin(), findings.end(), std::back_inserter(inverted),
               [](const Finding& f) { return f.id == "P10" && f.activation_only; });
  SX_ASSIGN(const Policy policy, parse_policy(specs));
  const auto& linears = checkpoint.linears();
  const bool uses = std::any_of(linears.begin(), linears.end(), [&](const auto& linear) {
    const auto& [module, record] = linear;
    return record.scheme == Scheme::kNvfp4 && record.input_scale &&
           policy.wants_input_scale(module, record);
  });
  return refuse_errors(inverted, uses);
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

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& typed,
                                                    std::vector<Allowance> allowed) {
  SX_ASSIGN(const std::filesystem::path path, find_model(typed));
  SX_ASSIGN(auto checkpoint, Checkpoint::open(path, {.limits = {}, .allow = std::move(allowed)}));
  SX_TRY(refuse_said_once(checkpoint->findings()));
  return checkpoint;
}

Status check_output_file(const std::string& page, const Checkpoint& checkpoint) {
  if (page.empty()) return {};
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint.root(), error))
    files.push_back(entry.path());
  for (const auto& shard : checkpoint.files()) files.push_back(shard->path());
  for (const std::filesystem::path& file : files)
    if (std::filesystem::equivalent(file, page, error))
      return fail_at(at_file(page), Code::kUsage,
                     "{} is a file of the model itself: give the output another name", page);
  return {};
}

Result<LoadedModel> load_model(const CommonOptions& common, const std::string& typed,
                               bool stages_on_demand) {
  const int64_t start_us = now_us();
  LoadedModel loaded;
  SX_ASSIGN(const std::vector<Allowance> allowed, parse_allowances(common.allow));
  SX_ASSIGN(auto checkpoint, open_checkpoint(typed, allowed));
  loaded.root = checkpoint->root();
  loaded.generation = read_defaults(checkpoint->generation_config());
  loaded.pool = make_pool(common);
  Progress progress("loading");
  progress.update(0, 0, typed);
  ModelOptions options;
  options.isa = common.isa;
  options.policies = common.policies;
  options.stages_on_demand = stages_on_demand;
  // Before the load, which may refuse what these explain; the model's findings begin with them.
  const size_t n_shown = checkpoint->findings().size();
  const Diagnosis quick = diagnose(*checkpoint, {.quick = true, .progress = {}}, *loaded.pool);
  options.distrusted_inputs = quick.distrusted_inputs;
  std::vector<Finding> warnings;
  std::remove_copy_if(quick.findings.begin(), quick.findings.end(), std::back_inserter(warnings),
                      refuses_load);
  show_findings(warnings);
  SX_TRY(refuse_said_once(quick.findings));
  SX_TRY(refuse_inverted_inputs(*checkpoint, quick.findings, options.policies));
  show_findings(check_lock(*checkpoint, LockDepth::kFingerprint, quick));
  std::error_code error;
  if (std::filesystem::exists(loaded.root / "tokenizer.json", error)) {
    SX_ASSIGN(loaded.tokenizer, Tokenizer::from_file(loaded.root));
  }
  SX_TRY(prepare_warm_up(common, *checkpoint, loaded, options));
  loaded.policies = options.policies;
  if (loaded.policies.empty()) loaded.policies = {"a16"};
  SX_ASSIGN(loaded.model, Model::load(std::move(checkpoint), options, *loaded.pool));
  SX_TRY(check_vocabulary(loaded, allowed));
  loaded.load_s = seconds_since(start_us);
  Progress::erase_shown();
  show_findings(std::span(loaded.model->findings()).subspan(n_shown));
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

Status check_scored_text(const ScoredText& files) {
  if (files.text_file.empty() == files.ids_file.empty())
    return fail(Code::kUsage, "expected one of --text FILE and --ids FILE, found {}",
                files.text_file.empty() ? "neither" : "both");
  return {};
}

Result<std::vector<int32_t>> read_scored_text(const ScoredText& files, const LoadedModel& loaded) {
  if (!files.ids_file.empty()) return read_ids(files.ids_file);
  SX_ASSIGN(const auto tokenizer, need_tokenizer(loaded));
  SX_ASSIGN(const std::string text, read_text(files.text_file));
  return tokenizer->encode(text);
}

}  // namespace sextant
