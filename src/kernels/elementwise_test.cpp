// Norm, rope, SwiGLU, additions, embedding and cache stores of every table: against ref with
// derived bounds, or bit for bit where an operation has only one right answer.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "kernels/test_data.h"
#include "quant/bf16.h"

namespace sextant {
namespace {

constexpr int64_t kWidths[] = {1, 2, 7, 8, 9, 15, 16, 31, 64, 100, 576, 1537, 4096};
constexpr int64_t kRows[] = {0, 1, 2, 3, 17};

std::vector<float> random_vector(int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& value : v) value = random.normalish();
  return v;
}

// The sum of squares has d roundings of additions and d of products at most; the square root halves
// a relative error; mean, eps, root, quotient and two products add one each.
TEST(RmsNorm, AgreesWithRefAndRowsAreInvariant) {
  ThreadPool one(1);
  ThreadPool pool(3);
  for (const Ops* ops : available_ops()) {
    for (const int64_t d : kWidths) {
      const std::vector<float> weight = random_vector(d, 1);
      for (const int64_t m : kRows) {
        GapMat x = random_mat(m, d, 2);
        GapMat want(m, d), y(m, d);
        available_ops().back()->rms_norm(x.view, weight, 1e-5F, want.view, one);
        ops->rms_norm(x.view, weight, 1e-5F, y.view, pool);
        EXPECT_TRUE(y.gaps_intact()) << ops->name;
        const double relative = (static_cast<double>(d) + 8) * 0x1p-24;
        for (int64_t i = 0; i < m; ++i) {
          GapMat single(1, d);
          ops->rms_norm(x.view.row_range(i, 1), weight, 1e-5F, single.view, one);
          EXPECT_TRUE(same_bits(single.view.row(0), y.view.row(i))) << ops->name << " d " << d;
          for (int64_t j = 0; j < d; ++j)
            ASSERT_NEAR(y.view.at(i, j), want.view.at(i, j),
                        relative * std::abs(double{want.view.at(i, j)}))
                << ops->name << " d " << d;
        }
        ops->rms_norm(x.view, weight, 1e-5F, x.view, pool);  // in place
        for (int64_t i = 0; i < m; ++i)
          EXPECT_TRUE(same_bits(x.view.row(i), y.view.row(i))) << ops->name;
      }
    }
  }
}

TEST(RmsNorm, NanAndZeroRows) {
  ThreadPool pool(1);
  const std::vector<float> weight(37, 1.0F);
  for (const Ops* ops : available_ops()) {
    GapMat x = random_mat(3, 37, 3);
    x.view.at(1, 36) = std::numeric_limits<float>::quiet_NaN();
    for (float& value : x.view.row(2)) value = 0.0F;
    GapMat y(3, 37);
    ops->rms_norm(x.view, weight, 1e-6F, y.view, pool);
    for (int64_t j = 0; j < 37; ++j) {
      EXPECT_FALSE(std::isnan(y.view.at(0, j))) << ops->name;
      EXPECT_TRUE(std::isnan(y.view.at(1, j))) << ops->name;
      EXPECT_EQ(y.view.at(2, j), 0.0F) << ops->name;
    }
  }
}

TEST(Rope, AgreesWithRef) {
  ThreadPool pool(3);
  for (const Ops* ops : available_ops()) {
    for (const int64_t head_dim : {2, 6, 16, 20, 64, 80, 128}) {
      for (const int64_t half : {int64_t{1}, head_dim / 4, head_dim / 2}) {
        if (half == 0) continue;
        for (const int64_t m : kRows) {
          GapMat x = random_mat(m, 3 * head_dim, 4);
          GapMat want = random_mat(m, 3 * head_dim, 4);
          const GapMat before = random_mat(m, 3 * head_dim, 4);
          const GapMat cos = random_mat(m, half, 5);
          const GapMat sin = random_mat(m, half, 6);
          available_ops().back()->rope(want.view, 3, head_dim, cos.view, sin.view, pool);
          ops->rope(x.view, 3, head_dim, cos.view, sin.view, pool);
          EXPECT_TRUE(x.gaps_intact()) << ops->name;
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t col = 0; col < 3 * head_dim; ++col) {
              const int64_t dim = col % head_dim;
              const int64_t pair = dim < half ? col + half : col - half;
              if (dim >= 2 * half) {
                ASSERT_EQ(x.view.at(i, col), before.view.at(i, col)) << ops->name;
                continue;
              }
              const int64_t angle = dim % half;
              const double size = std::abs(double{before.view.at(i, col)} * cos.view.at(i, angle)) +
                                  std::abs(double{before.view.at(i, pair)} * sin.view.at(i, angle));
              ASSERT_NEAR(x.view.at(i, col), want.view.at(i, col), 3 * 0x1p-24 * size) << ops->name;
            }
          }
        }
      }
    }
  }
}

