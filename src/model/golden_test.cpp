// Whole models against golden dumps, and the promises of the forward pass: results do not depend on
// how ids are chunked, on threads or on what else is in the batch, bit for bit within one table.
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "model/model.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::chunks_of;
using testing::dump_floats;
using testing::dump_ids;
using testing::golden_dir;
using testing::model_directories;
using testing::run_logits;

std::shared_ptr<const Model> load(const std::string& directory, const std::string& policy,
                                  const std::string& isa, ThreadPool& pool) {
  ModelOptions options;
  options.isa = isa;
  options.policies = {policy};
  auto model = Model::load(golden_dir(directory), options, pool);
  EXPECT_TRUE(model.has_value()) << directory << ": " << model.error().text;
  return model ? *model : nullptr;
}

// Equal bits, so that NaN equals NaN and 0 differs from -0.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool is_dynamic(const Model& model) { return model.config().rope.kind == RopeKind::kDynamic; }

std::vector<float> part_of(const std::vector<float>& all, size_t i, size_t n_parts) {
  const size_t size = all.size() / n_parts;
  return {all.begin() + static_cast<std::ptrdiff_t>(i * size),
          all.begin() + static_cast<std::ptrdiff_t>((i + 1) * size)};
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double diff = std::abs(double{a[i]} - double{b[i]});
    if (!(diff <= largest)) largest = diff;
  }
  return largest;
}

class Golden : public ::testing::TestWithParam<std::string> {};

// The bounds of dump.json, which forge's compare_dump holds every tensor to; here the coarsest of
// them, so that this folder stands on its own.
constexpr double kLogitBound = 9.3e-4;

TEST_P(Golden, logits_of_one_prefill_and_of_decode) {
  ThreadPool pool(2);
  const auto model = load(GetParam(), "f32", "", pool);
  ASSERT_NE(model, nullptr);
  const auto ids = dump_ids(GetParam());
  const auto expected = dump_floats(GetParam(), "logits");
  const auto cached = is_dynamic(*model) ? dump_floats(GetParam(), "logits_cached") : expected;
  for (size_t s = 0; s < ids.size(); ++s) {
    const auto n = static_cast<int64_t>(ids[s].size());
    const auto whole = run_logits(*model, ids[s], {n}, pool);
    EXPECT_LE(largest_difference(whole, part_of(expected, s, ids.size())), kLogitBound);
    const auto decoded = run_logits(*model, ids[s], chunks_of(n, 1), pool);
    EXPECT_LE(largest_difference(decoded, part_of(cached, s, ids.size())), kLogitBound);
  }
}

TEST_P(Golden, chunks_and_threads_change_no_bit) {
  ThreadPool one(1);
  ThreadPool two(2);
  const auto ids = dump_ids(GetParam());
  for (const Ops* ops : available_ops())
    for (const char* policy : {"f32", "a16", "a4:token", "a8"}) {
      const auto model = load(GetParam(), policy, ops->name, two);
      ASSERT_NE(model, nullptr);
      const auto n = static_cast<int64_t>(ids[0].size());
      const auto whole = run_logits(*model, ids[0], {n}, two);
      EXPECT_TRUE(same_bits(whole, run_logits(*model, ids[0], {n}, one)))
          << ops->name << " " << policy << ": one thread";
      if (is_dynamic(*model)) {
        EXPECT_TRUE(same_bits(run_logits(*model, ids[0], chunks_of(n, 1), one),
                              run_logits(*model, ids[0], chunks_of(n, 1), two)));
        continue;
      }
      for (const int64_t chunk : {1, 5, 16, 31})
        EXPECT_TRUE(same_bits(whole, run_logits(*model, ids[0], chunks_of(n, chunk), two)))
            << ops->name << " " << policy << ": chunks of " << chunk;
    }
}

TEST_P(Golden, a_batch_is_its_sequences) {
  ThreadPool pool(2);
  const auto model = load(GetParam(), "a16", "", pool);
  ASSERT_NE(model, nullptr);
  const auto ids = dump_ids(GetParam());
  const int64_t n_vocab = model->config().n_vocab;
  // Two sequences of different lengths; the second gives the logits of its last two rows only.
  const std::vector<int32_t> a(ids[0].begin(), ids[0].begin() + 21);
  const std::vector<int32_t> b(ids[1].begin(), ids[1].begin() + 7);
  KvPool pages(model->kv_layout(), 8);
  KvSequence kv_a(pages);
  KvSequence kv_b(pages);
  ASSERT_TRUE(kv_a.reserve(21) && kv_b.reserve(7));
  const StepBuffersPtr buffers = model->make_buffers(28, 23);
  std::vector<float> logits(static_cast<size_t>(23 * n_vocab));
  const StepSeq seqs[] = {{&kv_a, a, 0, 21}, {&kv_b, b, 0, 2}};
  model->forward(seqs, *buffers, Mat<float>(logits.data(), 23, n_vocab), nullptr, pool);
  auto expected = run_logits(*model, a, {21}, pool);
  const auto all_b = run_logits(*model, b, {7}, pool);
  expected.insert(expected.end(), all_b.begin() + 5 * n_vocab, all_b.end());
  EXPECT_TRUE(same_bits(logits, expected));
}

// Dynamic NTK excepted, where the frequencies are those of the call.
TEST_P(Golden, every_chunk_size) {
  ThreadPool pool(2);
  const auto model = load(GetParam(), "f32", "", pool);
  ASSERT_NE(model, nullptr);
  if (is_dynamic(*model)) return;
  const auto ids = dump_ids(GetParam());
  const auto n = static_cast<int64_t>(ids[1].size());
  const auto whole = run_logits(*model, ids[1], {n}, pool);
  for (int64_t chunk = 1; chunk <= n; ++chunk)
    EXPECT_TRUE(same_bits(whole, run_logits(*model, ids[1], chunks_of(n, chunk), pool)))
        << "chunks of " << chunk;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::ValuesIn(model_directories()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sextant
