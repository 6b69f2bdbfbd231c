// Implements blocks/rope.h. Sources: RoPE arXiv:2104.09864; dynamic NTK, linear interpolation
// arXiv:2306.15595; YaRN arXiv:2309.00071 sections 3.2 to 3.4; llama3 scaling as Meta's reference
// code for Llama 3.1 has it.
#include "model/blocks/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace sextant {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// theta^(-2i/d), each step rounded as float32 arithmetic has it.
float plain_frequency(double theta, int64_t i, int64_t head_dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
  const float power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  return 1.0F / power;
}

// Long waves (beyond original / low) are stretched by factor, short ones stay, and those between
// are blended by how many turns they make within the original length.
float llama3_frequency(const RopeConfig& r, float inv) {
  const auto original = static_cast<double>(r.original_max_position);
  const double wave = kTwoPi / static_cast<double>(inv);
  if (wave > original / r.low_freq_factor) return inv / static_cast<float>(r.factor);
  if (wave < original / r.high_freq_factor) return inv;
  const double smooth =
      (original / wave - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * static_cast<double>(inv) / r.factor +
                            smooth * static_cast<double>(inv));
}

// The (fractional) pair index whose wave makes `turns` rotations within the original length.
double yarn_pair_of_turns(const RopeConfig& r, int64_t head_dim, double turns) {
  return static_cast<double>(head_dim) *
         std::log(static_cast<double>(r.original_max_position) / (turns * kTwoPi)) /
         (2.0 * std::log(r.theta));
}

void yarn_frequencies(const RopeConfig& r, int64_t head_dim, std::span<float> inv) {
  double low = yarn_pair_of_turns(r, head_dim, r.beta_fast);
  double high = yarn_pair_of_turns(r, head_dim, r.beta_slow);
  if (r.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;  // no division by zero
  for (size_t i = 0; i < inv.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const auto plain = static_cast<double>(inv[i]);
    inv[i] = static_cast<float>(plain / r.factor * ramp + plain * (1.0 - ramp));
  }
}

double yarn_attention_factor(const RopeConfig& r) {
  if (r.attention_factor > 0) return r.attention_factor;
  const auto scale = [&](double mscale) {
    return r.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(r.factor) + 1.0;
  };
  if (r.mscale > 0 && r.mscale_all_dim > 0) return scale(r.mscale) / scale(r.mscale_all_dim);
  return scale(1.0);
}

}  // namespace

RopeFrequencies::RopeFrequencies(const RopeConfig& rope, int64_t head_dim, int64_t max_position)
    : rope_(rope), head_dim_(head_dim), max_position_(max_position) {
  inv_freq_.resize(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < inv_freq_.size(); ++i) {
    inv_freq_[i] = plain_frequency(rope.theta, static_cast<int64_t>(i), head_dim);
    if (rope.kind == RopeKind::kLinear) inv_freq_[i] /= static_cast<float>(rope.factor);
    if (rope.kind == RopeKind::kLlama3) inv_freq_[i] = llama3_frequency(rope, inv_freq_[i]);
  }
  if (rope.kind == RopeKind::kYarn) {
    yarn_frequencies(rope, head_dim, inv_freq_);
    attention_factor_ = static_cast<float>(yarn_attention_factor(rope));
  }
}

void RopeFrequencies::inverse(int64_t n_positions, std::span<float> out) const {
  SX_CHECK(out.size() == inv_freq_.size(), "rope: room for {} frequencies of {}", out.size(),
           inv_freq_.size());
  // Two dimensions have one pair, of frequency 1 whatever the base; d / (d - 2) has no value there.
  if (rope_.kind != RopeKind::kDynamic || n_positions <= max_position_ || head_dim_ <= 2) {
    std::copy(inv_freq_.begin(), inv_freq_.end(), out.begin());
    return;
  }
  const double stretch =
      rope_.factor * static_cast<double>(n_positions) / static_cast<double>(max_position_) -
      (rope_.factor - 1.0);
  const auto d = static_cast<double>(head_dim_);
  const double theta = rope_.theta * std::pow(stretch, d / (d - 2.0));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = plain_frequency(theta, static_cast<int64_t>(i), head_dim_);
}

void RopeFrequencies::fill(int64_t pos_begin, int64_t n_rows, std::span<float> scratch,
                           Mat<float> cos, Mat<float> sin) const {
  SX_CHECK(
      cos.rows >= n_rows && sin.rows >= n_rows && cos.cols == n_pairs() && sin.cols == n_pairs(),
      "rope: cos [{}, {}] for {} rows of {}", cos.rows, cos.cols, n_rows, n_pairs());
  inverse(pos_begin + n_rows, scratch);
  for (int64_t r = 0; r < n_rows; ++r) {
    const auto pos = static_cast<float>(pos_begin + r);
    for (int64_t i = 0; i < n_pairs(); ++i) {
      const auto angle = static_cast<double>(pos * scratch[static_cast<size_t>(i)]);
      cos.at(r, i) = static_cast<float>(std::cos(angle)) * attention_factor_;
      sin.at(r, i) = static_cast<float>(std::sin(angle)) * attention_factor_;
    }
  }
}

}  // namespace sextant
