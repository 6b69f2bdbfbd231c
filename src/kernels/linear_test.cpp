// Every table's linear against ref over one table of shapes, with a bound that is derived, and what
// must hold exactly: a row's bits do not depend on the other rows or on the number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "kernels/test_data.h"
#include "quant/bf16.h"
#include "quant/e4m3.h"
#include "quant/input_quantizer.h"

namespace sextant {
namespace {

struct Shape {
  int64_t n, k;
};
// Odd, tiny, empty; block tails; more rows and columns than any tile.
constexpr Shape kShapes[] = {{1, 16},   {3, 16},    {4, 48},    {15, 48}, {16, 64}, {17, 80},
                             {31, 32},  {32, 96},   {33, 112},  {40, 40}, {5, 24},  {2, 8},
                             {64, 256}, {80, 320},  {100, 640}, {0, 64},  {7, 0},   {20, 4144},
                             {150, 64}, {257, 176}, {48, 10000}};
// Any k for the forms without blocks of 16.
constexpr Shape kRaggedShapes[] = {{1, 1},    {3, 7},    {33, 13}, {16, 33},
                                   {40, 100}, {65, 255}, {9, 1025}};
constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 31, 32, 33, 127, 129};

std::vector<const Ops*> fast_tables() {
  std::vector<const Ops*> tables = available_ops();
  tables.pop_back();  // ref
  return tables;
}

// |float32 sum - exact| <= N u / (1 - N u) * sum |w x| for N roundings on the way of a product
// (Higham, Accuracy and Stability, section 4.2), u = 2^-24. On the way: one rounding of the product
// and one addition for each of k columns, scale and addition for each block of 8 or more, and a
// multiplier. vdpbf16ps moreover reads subnormal inputs as zero and flushes subnormal results: at
// most 2^-126 (|w| + |x| + 1) a product. ref rounds once.
double bound(double sum_abs, double sum_w, double sum_x, int64_t k, double multiplier, double ref) {
  const double roundings = static_cast<double>(2 * k + 2 * ceil_div(k, 8) + 4);
  const double nu = roundings * 0x1p-24;
  return multiplier *
             (nu / (1 - nu) * sum_abs + 0x1p-118 * (sum_w + sum_x + static_cast<double>(k))) +
         0x1p-24 * std::abs(ref) + 0x1p-149;
}

// sum_c |w(r, c) x(i, c)| through ref itself: absolute weights and activations.
struct Magnitudes {
  GapMat products;  // [m, n]
  GapMat weights;   // [1, n]
};

// The bytes of a form with every sign cleared.
TestLinear absolute(const TestLinear& w) {
  TestLinear a = w;
  const int64_t size = w.form == WeightForm::kF32 ? 4 : w.form == WeightForm::kFp8 ? 1 : 2;
  for (int64_t i = 0; i < a.weight.size(); ++i) {
    std::byte& b = a.weight.data()[i];
    if (w.form == WeightForm::kNvfp4 || w.form == WeightForm::kMxfp4)
      b &= std::byte{0x77};
    else if (i % size == size - 1)
      b &= std::byte{0x7F};
  }
  if (w.form == WeightForm::kNvfp4)
    for (int64_t i = 0; i < a.scales.size(); ++i) a.scales.data()[i] &= std::byte{0x7F};
  a.multiplier.clear();
  return a;
}

Magnitudes magnitudes(const TestLinear& w, Mat<const float> x, ThreadPool& pool) {
  const TestLinear a = absolute(w);
  const PackedLinear packed = available_ops().back()->pack(a.source(), pool);
  GapMat x_abs(x.rows, x.cols);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.cols; ++j) x_abs.view.at(i, j) = std::abs(x.at(i, j));
  GapMat ones(1, x.cols);
  for (int64_t j = 0; j < x.cols; ++j) ones.view.at(0, j) = 1.0F;
  const Ops& ref = *available_ops().back();
  return {run_linear(ref, packed, x_abs.view, ActForm::kF32, pool),
          run_linear(ref, packed, ones.view, ActForm::kF32, pool)};
}