// exp within 2^-21 as every table states, one addition, division and product: 2^-20 in all. Below
// exp(-87) a table may give zero for silu.
TEST(SiluMul, AgreesWithRefOverTheWholeRange) {
  ThreadPool pool(2);
  constexpr int64_t kCount = 40000;
  GapMat gate(3, kCount), up(3, kCount);
  Random random(7);
  for (int64_t j = 0; j < kCount; ++j) {
    gate.view.at(0, j) = static_cast<float>((random.uniform() - 0.5) * 240);
    gate.view.at(1, j) = static_cast<float>((random.uniform() - 0.5) * 8);
    gate.view.at(2, j) = std::bit_cast<float>(static_cast<uint32_t>(random.next()));
    for (int64_t i = 0; i < 3; ++i) up.view.at(i, j) = random.normalish();
  }
  GapMat want(3, kCount);
  available_ops().back()->silu_mul(gate.view, up.view, want.view, pool);
  for (const Ops* ops : available_ops()) {
    GapMat out(3, kCount);
    ops->silu_mul(gate.view, up.view, out.view, pool);
    EXPECT_TRUE(out.gaps_intact());
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < kCount; ++j) {
        const double expected = want.view.at(i, j);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(out.view.at(i, j))) << ops->name << " " << gate.view.at(i, j);
          continue;
        }
        if (std::isinf(expected)) {
          ASSERT_EQ(out.view.at(i, j), want.view.at(i, j)) << ops->name;
          continue;
        }
        ASSERT_NEAR(out.view.at(i, j), expected,
                    0x1p-20 * std::abs(expected) + 1e-35 * std::abs(double{up.view.at(i, j)}))
            << ops->name << " gate " << gate.view.at(i, j);
      }
    }
  }
}

TEST(SiluMul, WidthsPlacesAndNan) {
  ThreadPool pool(2);
  for (const Ops* ops : available_ops()) {
    for (const int64_t d : kWidths) {
      for (const int64_t m : kRows) {
        GapMat gate = random_mat(m, d, 8), up = random_mat(m, d, 9);
        if (m > 0) gate.view.at(m - 1, d - 1) = std::numeric_limits<float>::quiet_NaN();
        GapMat out(m, d);
        ops->silu_mul(gate.view, up.view, out.view, pool);
        EXPECT_TRUE(out.gaps_intact()) << ops->name;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < d; ++j)
            ASSERT_EQ(std::isnan(out.view.at(i, j)), i == m - 1 && j == d - 1) << ops->name;
        ops->silu_mul(gate.view, up.view, gate.view, pool);  // in place
        for (int64_t i = 0; i < m; ++i)
          EXPECT_TRUE(same_bits(gate.view.row(i), out.view.row(i))) << ops->name;
      }
    }
  }
}

