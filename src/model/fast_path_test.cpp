// The fast path itself: every golden directory under a16 (BF16 activations at the linears' inputs,
// BF16 keys and values) with every ops table of this machine, against `ref` under a16, and `ref`
// under a16 against the float32 dump.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/model.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::cosine;
using testing::dump_floats;
using testing::dump_ids;
using testing::golden_dir;
using testing::mean_kl;
using testing::run_logits;

std::vector<float> logits_of(const std::string& directory, const char* isa) {
  ThreadPool pool(2);
  ModelOptions options;
  options.isa = isa;
  options.policies = {"a16"};
  const auto model = Model::load(golden_dir(directory), options, pool);
  EXPECT_TRUE(model.has_value()) << directory << ": " << model.error().text;
  std::vector<float> all;
  if (!model) return all;
  for (const auto& ids : dump_ids(directory)) {
    const auto n = static_cast<int64_t>(ids.size());
    const auto logits = run_logits(**model, ids, {n}, pool);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

class FastPath : public ::testing::TestWithParam<std::string> {};

// BF16 rounds an input by up to 2^-9 of itself, 2^-9 / sqrt(3) = 0.11 % on average; the dozen to
// two dozen linears of two or three layers, the cache and what each layer amplifies make about ten
// times that of the logits, an angle whose cosine is off by half its square: 6e-5. Measured over
// these directories 2e-5 to 8e-5, with KL 1.5e-4 to 5.3e-4.
constexpr double kCosineToDump = 2e-4;
constexpr double kKlToDump = 1.5e-3;

// Two tables differ in the last bit of a float32 sum, which now and then turns a BF16 rounding the
// other way: an error of a whole unit, but in few places. It must stay well below what BF16 itself
// costs. Measured 1e-14 to 7e-6, with KL up to 5e-5.
constexpr double kCosineToRef = 2e-5;
constexpr double kKlToRef = 2e-4;

// With experts, what BF16 moves can tip a router that was nearly undecided (the dumps' closest
// choices are 0.004 to 0.012 of a logit apart): that row then has another expert, an error of the
// size of its output. Measured up to 2.5e-4, with KL 2.3e-3 (modelopt-qwen3-moe, where two choices
// of layer 0 differ from the dump's); four times that is allowed, between tables too.
constexpr double kCosineWithExperts = 1e-3;
constexpr double kKlWithExperts = 1e-2;

TEST_P(FastPath, under_a16) {
  const auto& moe = testing::moe_directories();
  const bool experts = std::find(moe.begin(), moe.end(), GetParam()) != moe.end();
  const double cosine_to_dump = experts ? kCosineWithExperts : kCosineToDump;
  const double kl_to_dump = experts ? kKlWithExperts : kKlToDump;
  const double cosine_to_ref = experts ? kCosineWithExperts : kCosineToRef;
  const double kl_to_ref = experts ? kKlWithExperts : kKlToRef;
  const std::vector<float> dump = dump_floats(GetParam(), "logits");
  const std::vector<float> ref = logits_of(GetParam(), "ref");
  ASSERT_EQ(ref.size(), dump.size());
  const auto n_rows =
      static_cast<int64_t>(dump_ids(GetParam()).size() * dump_ids(GetParam())[0].size());
  const int64_t n_vocab = static_cast<int64_t>(dump.size()) / n_rows;
  EXPECT_LE(1 - cosine(ref, dump), cosine_to_dump);
  EXPECT_LE(mean_kl(dump, ref, n_vocab), kl_to_dump);
  for (const Ops* ops : available_ops()) {
    const std::vector<float> fast = logits_of(GetParam(), ops->name);
    ASSERT_EQ(fast.size(), ref.size()) << ops->name;
    EXPECT_LE(1 - cosine(fast, ref), cosine_to_ref) << ops->name;
    EXPECT_LE(mean_kl(ref, fast, n_vocab), kl_to_ref) << ops->name;
    EXPECT_LE(1 - cosine(fast, dump), cosine_to_dump) << ops->name;
    EXPECT_LE(mean_kl(dump, fast, n_vocab), kl_to_dump) << ops->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FastPath, ::testing::ValuesIn(testing::model_directories()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sextant
