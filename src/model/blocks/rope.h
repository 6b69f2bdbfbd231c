// Rotary embeddings: frequencies of every kind (default, linear, dynamic NTK, llama3, yarn) and the
// cos and sin of the rows of a step. Owns the formulas; the rotation itself is an op.
//
// Frequencies and angles are float32, as in Hugging Face transformers, whose models were trained on
// exactly these roundings. Dynamic NTK has two right answers (cli.md section 3): the frequencies
// are those of the longest position of the call, and keys that are cached keep what they were
// stored with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/view.h"
#include "model/config.h"

namespace sextant {

class RopeFrequencies {
 public:
  RopeFrequencies(const RopeConfig& rope, int64_t head_dim, int64_t max_position);

  int64_t n_pairs() const { return static_cast<int64_t>(inv_freq_.size()); }
  float attention_factor() const { return attention_factor_; }
  // The frequencies of a call whose longest position is n_positions - 1, into out [n_pairs].
  void inverse(int64_t n_positions, std::span<float> out) const;
  // cos and sin [n_rows, n_pairs] of the positions pos_begin ..., times the attention factor;
  // scratch [n_pairs].
  void fill(int64_t pos_begin, int64_t n_rows, std::span<float> scratch, Mat<float> cos,
            Mat<float> sin) const;

 private:
  RopeConfig rope_;
  int64_t head_dim_;
  int64_t max_position_;
  std::vector<float> inv_freq_;
  float attention_factor_ = 1.0F;
};

}  // namespace sextant
