// Implements compare.h.
#include "forge/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <span>

#include "forge/arg_max.h"
#include "forge/compare_linears.h"
#include "forge/dump.h"
#include "forge/run_sequence.h"
#include "forge/tensor_comparison.h"

namespace sextant {
namespace {

enum class Feed : uint8_t { kOnePrefill, kTokenByToken, kOther };

// Running comparison of a tensor of ids, which must be equal.
class IdComparison {
 public:
  IdComparison(std::string tensor, Dump::Ids ids) : ids_(std::move(ids)) {
    row_.tensor = std::move(tensor);
  }
  const Dump::Ids& ids() const { return ids_; }

  void add(int64_t row, std::span<const int32_t> ours) {
    const std::span<const int32_t> theirs = ids_.row(row);
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (ours[i] == theirs[i]) continue;
      row_.max_abs_diff += 1;
      if (row_.first_over.empty()) row_.first_over = {row, static_cast<int64_t>(i)};
    }
    row_.n_elements += ids_.cols;
  }

  DumpRow take() {
    row_.ok = row_.first_over.empty();
    return std::move(row_);
  }

 private:
  Dump::Ids ids_;
  DumpRow row_;
};

// Compares what passes in a layer, by its number: "embed" is hidden.0, "hidden" of layer i is
// hidden.(i + 1), routers have their layer's.
class LayerProbe : public Probe {
 public:
  std::map<int64_t, TensorComparison> hidden;
  std::map<int64_t, TensorComparison> router_weights;
  std::map<int64_t, IdComparison> router_ids;
  int64_t row = 0;  // of the first row of this step, over all sequences

  void visit(const Tap& tap, Mat<const float> values) override {
    if (tap.name == "embed" || tap.name == "hidden")
      add(hidden, tap.layer + 1, values);
    else if (tap.name == "router_weights")
      add(router_weights, tap.layer, values);
  }
  void visit_ids(const Tap& tap, Mat<const int32_t> ids) override {
    if (tap.name == "router_ids") add(router_ids, tap.layer, ids);
  }

 private:
  template <class Comparison, class T>
  void add(std::map<int64_t, Comparison>& tensors, int64_t number, Mat<const T> values) {
    const auto found = tensors.find(number);
    if (found == tensors.end()) return;
    for (int64_t r = 0; r < values.rows; ++r) found->second.add(row + r, values.row(r));
  }
};

// How many ids each step gets.
std::vector<int64_t> feed_plan(int64_t n, const DumpOptions& options) {
  const int64_t prefill = options.decode_from < 0 ? n : std::min(options.decode_from, n);
  const int64_t chunk = options.prefill_chunk > 0 ? options.prefill_chunk : std::max<int64_t>(n, 1);
  std::vector<int64_t> steps = even_steps(prefill, chunk);
  for (int64_t at = prefill; at < n; ++at) steps.push_back(1);
  return steps;
}

class DumpComparison {
 public:
  DumpComparison(const Dump& dump, const Model& model, const DumpOptions& options, ThreadPool& pool)
      : dump_(dump), model_(model), options_(options), pool_(pool) {}

  Status run(DumpReport& report) {
    SX_ASSIGN(ids_, dump_.ids("input_ids", model_.config().n_vocab));
    report.n_sequences = ids_.rows;
    report.n_positions = ids_.cols;
    steps_ = feed_plan(ids_.cols, options_);
    feed_ = steps_.size() == 1                                 ? Feed::kOnePrefill
            : static_cast<int64_t>(steps_.size()) == ids_.cols ? Feed::kTokenByToken
                                                               : Feed::kOther;
    dynamic_ = is_one_step(model_.config());
    SX_TRY(choose(report));
    const int64_t n_greedy = greedy_ ? greedy_->cols : 0;
    const int64_t longest =
        dynamic_ ? ids_.cols + n_greedy : *std::max_element(steps_.begin(), steps_.end());
    SequenceRunner runner(model_, ids_.cols + n_greedy, longest, SequenceRunner::Logits::kAll,
                          pool_);
    for (int64_t s = 0; s < ids_.rows; ++s) SX_TRY(run_sequence(s, runner));
    finish(report);
    SX_ASSIGN(const std::vector<std::string> left,
              compare_linears(dump_, model_, pool_, report.rows, report.skipped));
    report.unknown.insert(report.unknown.end(), left.begin(), left.end());
    return {};
  }