void expect_close(const Ops& ops, const TestLinear& w, Mat<const float> x, ActForm act,
                  ThreadPool& pool) {
  const Ops& ref = *available_ops().back();
  const PackedLinear packed = ops.pack(w.source(), pool);
  const PackedLinear packed_ref = ref.pack(w.source(), pool);
  const GapMat y = run_linear(ops, packed, x, act, pool);
  const GapMat want = run_linear(ref, packed_ref, x, act, pool);
  const Magnitudes size = magnitudes(w, x, pool);
  for (int64_t i = 0; i < x.rows; ++i) {
    double sum_x = 0.0;
    for (const float value : x.row(i)) sum_x += std::abs(double{value});
    for (int64_t r = 0; r < w.n; ++r) {
      const double g =
          w.multiplier.empty() ? 1.0 : std::abs(double{w.multiplier[static_cast<size_t>(r)]});
      const double limit =
          bound(1.01 * double{size.products.view.at(i, r)}, double{size.weights.view.at(0, r)},
                sum_x, w.k, g, double{want.view.at(i, r)});
      ASSERT_LE(std::abs(double{y.view.at(i, r)} - double{want.view.at(i, r)}), limit)
          << ops.name << " " << form_name(w.form) << " n " << w.n << " k " << w.k << " m " << x.rows
          << " at (" << i << ", " << r << "), act " << static_cast<int>(act) << ": found "
          << y.view.at(i, r) << ", expected " << want.view.at(i, r);
    }
  }
  EXPECT_TRUE(w.weight.guards_intact() && w.scales.guards_intact());
}

