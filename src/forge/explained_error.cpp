// Implements explained_error.h.
#include "forge/explained_error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "model/weights.h"

namespace sextant {
namespace {

// Squares of relative L2. 0.0203 is a cosine of 0.99, 0.0412 of 0.98 (nvfp4.md section 6.2: W4A16
// and W4A4 against BF16; noise powers add), FP8 four times the 31.5 dB of section 4.3.
constexpr double kRounding = 0x1p-16;  // (2^-8)^2: a BF16 rounding that went the other way
constexpr double kFp8 = 0.003;
constexpr double kNvfp4 = 0.0203;
constexpr double kInt8 = 1e-4;  // four times the 0.5 % of int8 codes of 16 (docs/cli.md, a8)
constexpr double kMxfp4 = 0.0412;
constexpr double kSums = 1e-10;          // float32 sums of inputs that differ in their last bits
constexpr double kScaleRounding = 1e-6;  // a multiplier against a divisor of the same scale
constexpr double kCarry = 4;             // twice the error of what a tap was made from
constexpr double kAttentionCarry = 16;   // four times: a softmax makes more of small errors
constexpr double kOtherExpert = 4;       // an expert in another's place, a share of the choices
constexpr double kOneRow = 3;            // one row alone may have twice the error of many
constexpr double kRatio = 0.1;           // the rms ratio is within 1 +- this, and what noise adds

// What a tap is made from, in its layer. One that is not there (a norm of q that the model lacks)
// stands for what it would be made from.
struct TapSources {
  std::string_view tap;
  std::array<std::string_view, 3> sources;
};
constexpr TapSources kSources[] = {
    {"q", {"attn_in"}},
    {"k", {"attn_in"}},
    {"v", {"attn_in"}},
    {"q_norm", {"q"}},
    {"k_norm", {"k"}},
    {"q_rope", {"q_norm"}},
    {"k_rope", {"k_norm"}},
    {"attn_out", {"q_rope", "k_rope", "v"}},
    {"o", {"attn_out"}},
    {"mlp_in", {"o"}},
    {"gate", {"mlp_in"}},
    {"up", {"mlp_in"}},
    {"mlp_act", {"gate", "up"}},
    {"down", {"mlp_act"}},
    {"router", {"mlp_in"}},
    {"router_weights", {"router"}},
    {"moe_out", {"down", "router_weights"}},
    {"hidden", {"o", "down", "moe_out"}},
    {"logits", {"norm"}},
};

double square(double x) { return x * x; }

double noise_of(Scheme scheme) {
  if (scheme == Scheme::kNvfp4) return kNvfp4;
  if (scheme == Scheme::kMxfp4) return kMxfp4;
  if (is_fp8(scheme)) return kFp8;
  return scheme == Scheme::kF32 ? 0 : kRounding;
}

double noise_of(Act act) {
  if (act == Act::kF32) return 0;
  if (act == Act::kA16) return kRounding;
  if (act == Act::kA8) return kInt8;
  return act == Act::kA8Fp8 ? kFp8 : kNvfp4;
}

class StageJudge {
 public:
  StageJudge(const ComparedModel& a, const ComparedModel& b, double same_experts,
             std::span<ComparedTap> taps, ThreadPool& pool)
      : a_(a), b_(b), other_experts_(1 - same_experts), taps_(taps), pool_(pool) {}

  void judge(ComparedTap& tap) const {
    double carried = 0;
    for (const TapSources& at : kSources)
      if (at.tap == tap.name)
        for (const std::string_view source : at.sources) carried += error_of(source, tap);
    // Of few rows (an expert's) the error is what theirs happens to be.
    const double few_rows = 1 + kOneRow / static_cast<double>(std::max<int64_t>(tap.n_rows, 1));
    double limit = (tap.name == "attn_out" ? kAttentionCarry : kCarry) * few_rows * carried +
                   own(tap, carried > 0);
    if (tap.name == "moe_out") limit += kOtherExpert * other_experts_;
    const double relative = tap.difference.relative_l2();
    tap.limit = std::sqrt(limit);
    const double ratio = tap.difference.rms_ratio();
    const bool is_within = relative <= tap.limit && std::abs(ratio - 1) <= kRatio + limit / 2 &&
                           tap.difference.n_bad_a == tap.difference.n_bad_b;
    // The sums of a tap without a limit may be equal where one element is not; what is not finite
    // is never explained, the same on both sides or not.
    const bool is_bad = tap.difference.n_bad_a + tap.difference.n_bad_b > 0;
    tap.stands_out = !is_within || is_bad || (limit == 0 && tap.difference.n_different > 0);
    measure_weights(tap);
    if (tap.weight_ratio && !(std::abs(*tap.weight_ratio - 1) <= kRatio)) tap.stands_out = true;
  }

