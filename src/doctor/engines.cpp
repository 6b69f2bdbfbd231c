// Evaluates an engine's table over a checkpoint and its diagnosis. Every line gives at most one
// prediction: how often it applies, where it is worst, where it shows first.
#include "doctor/engines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/patterns.h"
#include "doctor/engine_facts.h"
#include "doctor/engine_table.h"

namespace sextant {
namespace {

// Below this a gain is rounding (nvfp4.md 3.2, C14).
constexpr double kGainThreshold = 1.001;
constexpr std::string_view kNotKnown = "not known";

// Execution order as far as names tell it: what has no layer first, then layers by number.
auto place_of(const EngineFact& fact) {
  const NamePosition position = name_position(fact.tensor);
  return std::make_tuple(position.layer.value_or(-1), position.expert.value_or(-1),
                         std::string_view(fact.tensor));
}

// The instances of one line.
struct GatheredFacts {
  std::optional<EngineFact> worst;
  std::optional<int64_t> first_layer;
  int64_t count = 0;
  double spread = 1;  // of fused parts: largest scale / smallest

  void add(const EngineFact& fact, double fact_spread = 1) {
    count += fact.count;
    const std::optional<int64_t> layer = name_position(fact.tensor).layer;
    if (layer && (!first_layer || *layer < *first_layer)) first_layer = layer;
    const bool worse = !worst || fact.badness > worst->badness ||
                       (fact.badness == worst->badness && place_of(fact) < place_of(*worst));
    if (!worse) return;
    worst = fact;
    spread = fact_spread;
  }
};

std::string number_text(double value) {
  const double size = std::fabs(value);
  return size >= 1e-3 && size < 1e4 ? fmt::format("{:.4f}", value) : fmt::format("{:.4g}", value);
}

std::string filled_in(std::string text, const GatheredFacts& gathered) {
  const double value = gathered.worst && gathered.worst->value
                           ? *gathered.worst->value
                           : std::numeric_limits<double>::quiet_NaN();
  const std::pair<std::string_view, std::string> marks[] = {
      {"{value}", number_text(value)},
      {"{integer}", fmt::format("{:.0f}", value)},
      {"{percent}", fmt::format("{:.3g} %", 100 * value)},
      {"{spread}", number_text(gathered.spread)}};
  for (const auto& [mark, filling] : marks)
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark))
      text.replace(at, mark.size(), filling);
  return text;
}

EnginePrediction prediction_of(const EngineTable& table, const EngineLine& line,
                               const GatheredFacts& gathered) {
  EnginePrediction p;
  p.engine = table.engine;
  p.effect = line.effect;
  p.symptom = filled_in(line.symptom, gathered);
  p.tensor = gathered.worst ? gathered.worst->tensor : "";
  p.first_layer = gathered.first_layer;
  p.count = gathered.count;
  p.message = filled_in(line.message, gathered);
  p.source = line.source;
  return p;
}

EnginePrediction no_line(const EngineTable& table, std::string message,
                         const GatheredFacts& gathered) {
  EngineLine line;
  line.effect = line.symptom = kNotKnown;
  line.message = std::move(message);
  line.source = fmt::format("no line of the table {}", table.engine);
  return prediction_of(table, line, gathered);
}

bool lets_through(const EngineLine& line, std::string_view dialect, bool experts) {
  return (line.dialect.empty() || line.dialect == dialect) &&
         (line.place.empty() || (line.place == "experts") == experts);
}

// One evaluation of a table.
class EngineRun {
 public:
  EngineRun(const EngineTable& table, const Checkpoint& checkpoint, const Diagnosis& diagnosis)
      : table_(table),
        checkpoint_(checkpoint),
        diagnosis_(diagnosis),
        family_(table.family_of(checkpoint.config())) {}

