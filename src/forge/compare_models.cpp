// Implements compare_models.h.
#include "forge/compare_models.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/checked.h"
#include "forge/evaluate.h"
#include "forge/run_sequence.h"
#include "model/first_bad_tap.h"
#include "model/kv_cache.h"
#include "model/step_buffers.h"
#include "quant/ratio_name.h"

namespace sextant {
namespace {

constexpr int64_t kStepRows = 128;  // rows of a step: results do not depend on it, memory does

Status check_shapes(const ModelConfig& a, const ModelConfig& b) {
  struct Field {
    const char* name;
    int64_t a, b;
  };
  const Field fields[] = {
      {"num_hidden_layers", a.n_layers, b.n_layers},
      {"hidden_size", a.d_model, b.d_model},
      {"vocab_size", a.n_vocab, b.n_vocab},
      {"num_attention_heads", a.n_heads, b.n_heads},
      {"num_key_value_heads", a.n_kv_heads, b.n_kv_heads},
      {"head_dim", a.head_dim, b.head_dim},
      {"intermediate_size", a.d_ff, b.d_ff},
      {"num_experts", a.n_experts, b.n_experts},
      {"num_experts_per_tok", a.top_k, b.top_k},
      {"moe_intermediate_size", a.d_ff_expert, b.d_ff_expert},
  };
  for (const Field& field : fields)
    if (field.a != field.b)
      return fail_at({{}, {}, field.name, {}}, Code::kInput,
                     "A and B have {} and {} as {} of config.json: models are compared layer by "
                     "layer, so their shapes must be equal",
                     field.a, field.b, field.name);
  if (a.sparse != b.sparse)
    return fail(Code::kInput,
                "A and B have experts in different layers: models are compared layer by layer, so "
                "their shapes must be equal");
  return {};
}

struct Window {
  int64_t begin = 0;
  int64_t n = 0;
};

std::vector<Window> windows_of(int64_t n_ids, const CompareModelsOptions& options) {
  std::vector<Window> windows;
  for (int64_t begin = 0; begin + 1 < n_ids; begin += options.window) {
    if (options.max_windows > 0 && static_cast<int64_t>(windows.size()) == options.max_windows)
      break;
    windows.push_back({begin, std::min(options.window, n_ids - begin)});
  }
  return windows;
}

// One stage of one model, with keys and values of that layer for two streams: A's and its own.
class LoadedStage {
 public:
  static Result<LoadedStage> load(const Model& model, int64_t stage, int64_t window,
                                  ThreadPool& pool) {
    LoadedStage out;
    SX_ASSIGN(out.stage_, model.load_stage(stage, pool));
    KvLayout layout = model.kv_layout();
    layout.n_layers = 1;
    layout.first_layer = std::clamp<int64_t>(stage - 1, 0, model.config().n_layers - 1);
    const int64_t n_pages = ceil_div(window, layout.page_tokens);
    out.pages_ = std::make_unique<KvPool>(layout, 2 * n_pages);
    out.given_ = std::make_unique<KvSequence>(*out.pages_);
    out.alone_ = std::make_unique<KvSequence>(*out.pages_);
    SX_CHECK(out.given_->reserve(window) && out.alone_->reserve(window), "no pages for {} tokens",
             window);
    return out;
  }

  int64_t weight_bytes() const { return stage_->weight_bytes(); }
  const Stage& stage() const { return *stage_; }
  KvSequence* given() { return given_.get(); }
  KvSequence* alone() { return alone_.get(); }

 private:
  LoadedStage() = default;
  std::unique_ptr<const Stage> stage_;
  std::unique_ptr<KvPool> pages_;
  std::unique_ptr<KvSequence> given_, alone_;
};

class ModelsComparison {
 public:
  ModelsComparison(const ComparedModel& a, const ComparedModel& b, std::span<const int32_t> ids,
                   const CompareModelsOptions& options, ThreadPool& pool)
      : a_(a),
        b_(b),
        ids_(ids),
        options_(options),
        pool_(pool),
        windows_(windows_of(static_cast<int64_t>(ids.size()), options)),
        n_tokens_(windows_.back().begin + windows_.back().n),
        n_stages_(a.model.n_stages()),
        chunk_(std::min(options.window, n_tokens_)),
        sums_(options.window, true, options.n_worst) {
    if (!is_one_step(a.model.config()) && !is_one_step(b.model.config()))
      chunk_ = std::min(chunk_, kStepRows);
    const int64_t d_model = a.model.config().d_model;
    stream_a_.resize(static_cast<size_t>(n_tokens_ * d_model));
    stream_b_.resize(stream_a_.size());
    given_.resize(static_cast<size_t>(chunk_ * d_model));
    const auto n_logits = static_cast<size_t>(chunk_ * a.model.config().n_vocab);
    logits_a_.resize(n_logits);
    logits_b_.resize(n_logits);
    buffers_a_ = a.model.make_buffers(chunk_, chunk_);
    buffers_b_ = b.model.make_buffers(chunk_, chunk_);
  }

