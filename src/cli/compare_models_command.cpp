// `sextant compare A B`: two models, or one under two policies, layer by layer on the same text.
// Status 1: the gate does not hold; 2: something is not finite.
#include <algorithm>

#include "base/clock.h"
#include "cli/compare_report.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/warm_up.h"
#include "forge/evaluate.h"

namespace sextant {
namespace {

constexpr int64_t kDefaultWindow = 512;

// A side's policies: those of --policy, then its own, which win. Scales are for a side that takes
// a4:warmup.
Result<CommonOptions> common_of(const CommonOptions& common, const std::vector<std::string>& own) {
  CommonOptions out = common;
  out.policies.insert(out.policies.end(), own.begin(), own.end());
  SX_TRY(read_policy_files(out));
  if (out.policies.empty()) out.policies = {"a16"};
  SX_ASSIGN(const Policy policy, parse_policy(out.policies));
  if (!takes_warmup(policy)) out.input_scales.clear();
  return out;
}

// What can be refused before a model is read.
Status check_compare_models(const CompareModelsCommand& options) {
  if (options.b.empty() && options.policy_a.empty() && options.policy_b.empty())
    return fail(Code::kUsage,
                "expected a second model, or --policy-a and --policy-b for one model under two "
                "policies, or --dump DIR");
  SX_TRY(check_scored_text(options.files));
  return check_gate_option("--max-kl", options.max_kl);
}

// A model that is loaded to run in stages, and the checkpoint causes are read from: beside the
// model's own, which gives pages back as it packs.
struct OpenedSide {
  LoadedModel loaded;
  std::unique_ptr<Checkpoint> checkpoint;
  ComparedModel compared() const { return {*loaded.model, *checkpoint}; }
};
Result<OpenedSide> open_side(const CommonOptions& common, const std::string& typed) {
  OpenedSide side;
  SX_ASSIGN(std::vector<Allowance> allowed, parse_allowances(common.allow));
  SX_ASSIGN(side.checkpoint, open_checkpoint(typed, std::move(allowed)));
  SX_TRY(check_output_file(common.output, *side.checkpoint));
  SX_ASSIGN(side.loaded, load_model(common, typed, true));
  return side;
}

}  // namespace

Result<int> run_compare_models(Context& context, const CompareModelsCommand& options) {
  SX_TRY(check_compare_models(options));
  SX_ASSIGN(const CommonOptions common_a, common_of(context.common, options.policy_a));
  SX_ASSIGN(const CommonOptions common_b, common_of(context.common, options.policy_b));
  if (!context.common.input_scales.empty() && common_a.input_scales.empty() &&
      common_b.input_scales.empty())
    return fail_at(at_field("--input-scales"), Code::kUsage,
                   "--input-scales is for a4:warmup, which neither side has: give it with "
                   "--policy-a or --policy-b");
  CompareSubject subject;
  subject.a = options.a;
  subject.b = options.b.empty() ? options.a : options.b;
  subject.policy_a = common_a.policies;
  subject.policy_b = common_b.policies;
  SX_ASSIGN(const OpenedSide a, open_side(common_a, subject.a));
  SX_ASSIGN(const OpenedSide b, open_side(common_b, subject.b));
  SX_ASSIGN(const std::vector<int32_t> ids, read_scored_text(options.files, a.loaded));
  subject.isa = a.loaded.model->ops().name;
  subject.n_ids = static_cast<int64_t>(ids.size());

  CompareModelsOptions wanted;
  wanted.window = options.window > 0
                      ? options.window
                      : std::min({kDefaultWindow, a.loaded.model->config().max_context,
                                  b.loaded.model->config().max_context});
  wanted.max_windows = options.max_windows;
  const PollSignals poll;
  wanted.cancel = &interrupt_flag();
  Progress progress("comparing", Progress::Unit::kTokens);
  wanted.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  const int64_t start_us = now_us();
  SX_ASSIGN(const CompareReport report,
            compare_models(a.compared(), b.compared(), ids, wanted, *a.loaded.pool));
  Progress::erase_shown();
  subject.seconds = seconds_since(start_us);
  const Status gate = check_eval_gates(report.scores, std::nullopt, options.max_kl);
  if (!gate) subject.gate = gate.error().text;
  if (context.common.json)
    context.out.document(compare_json(subject, report));
  else
    context.out.write(compare_text(subject, report, context.common.verbose));
  if (report.is_bad) return exit_status(Code::kModel);
  if (gate) return 0;
  say_line(fmt::format("sextant: error: {}", one_line(subject.gate)));
  return exit_status(Code::kGate);
}

}  // namespace sextant