  std::vector<EnginePrediction> run() {
    if (family_.empty()) return {unknown_architecture()};
    names();
    fused();
    conditions();
    const auto key = [](const EnginePrediction& p) {
      return std::make_tuple(harm_rank(p.symptom), p.first_layer.value_or(-1));
    };
    std::stable_sort(out_.begin(), out_.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
    return std::move(out_);
  }

 private:
  EnginePrediction unknown_architecture() const {
    std::string known;
    for (const auto& [family, names] : table_.families)
      known += (known.empty() ? "" : ", ") + family;
    return no_line(table_,
                   fmt::format("the table of {} covers {}, not the architecture of this checkpoint",
                               table_.engine, known),
                   {});
  }

  std::vector<std::string> patterns_of(const EngineLine& line) const {
    const JsonValue* n =
        checkpoint_.config() == nullptr ? nullptr : checkpoint_.config()->find("num_hidden_layers");
    std::vector<std::string> patterns;
    for (std::string pattern : line.names) {
      constexpr std::string_view kMark = "{n_layers}";
      const size_t at = pattern.find(kMark);
      if (at != std::string::npos) {
        if (n == nullptr || !n->is_int()) continue;
        pattern.replace(at, kMark.size(), fmt::format("{}", n->as_int()));
      }
      patterns.push_back(std::move(pattern));
    }
    return patterns;
  }

  // The first line with a pattern that fits decides about a tensor. A family with a name map that
  // does not have a tensor says so; one without a map says nothing.
  void names() {
    std::vector<std::pair<const EngineLine*, std::vector<std::string>>> lines;
    bool has_map = false;
    for (const EngineLine& line : table_.lines) {
      if (line.kind != EngineLineKind::kName || !table_.concerns(line, family_)) continue;
      lines.emplace_back(&line, patterns_of(line));
      has_map |= line.action == NameAction::kLoad || line.action == NameAction::kRename;
    }
    std::vector<GatheredFacts> gathered(lines.size() + 1);
    for (const auto& [name, ref] : checkpoint_.tensors()) {
      size_t i = 0;
      const auto fits = [&name = name](const std::string& p) { return shell_match(p, name); };
      while (i < lines.size() && std::none_of(lines[i].second.begin(), lines[i].second.end(), fits))
        ++i;
      gathered[i].add({std::string(name), "", false, {}, 0, 1});
    }
    for (size_t i = 0; i < lines.size(); ++i)
      if (gathered[i].count > 0 && !lines[i].first->effect.empty())
        out_.push_back(prediction_of(table_, *lines[i].first, gathered[i]));
    if (has_map && gathered.back().count > 0)
      out_.push_back(no_line(table_,
                             fmt::format("the name map of {} for {} does not have these tensors; "
                                         "whether they are loaded is not known",
                                         table_.engine, family_),
                             gathered.back()));
  }

  // The parts that are there, in the order of the line, each with its largest multiplier. Empty
  // where one has no usable scale.
  struct FusedPart {
    const LinearRecord* record = nullptr;
    double g = 0;
  };
  std::vector<FusedPart> parts_of(const EngineLine& line, std::string_view parent) const {
    std::vector<FusedPart> parts;
    for (const std::string& name : line.parts) {
      const LinearRecord* record = checkpoint_.linear(fmt::format("{}.{}", parent, name));
      if (record == nullptr || record->scheme != Scheme::kNvfp4) continue;
      double g = 0;
      if (line.of_input) g = record->input_scale.value_or(0.0F);
      for (const ScaleRange& range : record->ranges)
        if (!line.of_input) g = std::max(g, static_cast<double>(range.g));
      if (!std::isfinite(g) || g <= 0) return {};  // another condition's business
      parts.push_back({record, g});
    }
    return parts;
  }

  // How the rule changes the part that it changes most: a factor, and that part.
  static std::optional<std::pair<double, size_t>> changed(FusedRule rule,
                                                          const std::vector<FusedPart>& parts) {
    const auto less = [](const FusedPart& a, const FusedPart& b) { return a.g < b.g; };
    const auto [low, high] = std::minmax_element(parts.begin(), parts.end(), less);
    const double spread = high->g / low->g;
    const auto low_at = static_cast<size_t>(low - parts.begin());
    const auto high_at = static_cast<size_t>(high - parts.begin());
    if (rule == FusedRule::kOwn || spread == 1.0) return std::nullopt;
    if (rule == FusedRule::kEqual) return std::make_pair(spread, low_at);
    if (spread <= kGainThreshold) return std::nullopt;
    if (rule == FusedRule::kMaxBigG) return std::make_pair(1.0 / spread, high_at);
    if (rule != FusedRule::kFirst) return std::make_pair(spread, low_at);
    size_t worst = 0;
    for (size_t i = 1; i < parts.size(); ++i)
      if (std::fabs(std::log(parts[0].g / parts[i].g)) >
          std::fabs(std::log(parts[0].g / parts[worst].g)))
        worst = i;
    return std::make_pair(parts[0].g / parts[worst].g, worst);
  }

  std::string scale_name(const LinearRecord& record, bool input) const {
    for (const std::string_view name : checkpoint_.tensors_of(record))
      if (input ? is_input_scalar(name) : is_weight_scalar(name)) return std::string(name);
    return record.module;
  }

  void fused() {
    std::set<std::string> decided;  // by an earlier line
    for (const EngineLine& line : table_.lines) {
      if (line.kind != EngineLineKind::kFused || !table_.concerns(line, family_)) continue;
      GatheredFacts gathered;
      for (const auto& [module, record] : checkpoint_.linears()) {
        if (module_last(module) != line.parts[0] || record.scheme != Scheme::kNvfp4) continue;
        if (!lets_through(line, engine_dialect(checkpoint_, record), in_experts(module))) continue;
        const std::vector<FusedPart> parts = parts_of(line, module_parent(module));
        if (parts.size() < 2) continue;
        if (!decided.insert(module + (line.of_input ? "|input" : "|weight")).second) continue;
        const auto change = changed(line.rule, parts);
        if (!change) continue;
        const auto& [factor, at] = *change;
        double low = parts[0].g;
        double high = parts[0].g;
        for (const FusedPart& part : parts) {
          low = std::min(low, part.g);
          high = std::max(high, part.g);
        }
        gathered.add({scale_name(*parts[at].record, line.of_input), "", false, factor,
                      std::fabs(std::log(factor)), 1},
                     high / low);
      }
      if (gathered.count > 0) out_.push_back(prediction_of(table_, line, gathered));
    }
  }

  // Several lines ask for the same facts, and a large model has a hundred thousand linears.
  const std::vector<EngineFact>& facts(const EngineLine& line) {
    const auto key = std::make_tuple(line.when, line.of, line.rescale);
    const auto at = facts_.find(key);
    if (at != facts_.end()) return at->second;
    return facts_.emplace(key, engine_facts(line, table_, family_, checkpoint_, diagnosis_))
        .first->second;
  }

  void conditions() {
    std::set<std::pair<std::string, std::string>> decided;  // condition, tensor
    for (const EngineLine& line : table_.lines) {
      if (line.kind != EngineLineKind::kCondition || !table_.concerns(line, family_)) continue;
      GatheredFacts gathered;
      for (const EngineFact& fact : facts(line)) {
        // A fact about the whole file passes every filter.
        if (!fact.tensor.empty() && !lets_through(line, fact.dialect, fact.experts)) continue;
        const std::string number = line.of == 0 ? "" : fmt::format(" {}", line.of);
        if (line.when == "always" || decided.emplace(line.when + number, fact.tensor).second)
          gathered.add(fact);
      }
      if (gathered.count > 0) out_.push_back(prediction_of(table_, line, gathered));
    }
    for (const EngineCondition& condition : engine_conditions()) {
      if (!condition.usual) continue;
      EngineLine line;
      line.when = condition.name;
      line.rescale = condition.name == "small-scales";
      GatheredFacts gathered;
      for (const EngineFact& fact : facts(line))
        if (decided.count({line.when, fact.tensor}) == 0) gathered.add(fact);
      if (gathered.count == 0) continue;
      out_.push_back(no_line(
          table_, fmt::format("what {} does with {} is not known", table_.engine, condition.what),
          gathered));
    }
  }

  const EngineTable& table_;
  const Checkpoint& checkpoint_;
  const Diagnosis& diagnosis_;
  std::string family_;
  std::map<std::tuple<std::string, int64_t, bool>, std::vector<EngineFact>> facts_;
  std::vector<EnginePrediction> out_;
};

}  // namespace

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const EmbeddedTable& table : embedded_engine_tables()) names.emplace_back(table.engine);
  return names;
}

std::vector<EnginePrediction> predict_by(const EngineTable& table, const Checkpoint& checkpoint,
                                         const Diagnosis& diagnosis) {
  return EngineRun(table, checkpoint, diagnosis).run();
}

Result<std::vector<EnginePrediction>> predict(std::string_view engine, const Checkpoint& checkpoint,
                                              const Diagnosis& diagnosis) {
  for (const EmbeddedTable& embedded : embedded_engine_tables()) {
    if (embedded.engine != engine) continue;
    SX_ASSIGN(const EngineTable table,
              parse_engine_table(embedded.text, fmt::format("engines/{}.json", engine)));
    return predict_by(table, checkpoint, diagnosis);
  }
  return fail(Code::kUsage, "no engine is called {}; there are {}", engine,
              fmt::join(engine_names(), ", "));
}

}  // namespace sextant