TEST(Add, IsTheFloatSum) {
  ThreadPool pool(2);
  for (const Ops* ops : available_ops()) {
    for (const int64_t d : kWidths) {
      for (const int64_t m : kRows) {
        GapMat x = random_mat(m, d, 10);
        const GapMat before = random_mat(m, d, 10), y = random_mat(m, d, 11);
        const std::vector<float> bias = random_vector(d, 12);
        ops->add(x.view, y.view, pool);
        EXPECT_TRUE(x.gaps_intact()) << ops->name;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < d; ++j)
            ASSERT_EQ(x.view.at(i, j), before.view.at(i, j) + y.view.at(i, j)) << ops->name;
        ops->add_bias(x.view, bias, pool);
        EXPECT_TRUE(x.gaps_intact()) << ops->name;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < d; ++j)
            ASSERT_EQ(x.view.at(i, j),
                      (before.view.at(i, j) + y.view.at(i, j)) + bias[static_cast<size_t>(j)])
                << ops->name;
      }
    }
  }
}

TEST(Embed, RowsOfEveryDtypeAtAnyAddress) {
  const std::vector<float> values = random_vector(5 * 37, 13);
  for (const Ops* ops : available_ops()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const int64_t size = dtype == DType::kF32 ? 4 : 2;
      GuardedBytes table(5 * 37 * size + 1);
      std::byte* base = table.data() + 1;  // odd address
      for (int64_t i = 0; i < 5 * 37; ++i) {
        const float value = values[static_cast<size_t>(i)];
        const uint16_t half =
            dtype == DType::kBF16 ? f32_to_bf16(value) : static_cast<uint16_t>(0x3C00 + i);  // FP16
        std::memcpy(base + i * size, size == 4 ? static_cast<const void*>(&value) : &half,
                    static_cast<size_t>(size));
      }
      const std::vector<int32_t> ids = {4, 0, 3, 4};
      GapMat out(4, 37);
      ops->embed(base, dtype, 37, ids, out.view);
      EXPECT_TRUE(out.gaps_intact());
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < 37; ++j) {
          const int64_t at = ids[static_cast<size_t>(i)] * 37 + j;
          float want = values[static_cast<size_t>(at)];
          if (dtype == DType::kBF16) want = round_to_bf16(want);
          if (dtype == DType::kF16) want = fp16_to_f32(static_cast<uint16_t>(0x3C00 + at));
          ASSERT_EQ(out.view.at(i, j), want) << ops->name;
        }
      }
    }
  }
}

// Ties to even, carries into the exponent, overflow to infinity, NaN stays NaN: one value for every
// upper half and some lower halves around the tie.
TEST(StoreKv, RoundsAsBf16Does) {
  std::vector<float> src;
  for (uint32_t high = 0; high < 0x10000; high += 7)
    for (const uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      src.push_back(std::bit_cast<float>(high << 16 | low));
  for (const uint32_t high : {0x7F80U, 0xFF80U, 0x7F7FU, 0x7FFFU, 0x7FC0U})
    for (const uint32_t low : {0U, 1U, 0x8000U, 0xFFFFU})
      src.push_back(std::bit_cast<float>(high << 16 | low));
  for (const Ops* ops : available_ops()) {
    for (const int64_t n :
         {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{33}, static_cast<int64_t>(src.size())}) {
      GuardedBytes out(n * 2);
      ops->store_kv({src.data(), static_cast<size_t>(n)}, DType::kBF16, out.data());
      for (int64_t i = 0; i < n; ++i) {
        uint16_t half = 0;
        std::memcpy(&half, out.data() + i * 2, 2);
        const float x = src[static_cast<size_t>(i)];
        if (std::isnan(x))
          ASSERT_TRUE(std::isnan(bf16_to_f32(half))) << ops->name;
        else
          ASSERT_EQ(half, f32_to_bf16(x)) << ops->name << " " << std::bit_cast<uint32_t>(x);
      }
      EXPECT_TRUE(out.guards_intact()) << ops->name;
      GuardedBytes copy(n * 4);
      ops->store_kv({src.data(), static_cast<size_t>(n)}, DType::kF32, copy.data());
      if (n > 0) {
        EXPECT_EQ(std::memcmp(copy.data(), src.data(), static_cast<size_t>(n * 4)), 0);
      }
      EXPECT_TRUE(copy.guards_intact()) << ops->name;
    }
  }
}

}  // namespace
}  // namespace sextant