 private:
  void measure_weights(ComparedTap& tap) const {
    if (tap.module.empty()) return;
    const LinearRow a = find_linear_row(a_.checkpoint, a_.model.config(), tap.module, 0);
    const LinearRow b = find_linear_row(b_.checkpoint, b_.model.config(), tap.module, 0);
    if (a.record == nullptr || b.record == nullptr || a.record->scheme == b.record->scheme) return;
    DifferenceOfRows all;
    for (const DifferenceOfRows& row : compare_weights(a, b, tap.n_columns, pool_)) all.add(row);
    tap.weight_ratio = all.rms_ratio();
  }

  // The square of the error at a source: the largest of all its experts where the tap has none.
  double error_of(std::string_view source, const ComparedTap& of) const {
    if (source.empty()) return 0;
    double largest = 0;
    bool found = false;
    for (const ComparedTap& tap : taps_) {
      if (tap.name != source || (of.expert && tap.expert && tap.expert != of.expert)) continue;
      found = true;
      largest = std::max(largest, square(tap.difference.relative_l2()));
    }
    if (found) return largest;
    if (source == "q_norm") return error_of("q", of);
    if (source == "k_norm") return error_of("k", of);
    return 0;
  }

  // What the tap's own parameters and arithmetic explain.
  double own(const ComparedTap& tap, bool is_carried) const {
    if (tap.name == "embed") return of_linears("model.embed_tokens");
    if (!tap.module.empty()) {
      const LinearPolicy policy_a = a_.model.linear_policy(tap.module);
      const LinearPolicy policy_b = b_.model.linear_policy(tap.module);
      double own = of_linears(tap.module) + explained_by_policies(policy_a, policy_b);
      // Inputs that differ at all may be rounded, or quantized, the other way.
      if (is_carried) own += kSums + noise_of(policy_a.act);
      return own;
    }
    const std::string norm = norm_of_tap(tap.name, tap.layer);
    const TensorRef norm_a = a_.checkpoint.tensor(norm);
    const TensorRef norm_b = b_.checkpoint.tensor(norm);
    const bool is_other_type = norm_a && norm_b && norm_a.info->dtype != norm_b.info->dtype;
    const bool is_other_cache =
        tap.name == "attn_out" && a_.model.kv_layout().dtype != b_.model.kv_layout().dtype;
    return is_other_type || is_other_cache || is_carried ? kRounding : 0;
  }

  double of_linears(std::string_view module) const {
    const LinearRow a = find_linear_row(a_.checkpoint, a_.model.config(), module, 0);
    const LinearRow b = find_linear_row(b_.checkpoint, b_.model.config(), module, 0);
    if (a.record == nullptr || b.record == nullptr) return 0;
    if (a.record->scheme != b.record->scheme)
      return explained_by_formats(a.record->scheme, b.record->scheme);
    const bool is_other_convention =
        !a.record->ranges.empty() && !b.record->ranges.empty() &&
        range_of(*a.record, a.row).is_divisor != range_of(*b.record, b.row).is_divisor;
    return is_other_convention ? kScaleRounding : 0;
  }

  const ComparedModel& a_;
  const ComparedModel& b_;
  double other_experts_;
  std::span<ComparedTap> taps_;
  ThreadPool& pool_;
};

}  // namespace

double explained_by_formats(Scheme a, Scheme b) { return a == b ? 0 : noise_of(a) + noise_of(b); }

double explained_by_policies(const LinearPolicy& a, const LinearPolicy& b) {
  const double of_weights = a.weights == b.weights ? 0 : kRounding;
  LinearPolicy same_weights = b;
  same_weights.weights = a.weights;
  return of_weights + (is_same_arithmetic(a, same_weights) ? 0 : noise_of(a.act) + noise_of(b.act));
}

std::vector<DifferenceOfRows> compare_weights(const LinearRow& a, const LinearRow& b,
                                              int64_t n_rows, ThreadPool& pool) {
  std::vector<DifferenceOfRows> rows(static_cast<size_t>(n_rows));
  pool.split(n_rows, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> of_a(static_cast<size_t>(a.record->k));
    std::vector<float> of_b(static_cast<size_t>(b.record->k));
    for (int64_t r = begin; r < end; ++r) {
      dequantize_rows(*a.record, a.row + r, 1, of_a.data());
      dequantize_rows(*b.record, b.row + r, 1, of_b.data());
      rows[static_cast<size_t>(r)] = compare_row(of_a, of_b).sums;
    }
  });
  for (const LinearRecord* record : {a.record, b.record}) {
    release_pages(record->weight);
    release_pages(record->scales);
  }
  return rows;
}

void judge_taps(const ComparedModel& a, const ComparedModel& b, double same_experts,
                std::span<ComparedTap> taps, ThreadPool& pool) {
  const StageJudge judge(a, b, same_experts, taps, pool);
  for (ComparedTap& tap : taps) judge.judge(tap);
}

}  // namespace sextant