 private:
  // Which tensors this way of feeding is held to.
  Status choose(DumpReport& report) {
    const int64_t n_layers = model_.config().n_layers;
    const bool whole = !dynamic_ || feed_ == Feed::kOnePrefill;
    for (const TensorInfo& info : dump_.file().tensors()) {
      const std::string_view name = info.name;
      if (name == "input_ids" || is_of_linear(name)) continue;
      if (name == "logits" || name == "logits_cached") {
        const bool cached = name == "logits_cached";
        const bool wanted = cached ? feed_ == Feed::kTokenByToken : whole;
        SX_TRY(add_floats(info, model_.config().n_vocab, wanted, report, cached ? 2 : 1));
      } else if (const auto layer = number_in(name, "hidden.", ""); layer && *layer <= n_layers) {
        SX_TRY(add_floats(info, model_.config().d_model, whole, report, 0, *layer));
      } else if (const auto routed = number_in(name, "router.", ".weights"); routed) {
        SX_TRY(add_router_weights(info, *routed, whole, report));
      } else if (const auto chosen = number_in(name, "router.", ".ids"); chosen) {
        SX_TRY(add_router_ids(info, *chosen, whole, report));
      } else if (name == "greedy_ids") {
        if (!whole) {
          report.skipped.push_back("greedy_ids: dynamic NTK, made by whole prefills");
          continue;
        }
        SX_ASSIGN(Dump::Ids greedy, dump_.ids(name, model_.config().n_vocab));
        if (greedy.rows != ids_.rows)
          return fail(Code::kInput, "{}: greedy_ids has {} sequences, input_ids {}",
                      dump_.file().path().string(), greedy.rows, ids_.rows);
        greedy_ = std::move(greedy);
      } else {
        report.unknown.emplace_back(name);
      }
    }
    return {};
  }

  // The number between prefix and suffix, where that is all of the name.
  static std::optional<int64_t> number_in(std::string_view name, std::string_view prefix,
                                          std::string_view suffix) {
    if (name.size() <= prefix.size() + suffix.size()) return std::nullopt;
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
    int64_t number = -1;
    const char* end = name.data() + name.size() - suffix.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 0) return std::nullopt;
    return number;
  }

  // kind 0: hidden.`layer`, 1: logits, 2: logits_cached.
  Status add_floats(const TensorInfo& info, int64_t width, bool wanted, DumpReport& report,
                    int kind, int64_t layer = 0) {
    SX_ASSIGN(const TensorInfo* tensor, dump_.floats(info.name, {ids_.rows, ids_.cols, width}));
    // Logits under quantized activations have no bound an element.
    const Result<double> cosine = dump_.bound(info.name + "_cosine");
    std::optional<double> min_cosine;
    double bound = 0;
    if (kind != 0 && cosine) {
      min_cosine = *cosine;
    } else {
      SX_ASSIGN(bound, dump_.bound(info.name));
    }
    if (!wanted) {
      if (kind == 2)
        report.skipped.push_back(info.name + ": holds for token by token only");
      else
        skip_dynamic(info, report);
      return {};
    }
    TensorComparison comparison(dump_, *tensor, bound, min_cosine);
    if (kind == 0)
      probe_.hidden.emplace(layer, std::move(comparison));
    else
      logit_tensors_.push_back(std::move(comparison));
    return {};
  }

  Status check_router(const TensorInfo& info, int64_t layer) const {
    const std::vector<bool>& sparse = model_.config().sparse;
    if (layer < static_cast<int64_t>(sparse.size()) && sparse[static_cast<size_t>(layer)])
      return {};
    return fail_at({dump_.file().path().string(), info.name, {}, {}}, Code::kInput,
                   "{}: {} is there, but layer {} of this model has no experts",
                   dump_.file().path().string(), info.name, layer);
  }

  Status add_router_weights(const TensorInfo& info, int64_t layer, bool wanted,
                            DumpReport& report) {
    SX_TRY(check_router(info, layer));
    SX_ASSIGN(const TensorInfo* tensor,
              dump_.floats(info.name, {ids_.rows * ids_.cols, model_.config().top_k}));
    // One bound for all layers, router.weights, unless this one has its own.
    SX_ASSIGN(const double bound, dump_.bound(info.name, "router.weights"));
    if (!wanted) {
      skip_dynamic(info, report);
      return {};
    }
    probe_.router_weights.emplace(layer, TensorComparison(dump_, *tensor, bound));
    return {};
  }

  Status add_router_ids(const TensorInfo& info, int64_t layer, bool wanted, DumpReport& report) {
    SX_TRY(check_router(info, layer));
    SX_ASSIGN(Dump::Ids ids, dump_.ids(info.name, model_.config().n_experts));
    if (ids.rows != ids_.rows * ids_.cols || ids.cols != model_.config().top_k)
      return fail_at({dump_.file().path().string(), info.name, {}, {}}, Code::kInput,
                     "{}: {} is I64 [{}, {}], expected [{}, {}] for this model",
                     dump_.file().path().string(), info.name, ids.rows, ids.cols,
                     ids_.rows * ids_.cols, model_.config().top_k);
    if (!wanted) {
      skip_dynamic(info, report);
      return {};
    }
    probe_.router_ids.emplace(layer, IdComparison(info.name, std::move(ids)));
    return {};
  }

