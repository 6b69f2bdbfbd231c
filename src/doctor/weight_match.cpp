// By name, then fused against parts, then tied tables; every record is used once, but for a table
// that stands in for a tied one.
#include "doctor/weight_match.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/json.h"
#include "io/quote.h"

namespace sextant {
namespace {

std::string_view last_component(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

struct FusedName {
  std::string_view fused;
  std::array<std::string_view, 3> parts;
};
constexpr FusedName kFusedNames[] = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
                                     {"gate_up_proj", {"gate_proj", "up_proj", ""}}};

// The parts of a fused module that another checkpoint stores one by one, in the order of their
// rows; empty unless it has them all.
std::vector<const LinearRecord*> parts_of(std::string_view module, const Checkpoint& other) {
  std::vector<const LinearRecord*> parts;
  for (const FusedName& name : kFusedNames) {
    if (last_component(module) != name.fused) continue;
    const std::string_view prefix = module.substr(0, module.size() - name.fused.size());
    for (const std::string_view part : name.parts) {
      if (part.empty()) continue;
      parts.push_back(other.linear(fmt::format("{}{}", prefix, part)));
      if (parts.back() == nullptr) return {};
    }
  }
  return parts;
}

// What a model that lacks this table uses in its place; nullptr where its config says that it has
// one of its own.
const LinearRecord* tied_table(const LinearRecord& table, const Checkpoint& checkpoint) {
  const std::string_view last = last_component(table.module);
  const std::string_view other = last == "lm_head"        ? "embed_tokens"
                                 : last == "embed_tokens" ? "lm_head"
                                                          : std::string_view();
  if (other.empty()) return nullptr;
  if (const JsonValue* config = checkpoint.config()) {
    const JsonValue* tie = config->find("tie_word_embeddings");
    if (tie != nullptr && tie->is_bool() && !tie->as_bool()) return nullptr;
  }
  for (const auto& [name, record] : checkpoint.linears())
    if (last_component(name) == other && record.n == table.n && record.k == table.k) return &record;
  return nullptr;
}

class WeightMatcher {
 public:
  WeightMatcher(const Checkpoint& here, const Checkpoint& reference, FindingSet& findings)
      : here_(here), reference_(reference), findings_(findings) {}

  std::vector<WeightPair> match() {
    for (const auto& [module, record] : here_.linears()) {
      const LinearRecord* other = reference_.linear(module);
      constexpr std::string_view kWrapper = ".linear";
      if (other == nullptr && module.ends_with(kWrapper))
        other = reference_.linear(module.substr(0, module.size() - kWrapper.size()));
      if (other != nullptr) pair(module, record, *other);
    }
    for (const auto& [module, record] : here_.linears())
      if (!seen_.contains(&record)) match_fused(module, record, false);
    for (const auto& [module, record] : reference_.linears())
      if (!seen_.contains(&record)) match_fused(module, record, true);
    for (const auto& [module, record] : here_.linears())
      if (!seen_.contains(&record))
        if (const LinearRecord* table = tied_table(record, reference_))
          pair(module, record, *table);
    for (const auto& [module, record] : reference_.linears())
      if (!seen_.contains(&record))
        if (const LinearRecord* table = tied_table(record, here_)) pair(module, *table, record);
    return std::move(pairs_);
  }

  // Modules without a partner, but for those that nobody has to use.
  std::vector<std::string> unmatched(const Checkpoint& side) const {
    std::vector<std::string> names;
    for (const auto& [module, record] : side.linears()) {
      if (seen_.contains(&record)) continue;
      const std::vector<std::string_view> tensors = side.tensors_of(record);
      const bool harmless = std::any_of(tensors.begin(), tensors.end(), [&](const auto& name) {
        return side.harmless_tensors().contains(name);
      });
      if (!harmless) names.push_back(module);
    }
    return names;
  }

 private:
  void pair(const std::string& module, const LinearRecord& here, const LinearRecord& reference) {
    seen_.insert({&here, &reference});
    if (here.n != reference.n || here.k != reference.k)
      shape_differs(here, {reference.n, reference.k});
    else
      pairs_.push_back({module, {&here, 0}, {&reference, 0}, here.n});
  }

  // A fused record of one side and its parts on the other.
  void match_fused(const std::string& module, const LinearRecord& fused, bool in_reference) {
    const auto parts = parts_of(module, in_reference ? here_ : reference_);
    if (parts.empty()) return;
    seen_.insert(&fused);
    int64_t n = 0;
    bool fits = true;
    for (const LinearRecord* part : parts) {
      seen_.insert(part);
      n += part->n;
      fits = fits && part->k == fused.k;
    }
    if (!fits || n != fused.n) {
      shape_differs(fused, {n, parts.front()->k});
      return;
    }
    int64_t begin = 0;
    for (const LinearRecord* part : parts) {
      const RowSpan whole{&fused, begin};
      const RowSpan one{part, 0};
      pairs_.push_back(
          {part->module, in_reference ? one : whole, in_reference ? whole : one, part->n});
      begin += part->n;
    }
  }

  void shape_differs(const LinearRecord& record, std::pair<int64_t, int64_t> other) {
    Finding f;
    f.id = "A5";
    f.slug = "shape-differs";
    f.message =
        fmt::format("{} is {} x {} on one side and {} x {} on the other: not compared",
                    quote_name(record.module), record.n, record.k, other.first, other.second);
    f.remedy = "compare with the model that this one was made from";
    f.tensor = record.module;
    f.expected = "equal shapes";
    findings_.add(std::move(f));
  }

  const Checkpoint& here_;
  const Checkpoint& reference_;
  FindingSet& findings_;
  std::set<const LinearRecord*> seen_;
  std::vector<WeightPair> pairs_;
};

}  // namespace

WeightMatch match_weights(const Checkpoint& checkpoint, const Checkpoint& reference,
                          FindingSet& findings) {
  WeightMatcher matcher(checkpoint, reference, findings);
  WeightMatch match;
  match.pairs = matcher.match();
  match.only_here = matcher.unmatched(checkpoint);
  match.only_reference = matcher.unmatched(reference);
  return match;
}

}  // namespace sextant
