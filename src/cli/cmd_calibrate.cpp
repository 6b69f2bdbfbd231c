// `sextant calibrate`: real text through a model, and the input scales that follow, as the file of
// docs/calibration.md. The file is the result (-o, or standard output); what to know about it goes
// to standard error, or with -o and --json to standard output.
#include <algorithm>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/load_model.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/signals.h"
#include "cli/version.h"
#include "cli/warm_up.h"
#include "forge/calibrate.h"
#include "io/sha256.h"

namespace sextant {
namespace {

constexpr int64_t kCalibrationWindow = 512;
constexpr size_t kMostNamed = 8;  // experts on the screen; the file has all

struct CalibrateCommandOptions {
  std::string model;
  std::string text_file;
  std::string ids_file;
  int64_t window = 0;  // 0: kCalibrationWindow, or what the model takes where that is less
  int64_t max_windows = 0;
  std::optional<double> headroom;
};

Result<CalibrationInput> file_input(const CalibrateCommandOptions& options,
                                    const LoadedModel& loaded, int64_t window) {
  CalibrationInput input;
  const bool has_ids = !options.ids_file.empty();
  const std::string& file = has_ids ? options.ids_file : options.text_file;
  SX_ASSIGN(const std::string text, read_text(file));
  input.text.source = has_ids ? "ids" : "text";
  input.text.sha256 = text_sha256(text);
  std::vector<int32_t> ids;
  if (has_ids) {
    SX_ASSIGN(ids, parse_ids(text, file));
  } else {
    if (text.empty())
      return fail_at(at_file(file), Code::kInput, "{} is empty: expected a text to calibrate on",
                     file);
    SX_ASSIGN(const auto tokenizer, need_tokenizer(loaded));
    SX_ASSIGN(ids, tokenizer->encode(text));
  }
  input.sequences = calibration_windows(ids, window, options.max_windows);
  if (input.sequences.empty())
    return fail_at(at_file(file), Code::kInput,
                   "{} has {} token{}; a window to calibrate on has at least 2", file, ids.size(),
                   ids.size() == 1 ? "" : "s");
  return input;
}

Result<CalibrationInput> input_of(const CalibrateCommandOptions& options,
                                  const LoadedModel& loaded) {
  const int64_t most = loaded.model->config().max_context;
  const int64_t window = options.window > 0 ? options.window : std::min(kCalibrationWindow, most);
  if (window > most)
    return fail_at(at_field("--window"), Code::kUsage,
                   "a window of {} tokens, but the model takes {}; choose a smaller one", window,
                   most);
  if (options.text_file == "builtin") return builtin_input(loaded, window, options.max_windows);
  return file_input(options, loaded, window);
}

std::map<ScaleSource, int64_t> count_sources(const InputScales& scales) {
  std::map<ScaleSource, int64_t> counts;
  for (const auto source :
       {ScaleSource::kMeasured, ScaleSource::kStored, ScaleSource::kPeerMax, ScaleSource::kNone})
    counts[source] = 0;
  for (const auto& [module, entry] : scales.modules) ++counts[entry.source];
  return counts;
}

// Linears whose stored scale this text goes beyond.
int64_t count_exceeded(const InputScales& scales) {
  return std::count_if(scales.modules.begin(), scales.modules.end(), [](const auto& at) {
    const InputScaleEntry& entry = at.second;
    return entry.measured && entry.stored && entry.measured->amax > entry.stored->amax;
  });
}

int64_t count_far_off(const InputScales& scales) {
  return std::count_if(scales.modules.begin(), scales.modules.end(),
                       [](const auto& at) { return is_stored_far_off(at.second); });
}

std::string unreached_text(const InputScales& scales) {
  std::vector<std::string> named;
  for (const UnreachedExpert& expert : scales.unreached) {
    if (named.size() == kMostNamed) {
      named.push_back(
          fmt::format("{} more (the file has all)", scales.unreached.size() - kMostNamed));
      break;
    }
    named.push_back(fmt::format("layer {} expert {} ({})", expert.layer, expert.expert,
                                scale_source_name(expert.source)));
  }
  return fmt::format(
      "no token chose {} expert{}: {}. stored: the checkpoint's scale is kept; peer-max: the "
      "largest of the layer's other experts; none: there is none. More text reaches more experts",
      scales.unreached.size(), scales.unreached.size() == 1 ? "" : "s", join(named, ", "));
}

void say_summary(const InputScales& scales, bool has_quantized, double seconds) {
  const auto counts = count_sources(scales);
  std::vector<std::string> parts;
  for (const auto& [source, n] : counts)
    if (n > 0) parts.push_back(fmt::format("{} {}", format_count(n), scale_source_name(source)));
  note("{} linears: {}", format_count(static_cast<int64_t>(scales.modules.size())),
       join(parts, ", "));
  if (!has_quantized)
    note("the model has no quantized linear: the scales are for a checkpoint made from it");
  if (const int64_t n = count_exceeded(scales); n > 0)
    note("{} stored scale{} for less than this text reaches", n, n == 1 ? " is" : "s are");
  if (const int64_t n = count_far_off(scales); n > 0)
    warn(
        "{} stored scale{} for more than 4096 times what this text reaches, as if written in the "
        "other convention: not kept",
        n, n == 1 ? " is" : "s are");
  if (const int64_t n = counts.at(ScaleSource::kNone); n > 0)
    warn("{} linear{} no scale: nothing came by but zeros, and none is stored", n,
         n == 1 ? " has" : "s have");
  if (!scales.unreached.empty()) warn("{}", unreached_text(scales));
  note("{} tokens in {} sequences took {}, {:.0f} tokens/s", format_count(scales.text.n_tokens),
       scales.text.n_sequences, format_seconds(seconds),
       static_cast<double>(scales.text.n_tokens) / seconds);
}

Json summary_json(const InputScales& scales, const std::string& output, double seconds) {
  Json sources = Json::object();
  for (const auto& [source, n] : count_sources(scales))
    sources[std::string(scale_source_name(source))] = n;
  Json unreached = Json::array();
  for (const UnreachedExpert& expert : scales.unreached)
    unreached.push_back({{"layer", expert.layer},
                         {"expert", expert.expert},
                         {"source", scale_source_name(expert.source)}});
  return {{"output", output},
          {"model_hash", scales.model_hash},
          {"tokens", scales.text.n_tokens},
          {"sequences", scales.text.n_sequences},
          {"linears", scales.modules.size()},
          {"sources", std::move(sources)},
          {"exceeded", count_exceeded(scales)},
          {"unreached", std::move(unreached)},
          {"seconds", seconds}};
}

Result<InputScales> calibrated(const CalibrateCommandOptions& options, const LoadedModel& loaded,
                               const Checkpoint& checkpoint, CalibrationInput input) {
  const PollSignals poll;
  Progress progress("calibrating", Progress::Unit::kTokens);
  CalibrateOptions wanted;
  if (options.headroom) wanted.headroom = *options.headroom;
  wanted.cancel = &interrupt_flag();
  wanted.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  SX_ASSIGN(InputScales scales,
            calibrate(*loaded.model, checkpoint, input.sequences, wanted, *loaded.pool));
  Progress::erase_shown();
  input.text.n_tokens = scales.text.n_tokens;
  input.text.n_sequences = scales.text.n_sequences;
  scales.text = std::move(input.text);
  return scales;
}

// What can be refused before a model is read.
Status check_calibrate(const CalibrateCommandOptions& options) {
  if (options.text_file.empty() == options.ids_file.empty())
    return fail(Code::kUsage, "expected one of --text FILE and --ids FILE, found {}",
                options.text_file.empty() ? "neither" : "both");
  if (options.headroom && !(*options.headroom >= 1 && *options.headroom <= kMostHeadroom))
    return fail_at(at_field("--headroom"), Code::kUsage,
                   "--headroom: expected a number from 1 to {:g}, found {:g}", kMostHeadroom,
                   *options.headroom);
  return {};
}

Result<int> run_calibrate(Context& context, const CalibrateCommandOptions& options) {
  const CommonOptions& common = context.common;
  SX_TRY(check_calibrate(options));
  // Beside the model's own, which gives pages back as it packs.
  SX_ASSIGN(std::vector<Allowance> allowed, parse_allowances(common.allow));
  SX_ASSIGN(const auto checkpoint, open_checkpoint(options.model, std::move(allowed)));
  SX_TRY(check_output_file(common.output, *checkpoint));
  std::error_code error;
  for (const std::string& input : {options.text_file, options.ids_file})
    if (!input.empty() && std::filesystem::equivalent(input, common.output, error))
      return fail_at(at_file(input), Code::kUsage,
                     "{} is what would be read: give the output another name", common.output);
  SX_ASSIGN(const LoadedModel loaded, load_model(common, options.model));
  SX_ASSIGN(CalibrationInput input, input_of(options, loaded));
  const int64_t start_us = now_us();
  SX_ASSIGN(InputScales scales, calibrated(options, loaded, *checkpoint, std::move(input)));
  const double seconds = seconds_since(start_us);
  scales.version = SX_VERSION;
  scales.model = checkpoint->root().filename().string();
  scales.policies = loaded.policies;
  context.out.write(input_scales_text(scales));
  const bool has_file = !common.output.empty() && common.output != "-";
  if (has_file) SX_TRY(context.out.finish());  // before anything says that it is there
  if (common.json && has_file) {
    Output summary;
    summary.document(summary_json(scales, common.output, seconds));
    SX_TRY(summary.finish());
  }
  const auto& linears = checkpoint->linears();
  say_summary(scales,
              std::any_of(linears.begin(), linears.end(),
                          [](const auto& linear) { return is_quantized(linear.second.scheme); }),
              seconds);
  return 0;
}

}  // namespace

void add_calibrate(Program& program, Context& context) {
  auto options = std::make_shared<CalibrateCommandOptions>();
  Command command = add_command(
      program, context, "calibrate", "activation scales from real text",
      "  sextant calibrate MODEL --text builtin -o scales.json   44 prompts of many kinds\n"
      "  sextant calibrate MODEL --text book.txt -o scales.json  a text in windows of 512 tokens\n"
      "  sextant calibrate MODEL --ids ids.json --window 48 -o scales.json\n\n"
      "Each window, or builtin prompt, is a sequence of its own. Text is tokenized without BOS,\n"
      "builtin prompts go through the chat template. The larger of headroom times the measured\n"
      "amax and what the checkpoint stores is written. Status 2: an input is not finite.");
  command.option("MODEL", &options->model, "directory, snapshot, or name of a model",
                 {.required = true});
  command.option("--text", &options->text_file, "the text (- for standard input), or builtin",
                 {.value = "FILE"});
  command.option("--ids", &options->ids_file, "token ids in place of a text", {.value = "FILE"});
  command.option("--window", &options->window, "most tokens a sequence (default 512)",
                 {.value = "N", .range = IntRange{2, INT64_MAX}});
  command.option("--max-windows", &options->max_windows, "only the first so many (default: all)",
                 {.value = "N", .range = IntRange{1, INT64_MAX}});
  command.option("--headroom", &options->headroom,
                 "what measured amax are multiplied by, 1 to 1024 (default 8)", {.value = "H"});
  add_allow_option(command, context.common);
  command.run([&context, options] { return run_calibrate(context, *options); });
}

}  // namespace sextant
