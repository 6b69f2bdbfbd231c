// What error at a tap the formats and policies of two models explain (docs/compare.md has the rule
// with its numbers). A tap may have what its own linear, norm or table is allowed, and twice the
// error that the taps it was made from have; where those are equal and its own formats and policies
// are the same on both sides, it may have none, since the same arithmetic on the same numbers is
// the same to the last bit. The rms ratio has bounds of its own, since a cosine is blind to scale,
// and so has that of the weights, where their formats differ: activations of few rows are not sure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "forge/tap_difference.h"
#include "model/bad_tap_cause.h"
#include "model/model.h"

namespace sextant {

// A model, and the checkpoint it was loaded from.
struct ComparedModel {
  const Model& model;
  const Checkpoint& checkpoint;
};

// Fills limit and stands_out of the taps of one stage; same_experts is that of StageComparison, 1
// where there are none.
void judge_taps(const ComparedModel& a, const ComparedModel& b, double same_experts,
                std::span<ComparedTap> taps, ThreadPool& pool);

// The dequantized values of n_rows rows, a difference a row. Gives the pages back that it read.
std::vector<DifferenceOfRows> compare_weights(const LinearRow& a, const LinearRow& b,
                                              int64_t n_rows, ThreadPool& pool);

// Squares of relative L2 that one linear's formats, or its policies, explain; 0 where both sides
// have the same.
double explained_by_formats(Scheme a, Scheme b);
double explained_by_policies(const LinearPolicy& a, const LinearPolicy& b);

}  // namespace sextant