TEST(Linear, EveryTableFormAndShapeAgreesWithRef) {
  ThreadPool pool(2);
  uint64_t seed = 1;
  for (const Ops* ops : fast_tables()) {
    for (const WeightForm form : kAllForms) {
      for (const Shape shape : kShapes) {
        const TestLinear w = random_linear(form, shape.n, shape.k, ++seed);
        for (const int64_t m : {1, 2, 3, 4, 7, 13, 33}) {
          if (m * shape.n * shape.k > 3'000'000) continue;
          const GapMat x = random_mat(m, shape.k, ++seed);
          for (const ActForm act : {ActForm::kF32, ActForm::kBf16})
            expect_close(*ops, w, x.view, act, pool);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Linear, AnyColumnCountWithoutBlocks) {
  ThreadPool pool(2);
  uint64_t seed = 1000;
  for (const Ops* ops : fast_tables()) {
    for (const WeightForm form :
         {WeightForm::kF32, WeightForm::kBf16, WeightForm::kF16, WeightForm::kFp8}) {
      for (const Shape shape : kRaggedShapes) {
        const TestLinear w = random_linear(form, shape.n, shape.k, ++seed);
        for (const int64_t m : {1, 2, 5, 17}) {
          const GapMat x = random_mat(m, shape.k, ++seed);
          for (const ActForm act : {ActForm::kF32, ActForm::kBf16})
            expect_close(*ops, w, x.view, act, pool);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Inputs as quantizer A makes them, code times block scale, from values whose blocks differ in
// size.
GapMat random_nvfp4_input(int64_t m, int64_t k, uint64_t seed) {
  GapMat x = random_mat(m, k, seed);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j)
      x.view.at(i, j) *= std::ldexp(1.0F, static_cast<int>((i * 7 + j / 16 * 5) % 13) - 6);
  std::vector<float> multipliers(static_cast<size_t>(m));
  const InputQuantizer quantizer{InputForm::kNvfp4, InputScale::kTensor};
  quantize_input(quantizer, x.view, x.view, multipliers);
  return x;
}

// peers.md 3c: with both sides NVFP4 a block's contribution is exact in float32 and blocks are
// added in one order, so that every table gives the bits of ref.
TEST(Linear, NVFP4_times_NVFP4_is_equal_bit_for_bit_in_every_table) {
  ThreadPool pool(2);
  const Ops& ref = *available_ops().back();
  uint64_t seed = 7000;
  int64_t n_compared = 0;
  for (const Ops* ops : fast_tables()) {
    for (const Shape shape : kShapes) {
      const TestLinear w = random_linear(WeightForm::kNvfp4, shape.n, shape.k, ++seed);
      const PackedLinear packed = ops->pack(w.source(), pool);
      const PackedLinear packed_ref = ref.pack(w.source(), pool);
      for (const int64_t m : {1, 2, 3, 4, 7, 13, 33}) {
        if (m * shape.n * shape.k > 3'000'000) continue;
        const GapMat x = random_nvfp4_input(m, shape.k, ++seed);
        const GapMat y = run_linear(*ops, packed, x.view, ActForm::kNvfp4, pool);
        const GapMat want = run_linear(ref, packed_ref, x.view, ActForm::kNvfp4, pool);
        for (int64_t i = 0; i < m; ++i)
          ASSERT_TRUE(same_bits(y.view.row(i), want.view.row(i)))
              << ops->name << " n " << shape.n << " k " << shape.k << " m " << m << " row " << i;
        n_compared += m * shape.n;
      }
    }
  }
  EXPECT_GT(n_compared, 0);
}

// What explain prints: exactness is claimed where both sides are NVFP4 and nowhere else.
TEST(Linear, a_path_says_where_block_sums_are_exact) {
  for (const Ops* ops : available_ops())
    for (const WeightForm form : kAllForms)
      for (const ActForm act : {ActForm::kF32, ActForm::kBf16, ActForm::kNvfp4}) {
        const bool exact = ops->linear_path(form, act).find("exact") != std::string_view::npos;
        EXPECT_EQ(exact, form == WeightForm::kNvfp4 && act == ActForm::kNvfp4)
            << ops->name << " " << form_name(form);
      }
}

// By hand: 6 * 448 against 6 * 448 over 32 columns, and one block of 2^-9 * 0.5 behind it.
TEST(Linear, NVFP4_times_NVFP4_by_hand) {
  ThreadPool pool(1);
  const Shape shape{1, 48};
  TestLinear w = random_linear(WeightForm::kNvfp4, shape.n, shape.k, 1);
  w.multiplier.clear();
  std::fill_n(w.weight.data(), 24, std::byte{0x77});
  std::fill_n(w.scales.data(), 3, std::byte{0x7E});
  w.scales.data()[2] = std::byte{0x01};
  GapMat x(1, 48);
  for (int64_t j = 0; j < 48; ++j) x.view.at(0, j) = j < 32 ? 2688.0F : 0x1p-10F;
  // Two blocks of 16 * 2688^2 = 115605504 (exact, 2^18 * 441), then 16 * 6 * 2^-9 * 2^-10.
  const float expected = (115605504.0F + 115605504.0F) + 96.0F * 0x1p-19F;
  for (const Ops* ops : available_ops()) {
    const GapMat y = run_linear(*ops, ops->pack(w.source(), pool), x.view, ActForm::kNvfp4, pool);
    EXPECT_EQ(y.view.at(0, 0), expected) << ops->name;
  }
}

// 128 x 128 blocks with ragged edges in both directions, other block sizes, every scale dtype.
TEST(Linear, Fp8Blocks) {
  ThreadPool pool(2);
  struct Case {
    int64_t n, k, block_n, block_k;
    DType dtype;
  };
  const Case cases[] = {{128, 128, 128, 128, DType::kF32},  {130, 200, 128, 128, DType::kF32},
                        {257, 384, 128, 128, DType::kBF16}, {100, 1300, 128, 128, DType::kF8E8M0},
                        {40, 96, 16, 32, DType::kF16},      {33, 70, 3, 20, DType::kF32},
                        {20, 64, 1, 64, DType::kF32},       {10, 2200, 4, 2048, DType::kF32}};
  uint64_t seed = 2000;
  for (const Ops* ops : fast_tables()) {
    for (const Case& c : cases) {
      const TestLinear w = random_fp8_blocks(c.n, c.k, c.block_n, c.block_k, c.dtype, ++seed);
      for (const int64_t m : {1, 2, 5, 9, 33}) {
        const GapMat x = random_mat(m, c.k, ++seed);
        for (const ActForm act : {ActForm::kF32, ActForm::kBf16})
          expect_close(*ops, w, x.view, act, pool);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Row i of the result does not depend on how many rows the call has, nor on the threads (C085).
TEST(Linear, RowsAreInvariant) {
  uint64_t seed = 3000;
  for (const Ops* ops : available_ops()) {
    const bool is_ref = std::strcmp(ops->name, "ref") == 0;
    for (const WeightForm form : kAllForms) {
      for (const Shape shape : {Shape{77, 208}, Shape{40, 40}, Shape{33, 2096}}) {
        if (is_ref && shape.k > 1000) continue;
        ThreadPool one(1);
        const TestLinear w = random_linear(form, shape.n, shape.k, ++seed);
        const PackedLinear packed = ops->pack(w.source(), one);
        const GapMat x = random_mat(129, shape.k, ++seed);
        for (const ActForm act : {ActForm::kF32, ActForm::kBf16}) {
          const GapMat all = run_linear(*ops, packed, x.view, act, one);
          for (const int n_threads : {1, 2, 5}) {
            ThreadPool pool(n_threads);
            for (const int64_t m : kRowCounts) {
              if (is_ref && m > 3) continue;
              const GapMat y = run_linear(*ops, packed, x.view.row_range(129 - m, m), act, pool);
              for (int64_t i = 0; i < m; ++i)
                ASSERT_TRUE(same_bits(y.view.row(i), all.view.row(129 - m + i)))
                    << ops->name << " " << form_name(form) << " m " << m << " row " << i
                    << " threads " << n_threads;
            }
          }
        }
      }
    }
  }
}

// The case as filed: one layer, N = 512, K = 256, token counts at which tiles change (C085).
TEST(Linear, BatchSizesThatSwitchKernels) {
  ThreadPool pool(2);
  const TestLinear w = random_linear(WeightForm::kNvfp4, 512, 256, 41);
  const GapMat x = random_mat(3072, 256, 42);
  for (const Ops* ops : fast_tables()) {
    const PackedLinear packed = ops->pack(w.source(), pool);
    const GapMat all = run_linear(*ops, packed, x.view, ActForm::kBf16, pool);
    for (const int64_t m : {1, 2, 3, 7, 8, 9, 31, 32, 33, 127, 128, 129, 1536}) {
      const GapMat y = run_linear(*ops, packed, x.view.row_range(0, m), ActForm::kBf16, pool);
      for (int64_t i = 0; i < m; ++i)
        ASSERT_TRUE(same_bits(y.view.row(i), all.view.row(i))) << ops->name << " m " << m;
    }
    for (int64_t i = 0; i < 3072; ++i) {
      double sum = 0.0;
      for (const float value : all.view.row(i)) sum += std::abs(double{value});
      ASSERT_GT(sum, 0.0) << "row " << i << " is zero";
    }
  }
}

// Three groups of 16 columns, scale buffers surrounded by poison, a thousand times (C080).
TEST(Linear, OddBlockCountWithPoisonAround) {
  const TestLinear w = random_linear(WeightForm::kNvfp4, 4, 48, 51);
  for (const Ops* ops : available_ops()) {
    for (const int n_threads : {1, 2, 5}) {
      ThreadPool pool(n_threads);
      const GapMat x = random_mat(2, 48, 52);
      if (std::strcmp(ops->name, "ref") != 0) expect_close(*ops, w, x.view, ActForm::kF32, pool);
      const PackedLinear packed = ops->pack(w.source(), pool);
      const GapMat first = run_linear(*ops, packed, x.view, ActForm::kF32, pool);
      for (int repeat = 0; repeat < 1000; ++repeat) {
        const GapMat y = run_linear(*ops, packed, x.view, ActForm::kF32, pool);
        ASSERT_TRUE(same_bits(y.view.row(0), first.view.row(0)) &&
                    same_bits(y.view.row(1), first.view.row(1)));
      }
    }
  }
}

// Several linears of one input, each with its own rows and form, split at the true row counts
// (C083).
TEST(Linear, SeveralShareOneInput) {
  ThreadPool pool(2);
  for (const Ops* ops : available_ops()) {
    const TestLinear w[] = {random_linear(WeightForm::kNvfp4, 352, 64, 61),
                            random_linear(WeightForm::kNvfp4, 37, 64, 62),
                            random_linear(WeightForm::kBf16, 13, 64, 63)};
    std::vector<PackedLinear> packed;
    for (const TestLinear& one : w) packed.push_back(ops->pack(one.source(), pool));
    for (const int64_t m : {1, 3, 40}) {
      const GapMat x = random_mat(m, 64, 64);
      const std::vector<const PackedLinear*> ws = {&packed[0], &packed[1], &packed[2]};
      GapMat y0(m, 352), y1(m, 37), y2(m, 13);
      const std::vector<Mat<float>> ys = {y0.view, y1.view, y2.view};
      ops->linear(ws, x.view, ActForm::kBf16, ys, pool);
      const GapMat* together[] = {&y0, &y1, &y2};
      for (size_t j = 0; j < 3; ++j) {
        EXPECT_TRUE(together[j]->gaps_intact());
        const GapMat alone = run_linear(*ops, packed[j], x.view, ActForm::kBf16, pool);
        for (int64_t i = 0; i < m; ++i)
          ASSERT_TRUE(same_bits(alone.view.row(i), together[j]->view.row(i))) << ops->name;
      }
    }
  }
}

// A NaN activation makes its own row NaN and leaves every other bit alone.
TEST(Linear, NanInputStaysInItsRow) {
  ThreadPool pool(2);
  for (const Ops* ops : available_ops()) {
    for (const WeightForm form : kAllForms) {
      const TestLinear w = random_linear(form, 35, 80, 71);
      const PackedLinear packed = ops->pack(w.source(), pool);
      for (const int64_t m : {1, 3, 8, 21}) {
        for (const ActForm act : {ActForm::kF32, ActForm::kBf16}) {
          GapMat x = random_mat(m, 80, 72);
          const GapMat clean = run_linear(*ops, packed, x.view, act, pool);
          x.view.at(m / 2, 79) = std::numeric_limits<float>::quiet_NaN();
          const GapMat y = run_linear(*ops, packed, x.view, act, pool);
          for (int64_t i = 0; i < m; ++i) {
            if (i != m / 2) {
              ASSERT_TRUE(same_bits(y.view.row(i), clean.view.row(i))) << ops->name;
              continue;
            }
            for (const float value : y.view.row(i)) ASSERT_TRUE(std::isnan(value)) << ops->name;
          }
        }
      }
    }
  }
}

// NaN in a weight, a block scale or a multiplier makes that output column NaN, nothing else.
TEST(Linear, NanWeightStaysInItsColumn) {
  ThreadPool pool(2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Ops* ops : available_ops()) {
    for (const WeightForm form : kAllForms) {
      const TestLinear clean = random_linear(form, 35, 80, 81);
      TestLinear w = clean;
      const int64_t row = 19;
      const uint16_t half = form == WeightForm::kBf16 ? 0x7FC0 : 0x7E00;
      if (form == WeightForm::kF32)
        std::memcpy(w.weight.data() + (row * 80 + 33) * 4, &nan, 4);
      else if (form == WeightForm::kBf16 || form == WeightForm::kF16)
        std::memcpy(w.weight.data() + (row * 80 + 33) * 2, &half, 2);
      else if (form == WeightForm::kFp8)
        w.weight.data()[row * 80 + 33] = std::byte{0xFF};
      else if (form == WeightForm::kNvfp4)
        w.scales.data()[row * 5 + 2] = std::byte{0x7F};
      else
        w.scales.data()[row * 3 + 1] = std::byte{0xFF};
      w.multiplier[3] = nan;
      const PackedLinear packed = ops->pack(w.source(), pool);
      const PackedLinear packed_clean = ops->pack(clean.source(), pool);
      for (const int64_t m : {1, 5, 21}) {
        const GapMat x = random_mat(m, 80, 82);
        for (const ActForm act : {ActForm::kF32, ActForm::kBf16}) {
          const GapMat y = run_linear(*ops, packed, x.view, act, pool);
          const GapMat want = run_linear(*ops, packed_clean, x.view, act, pool);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t r = 0; r < 35; ++r) {
              if (r == row || r == 3)
                ASSERT_TRUE(std::isnan(y.view.at(i, r)))
                    << ops->name << " " << form_name(form) << " column " << r;
              else
                ASSERT_EQ(y.view.at(i, r), want.view.at(i, r))
                    << ops->name << " " << form_name(form) << " column " << r;
            }
          }
        }
      }
    }
  }
}

// Every E4M3 block scale and code, every E2M1 code: one product each, exact in every table.
TEST(Linear, EveryCodeIsExact) {
  ThreadPool pool(1);
  for (const Ops* ops : available_ops()) {
    TestLinear fp8 = random_linear(WeightForm::kFp8, 256, 1, 91);
    fp8.multiplier.clear();
    for (int64_t i = 0; i < 256; ++i) fp8.weight.data()[i] = static_cast<std::byte>(i);
    GapMat x(1, 1);
    x.view.at(0, 0) = 1.5F;
    const GapMat y = run_linear(*ops, ops->pack(fp8.source(), pool), x.view, ActForm::kBf16, pool);
    for (int64_t i = 0; i < 256; ++i) {
      const float want = kE4m3Values[static_cast<size_t>(i)] * 1.5F;
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(y.view.at(0, i))) << ops->name << " code " << i;
      else
        EXPECT_EQ(y.view.at(0, i), want) << ops->name << " code " << i;
    }
    TestLinear fp4 = random_linear(WeightForm::kNvfp4, 256, 16, 92);
    fp4.multiplier.clear();
    constexpr float kValues[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6};
    for (int64_t code = 0; code < 16; ++code) {
      for (int64_t i = 0; i < 256; ++i) fp4.scales.data()[i] = static_cast<std::byte>(i);
      for (int64_t i = 0; i < 256 * 8; ++i)
        fp4.weight.data()[i] = static_cast<std::byte>(code * 17);
      GapMat one_hot(16, 16);
      for (int64_t i = 0; i < 16; ++i)
        for (int64_t j = 0; j < 16; ++j) one_hot.view.at(i, j) = i == j ? 1.0F : 0.0F;
      const GapMat z =
          run_linear(*ops, ops->pack(fp4.source(), pool), one_hot.view, ActForm::kBf16, pool);
      for (int64_t i = 0; i < 16; ++i) {
        for (int64_t r = 0; r < 256; ++r) {
          const float want = kE4m3Values[static_cast<size_t>(r)] * kValues[code];
          if (std::isnan(want))
            ASSERT_TRUE(std::isnan(z.view.at(i, r))) << ops->name << " scale " << r;
          else
            ASSERT_EQ(z.view.at(i, r), want)
                << ops->name << " scale " << r << " code " << code << " column " << i;
        }
      }
    }
  }
}

struct Released {
  std::vector<int64_t> rows;
};

// The packer says which rows it is done with, growing, up to all; the source may go afterwards.
TEST(Linear, PackReadsTheSourceOnceInOrder) {
  ThreadPool pool(2);
  for (const Ops* ops : available_ops()) {
    for (const WeightForm form : kAllForms) {
      TestLinear w = random_linear(form, 1000, 4096, 101);
      Released released;
      WeightSource source = w.source();
      source.release_context = &released;
      source.release = [](void* context, int64_t row_end) {
        static_cast<Released*>(context)->rows.push_back(row_end);
      };
      const GapMat x = random_mat(1, 4096, 102);
      const PackedLinear before = ops->pack(w.source(), pool);
      const PackedLinear packed = ops->pack(source, pool);
      ASSERT_FALSE(released.rows.empty());
      EXPECT_EQ(released.rows.back(), 1000);
      for (size_t i = 1; i < released.rows.size(); ++i)
        EXPECT_LT(released.rows[i - 1], released.rows[i]);
      std::memset(w.weight.data(), kPoison, static_cast<size_t>(w.weight.size()));
      if (w.scales.size() > 0)
        std::memset(w.scales.data(), kPoison, static_cast<size_t>(w.scales.size()));
      const GapMat y = run_linear(*ops, packed, x.view, ActForm::kF32, pool);
      const GapMat want = run_linear(*ops, before, x.view, ActForm::kF32, pool);
      EXPECT_TRUE(same_bits(y.view.row(0), want.view.row(0))) << ops->name << form_name(form);
      // Memory stays near one copy: a tenth at most for the padding to whole groups of rows and
      // for layouts that repeat a block's scale.
      const int64_t source_bytes = w.weight.size() + w.scales.size();
      EXPECT_LE(packed.data.size(), source_bytes + source_bytes / 10) << ops->name;
      EXPECT_GE(packed.weight_bytes, w.weight.size()) << ops->name;
    }
  }
}

}  // namespace
}  // namespace sextant