  Result<CompareReport> run() {
    for (int64_t stage = 0; stage < n_stages_; ++stage) SX_TRY(run_stage(stage));
    report_.scores = sums_.finish();
    return std::move(report_);
  }

 private:
  bool is_head(int64_t stage) const { return stage == n_stages_ - 1; }

  Status run_stage(int64_t number) {
    const int64_t longest = std::min(options_.window, n_tokens_);
    SX_ASSIGN(LoadedStage a, LoadedStage::load(a_.model, number, longest, pool_));
    SX_ASSIGN(LoadedStage b, LoadedStage::load(b_.model, number, longest, pool_));
    StageReport report;
    report.stage = number;
    report.weight_bytes_a = a.weight_bytes();
    report.weight_bytes_b = b.weight_bytes();
    StageComparison comparison(pool_);
    for (const Window& window : windows_) {
      for (int64_t begin = 0; begin < window.n; begin += chunk_) {
        if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed))
          return fail(Code::kCancelled, "interrupted");
        const int64_t rows = std::min(chunk_, window.n - begin);
        run_chunk(a, b, window, begin, rows, comparison, report);
        if (options_.progress)
          options_.progress(number * n_tokens_ + window.begin + begin + rows,
                            n_stages_ * n_tokens_);
      }
      if (is_head(number)) sums_.end_window(window.n);
    }
    finish_stage(comparison, std::move(report));
    return {};
  }

  void run_chunk(LoadedStage& a, LoadedStage& b, const Window& window, int64_t begin, int64_t rows,
                 StageComparison& comparison, StageReport& report) {
    const int64_t first = window.begin + begin;
    const auto ids = ids_.subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
    const int64_t n_logits = is_head(report.stage) ? rows : 0;
    const auto seq = [&](KvSequence* kv) { return StepSeq{kv, ids, begin, n_logits}; };
    const Mat<float> stream_a = stream(stream_a_, first, rows);
    const Mat<float> stream_b = stream(stream_b_, first, rows);
    const Mat<float> given = stream(given_, 0, rows);
    const int64_t n_vocab = a_.model.config().n_vocab;
    const Mat<float> logits_a(logits_a_.data(), n_logits, n_vocab);
    const Mat<float> logits_b(logits_b_.data(), n_logits, n_vocab);

    std::copy(stream_a.data, stream_a.data + rows * stream_a.cols, given.data);
    comparison.begin_step(first);
    const StepSeq of_a = seq(a.given());
    const StepSeq of_b = seq(b.given());
    const StepSeq of_b_free = seq(b.alone());
    a.stage().run({&of_a, 1}, *buffers_a_, stream_a, logits_a, &comparison.recorder(), pool_);
    b.stage().run({&of_b, 1}, *buffers_b_, given, logits_b, &comparison.comparer(), pool_);
    b.stage().run({&of_b_free, 1}, *buffers_b_, stream_b, logits_b, &bad_in_b_, pool_);
    note_bad_stream(first, rows);
    if (n_logits == 0) {
      report.drift.add(compare_rows(stream_a, stream_b, pool_));
      return;
    }
    report.drift.add(compare_rows(logits_a, logits_b, pool_));
    // The last row of a window predicts what is not in it.
    const int64_t n_scored = std::min(rows, window.n - 1 - begin);
    const auto next = ids_.subspan(static_cast<size_t>(first + 1), static_cast<size_t>(n_scored));
    int64_t position = first;
    for (const RowScore& score : score_rows(logits_b, logits_a, next, pool_)) {
      ++position;
      sums_.add(score, position, ids_[static_cast<size_t>(position)]);
    }
  }