  static void skip_dynamic(const TensorInfo& info, DumpReport& report) {
    report.skipped.push_back(info.name + ": dynamic NTK, holds for one prefill");
  }

  Status run_sequence(int64_t s, SequenceRunner& runner) {
    std::span<const float> last;
    SequenceHooks hooks;
    hooks.probe = &probe_;
    hooks.before = [&](int64_t begin, int64_t) { probe_.row = s * ids_.cols + begin; };
    hooks.after = [&](int64_t, int64_t n, Mat<const float> logits) -> Status {
      for (TensorComparison& tensor : logit_tensors_)
        for (int64_t r = 0; r < n; ++r) tensor.add(probe_.row + r, logits.row(r));
      last = logits.row(n - 1);
      return {};
    };
    SX_TRY(runner.run(ids_.row(s), steps_, hooks));
    if (greedy_) continue_greedily(s, runner, last);
    return {};
  }

  // The recorded ids are fed, not ours, so that one difference stays one difference. Under dynamic
  // NTK every step is a whole prefill, as the dump was made.
  void continue_greedily(int64_t s, SequenceRunner& runner, std::span<const float> last) {
    std::vector<int32_t> ids(ids_.row(s).begin(), ids_.row(s).end());
    for (int64_t g = 0; g < greedy_->cols; ++g) {
      const int32_t expected = greedy_->row(s)[static_cast<size_t>(g)];
      if (arg_max(last) != expected) {
        if (n_wrong_++ == 0) first_wrong_ = {s, g};
      }
      ids.push_back(expected);
      const auto n = static_cast<int64_t>(ids.size());
      const int64_t fed = dynamic_ ? 0 : n - 1;
      const Mat<const float> logits = runner.step(ids, fed, n - fed, n - fed, nullptr);
      last = logits.row(logits.rows - 1);
    }
  }

  void finish(DumpReport& report) {
    for (auto& [number, tensor] : probe_.hidden) report.rows.push_back(tensor.take());
    for (auto& [number, tensor] : probe_.router_ids) report.rows.push_back(tensor.take());
    for (auto& [number, tensor] : probe_.router_weights) report.rows.push_back(tensor.take());
    for (TensorComparison& tensor : logit_tensors_) report.rows.push_back(tensor.take());
    if (!greedy_) return;
    DumpRow row;
    row.tensor = "greedy_ids";
    row.n_elements = greedy_->rows * greedy_->cols;
    row.max_abs_diff = static_cast<double>(n_wrong_);
    row.first_over = first_wrong_;
    row.ok = n_wrong_ == 0;
    report.rows.push_back(std::move(row));
  }

  const Dump& dump_;
  const Model& model_;
  const DumpOptions& options_;
  ThreadPool& pool_;
  Dump::Ids ids_;
  std::optional<Dump::Ids> greedy_;
  std::vector<int64_t> steps_;
  Feed feed_ = Feed::kOnePrefill;
  bool dynamic_ = false;
  LayerProbe probe_;
  std::vector<TensorComparison> logit_tensors_;
  int64_t n_wrong_ = 0;
  std::vector<int64_t> first_wrong_;
};

}  // namespace

bool DumpReport::ok() const {
  return std::all_of(rows.begin(), rows.end(), [](const DumpRow& row) { return row.ok; });
}

std::vector<Allowance> dump_allowances() {
  return {{"C15", "*.input_scale"}, {"C15", "*.input_global_scale"}};
}

Result<DumpReport> compare_dump(std::unique_ptr<Checkpoint> model,
                                const std::filesystem::path& dump_dir, const DumpOptions& options,
                                ThreadPool& pool) {
  if (options.prefill_chunk < 0)
    return fail(Code::kUsage, "a prefill chunk of {} ids; expected at least 1",
                options.prefill_chunk);
  SX_ASSIGN(const Dump dump, Dump::open(dump_dir, options.name));
  ModelOptions model_options = options.model;
  if (model_options.policies.empty()) {
    SX_ASSIGN(model_options.policies, dump.model_policies());
  }
  SX_ASSIGN(const std::shared_ptr<const Model> loaded,
            Model::load(std::move(model), model_options, pool));
  DumpReport report;
  report.policy = dump.policy();
  report.applied = model_options.policies;
  report.isa = loaded->ops().name;
  report.findings = loaded->findings();
  DumpComparison comparison(dump, *loaded, options, pool);
  SX_TRY(comparison.run(report));
  if (report.rows.empty())
    return fail_at({dump.file().path().string(), {}, {}, {}}, Code::kInput,
                   "{}: none of its tensors can be compared this way", dump.file().path().string());
  return report;
}

}  // namespace sextant