  // Only the first: behind it the stream is poisoned.
  void note_bad_stream(int64_t first, int64_t rows) {
    const auto& found = bad_in_b_.found();
    if (!found || bad_stream_) return;
    ComparedTap tap;
    tap.name = found->name;
    tap.layer = found->layer;
    tap.module = found->module;
    tap.expert = name_position(found->module).expert;
    tap.n_rows = found->n_rows;
    tap.stands_out = true;
    tap.first_bad = TapElement{first + row_of_step(*found, rows).value_or(0), found->row,
                               found->col, 0, found->value};
    bad_stream_ = std::move(tap);
  }

  Mat<float> stream(std::vector<float>& values, int64_t first, int64_t rows) const {
    const int64_t d_model = a_.model.config().d_model;
    return {values.data() + first * d_model, rows, d_model};
  }

  void finish_stage(StageComparison& comparison, StageReport report) {
    report.same_experts = comparison.same_experts();
    report.taps = comparison.take();
    judge_taps(a_, b_, report.same_experts.value_or(1), report.taps, pool_);
    const ComparedTap* worst = nullptr;  // the first, what is not finite before what is
    for (const ComparedTap& tap : report.taps) {
      report_.is_bad = report_.is_bad || tap.difference.n_bad_a + tap.difference.n_bad_b > 0;
      if (!report_.first_difference && tap.difference.n_different > 0)
        report_.first_difference = explain(tap);
      const bool is_first = worst == nullptr || (tap.first_bad && !worst->first_bad);
      if (tap.stands_out && is_first) worst = &tap;
    }
    if (worst != nullptr) report.divergence = explain(*worst);
    if (bad_stream_ && !report_.is_bad) {
      report_.bad_stream = explain(*bad_stream_);
      report_.bad_stream->in_own_stream = true;
    }
    report_.is_bad =
        report_.is_bad || bad_stream_ || report.drift.n_bad_a + report.drift.n_bad_b > 0;
    report_.stages.push_back(std::move(report));
  }

  Divergence explain(const ComparedTap& tap) const {
    Divergence out;
    out.tap = tap;
    out.cause = find_difference_cause(a_, b_, tap, ids_, pool_);
    std::optional<float> g;
    const LinearRow at = find_linear_row(b_.checkpoint, b_.model.config(), tap.module, 0);
    if (at.record != nullptr && !at.record->ranges.empty()) g = range_of(*at.record, at.row).g;
    if (tap.difference.cosine() > kCleanCosine)
      out.ratio = ratio_name(tap.difference.rms_ratio(), g);
    return out;
  }

  // A ratio is named where the tap is otherwise the same.
  static constexpr double kCleanCosine = 0.98;

  const ComparedModel& a_;
  const ComparedModel& b_;
  std::span<const int32_t> ids_;
  const CompareModelsOptions& options_;
  ThreadPool& pool_;
  std::vector<Window> windows_;
  int64_t n_tokens_;
  int64_t n_stages_;
  int64_t chunk_;
  std::vector<float> stream_a_, stream_b_;  // [n_tokens, d_model]
  std::vector<float> given_;                // a chunk of A's, for B's stage
  std::vector<float> logits_a_, logits_b_;
  StepBuffersPtr buffers_a_, buffers_b_;
  FirstBadTap bad_in_b_;  // of its own stream
  std::optional<ComparedTap> bad_stream_;
  ScoreSums sums_;
  CompareReport report_;
};

}  // namespace

std::vector<const Divergence*> CompareReport::divergences() const {
  std::vector<const Divergence*> out;
  for (const StageReport& stage : stages)
    if (stage.divergence) out.push_back(&*stage.divergence);
  if (bad_stream) out.push_back(&*bad_stream);
  std::stable_partition(out.begin(), out.end(), [](const Divergence* divergence) {
    return divergence->tap.first_bad.has_value();
  });
  return out;
}

Result<CompareReport> compare_models(const ComparedModel& a, const ComparedModel& b,
                                     std::span<const int32_t> ids,
                                     const CompareModelsOptions& options, ThreadPool& pool) {
  SX_TRY(check_shapes(a.model.config(), b.model.config()));
  for (const ComparedModel* side : {&a, &b})
    SX_TRY(check_eval_ids(side->model.config(), ids, options.window));
  return ModelsComparison(a, b, ids, options, pool).run();
}

}  // namespace sextant
