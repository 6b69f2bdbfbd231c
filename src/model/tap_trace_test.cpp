// Statistics against arithmetic by hand and against the codes of another framework; planted faults
// against where they were planted.
#include "model/tap_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>

#include "io/safetensors.h"
#include "model/bad_tap_cause.h"
#include "model/testing/golden.h"

namespace sextant {
namespace {

using testing::EditedCheckpoint;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(TapStatistics, ByHand) {
  std::vector<float> row(11, 0.0F);
  row[2] = 3.0F;
  row[9] = -4.0F;  // beyond the last whole vector
  const RowStatistics clean = measure_row(row);
  EXPECT_EQ(clean.amax, 4.0F);
  EXPECT_EQ(clean.sum_squares, 25.0);
  EXPECT_EQ(clean.n_bad(), 0);
  EXPECT_EQ(clean.first_bad, -1);
  row[4] = -kInf;
  row[6] = kNan;
  row[10] = kInf;
  const RowStatistics bad = measure_row(row);
  EXPECT_EQ(bad.amax, 4.0F);
  EXPECT_EQ(bad.sum_squares, 25.0);
  EXPECT_EQ(bad.n_nan, 1);
  EXPECT_EQ(bad.n_inf, 2);
  EXPECT_EQ(bad.first_bad, 4);
  TapStatistics tap;
  tap.add(clean, 11);
  tap.add(bad, 11);
  EXPECT_EQ(tap.n_bad(), 3);
  EXPECT_DOUBLE_EQ(tap.rms(), std::sqrt(50.0 / 19));  // 22 elements, 3 of them not finite
  // Squares that float32 cannot hold, and the last bit of a magnitude.
  EXPECT_EQ(measure_row(std::vector<float>{1e30F, 1.0F}).sum_squares,
            double{1e30F} * double{1e30F} + 1.0);
  EXPECT_EQ(measure_row({}).amax, 0.0F);
}

class TapTraceTest : public ::testing::Test {
 protected:
  struct Run {
    std::unique_ptr<Checkpoint> checkpoint;
    std::shared_ptr<const Model> model;
    std::unique_ptr<TapTrace> trace;
    std::vector<int32_t> ids;
    BadTapCause cause() const {
      const auto at = trace->bad_position();
      return find_cause(*checkpoint, model->config(), *trace->first_bad(),
                        at ? std::optional(ids[static_cast<size_t>(*at)]) : std::nullopt);
    }
  };

  // A golden model with something changed, run on the first sequence of its dump.
  Run run(const std::string& name, const std::function<void(EditedCheckpoint&)>& edit,
          std::vector<std::string> allow = {}, int64_t chunk = 48) {
    EditedCheckpoint edited(name);
    edit(edited);
    const std::filesystem::path at = dir_.path() / fmt::format("m{}", n_runs_++);
    std::filesystem::create_directories(at);
    edited.write(at);
    Run out;
    const auto allowed = *parse_allowances(allow);
    out.checkpoint = std::move(*Checkpoint::open(at, {.limits = {}, .allow = allowed}));
    ModelOptions options;
    options.policies = {"f32"};
    auto model = Model::load(std::move(*Checkpoint::open(at, {.limits = {}, .allow = allowed})),
                             options, pool_);
    EXPECT_TRUE(model.has_value()) << model.error().text;
    out.model = *model;
    out.ids = testing::dump_ids(name)[0];
    out.trace = std::make_unique<TapTrace>(*out.checkpoint, out.model->config(), pool_);
    feed(out, chunk);
    return out;
  }

  void feed(Run& run, int64_t chunk) {
    const Model& model = *run.model;
    const auto n = static_cast<int64_t>(run.ids.size());
    const KvLayout layout = model.kv_layout();
    KvPool pages(layout, (n + layout.page_tokens - 1) / layout.page_tokens);
    KvSequence kv(pages);
    ASSERT_TRUE(kv.reserve(n));
    const StepBuffersPtr buffers = model.make_buffers(chunk, 1);
    std::vector<float> logits(static_cast<size_t>(model.config().n_vocab));
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t rows = std::min(chunk, n - begin);
      const int64_t wanted = begin + rows == n ? 1 : 0;
      const StepSeq seq{&kv, std::span(run.ids).subspan(begin, rows), begin, wanted};
      run.trace->begin_step(begin, rows);
      model.forward({&seq, 1}, *buffers, Mat<float>(logits.data(), wanted, model.config().n_vocab),
                    run.trace.get(), pool_);
    }
  }

  // The bytes in the file where a cause says they are.
  static std::string bytes_at(const Run& run, const BadTapCause& cause, size_t n) {
    std::ifstream in(run.checkpoint->root() / cause.file, std::ios::binary);
    in.seekg(*cause.offset);
    std::string out(n, '\0');
    in.read(out.data(), static_cast<std::streamsize>(n));
    return out;
  }

  ThreadPool pool_{2};
  testing::TempDir dir_;
  int n_runs_ = 0;
};

void put(EditedCheckpoint& c, const std::string& tensor, size_t at, const std::string& bytes) {
  ASSERT_TRUE(c.tensors.contains(tensor)) << tensor;
  c.tensors[tensor].bytes.replace(at, bytes.size(), bytes);
}
const std::string kBf16Nan("\xC0\x7F", 2);
const std::string kBf16Inf("\x80\x7F", 2);

TEST_F(TapTraceTest, ACleanModelHasEveryTapInOrder) {
  const Run r = run("qwen3", [](auto&) {});
  EXPECT_FALSE(r.trace->first_bad());
  std::vector<std::string> names;
  for (const TracedTap& tap : r.trace->taps())
    if (tap.layer == 1) names.push_back(tap.name);
  EXPECT_THAT(names,
              ElementsAre("attn_in", "input", "input", "input", "q", "k", "v", "q_norm", "k_norm",
                          "q_rope", "k_rope", "attn_out", "input", "o", "mlp_in", "input", "input",
                          "gate", "up", "mlp_act", "input", "down", "hidden"));
  EXPECT_EQ(r.trace->taps().front().name, "embed");
  EXPECT_EQ(r.trace->taps().back().name, "logits");
  EXPECT_EQ(r.trace->taps().back().statistics.n_rows, 1);
  EXPECT_TRUE(r.trace->dead().empty());
}

// hidden.1 of the dump is what the tap of layer 0 sees.
TEST_F(TapTraceTest, AmaxAndRmsAreThoseOfTheDump) {
  const Run r = run("llama2", [](auto&) {});
  const std::vector<float> all = testing::dump_floats("llama2", "hidden.1");
  double amax = 0;
  double sum = 0;
  const size_t n = all.size() / 2;  // the first of two sequences
  for (size_t i = 0; i < n; ++i) {
    amax = std::max(amax, std::abs(double{all[i]}));
    sum += double{all[i]} * double{all[i]};
  }
  for (const TracedTap& tap : r.trace->taps()) {
    if (tap.name != "hidden" || tap.layer != 0) continue;
    EXPECT_NEAR(tap.statistics.amax, amax, 1e-3 * amax);
    EXPECT_NEAR(tap.statistics.rms(), std::sqrt(sum / static_cast<double>(n)), 1e-4);
    EXPECT_EQ(tap.statistics.n_rows, 48);
  }
}

TEST_F(TapTraceTest, StepsAndThreadsChangeNothing) {
  const Run whole = run("modelopt-llama3-shared", [](auto&) {});
  Run pieces = run(
      "modelopt-llama3-shared", [](auto&) {}, {}, 7);
  ASSERT_EQ(whole.trace->taps().size(), pieces.trace->taps().size());
  auto other = pieces.trace->taps().begin();
  for (const TracedTap& tap : whole.trace->taps()) {
    EXPECT_EQ(tap.name, other->name);
    EXPECT_EQ(tap.module, other->module);
    EXPECT_EQ(tap.statistics.amax, other->statistics.amax);
    EXPECT_EQ(tap.statistics.sum_squares, other->statistics.sum_squares) << tap.name;
    ASSERT_EQ(tap.input.has_value(), other->input.has_value());
    if (tap.input) {
      EXPECT_EQ(tap.input->use.n_clipped, other->input->use.n_clipped);
    }
    ++other;
  }
}

// dump_w4a4 holds inputs of linears and the scale bytes another framework made of them.
TEST_F(TapTraceTest, ScaleUseIsThatOfAnotherFrameworksBytes) {
  for (const std::string name : {"modelopt-llama3-shared", "modelopt-llama3-separate",
                                 "ct-llama3-nvfp4", "modelopt-qwen2-mlp", "modelopt-llama-mixed"}) {
    const auto checkpoint = std::move(*Checkpoint::open(testing::golden_dir(name)));
    const auto dump =
        SafetensorsFile::open(testing::golden_dir(name) / "dump_w4a4.safetensors").value();
    int n_compared = 0;
    for (const TensorInfo& info : dump.tensors()) {
      if (!info.name.starts_with("x.")) continue;
      const std::string module = info.name.substr(2);
      const LinearRecord* record = checkpoint->linear(module);
      ASSERT_NE(record, nullptr) << module;
      if (!record->input_scale) continue;
      std::vector<float> x(static_cast<size_t>(info.n_elements()));
      std::memcpy(x.data(), dump.bytes(info).data(), x.size() * sizeof(float));
      ScaleUse use;
      for (int64_t row = 0; row < info.shape[0]; ++row) {
        const std::span<const float> values(x.data() + row * info.shape[1],
                                            static_cast<size_t>(info.shape[1]));
        use.add(record->scheme == Scheme::kNvfp4 ? nvfp4_scale_use(values, *record->input_scale)
                                                 : fp8_scale_use(values, *record->input_scale));
      }
      EXPECT_EQ(use.n_elements, info.n_elements());
      const bool blocks = record->scheme == Scheme::kNvfp4;
      const auto bytes = dump.bytes(*dump.find((blocks ? "scales." : "codes.") + module));
      const auto count = [&](int low, int high) {
        return std::count_if(bytes.begin(), bytes.end(), [&](std::byte b) {
          const int magnitude = static_cast<int>(b) & 0x7F;
          return magnitude >= low && magnitude <= high;
        });
      };
      if (blocks) {
        EXPECT_EQ(use.n_blocks, static_cast<int64_t>(bytes.size()));
        EXPECT_EQ(use.n_saturated_blocks, count(0x7E, 0x7E)) << name << " " << module;
        EXPECT_EQ(use.n_subnormal_blocks, count(1, 7));
        EXPECT_EQ(use.n_zero_blocks, count(0, 0));
      } else {
        EXPECT_EQ(use.n_subnormal, count(1, 7)) << name << " " << module;
      }
      ++n_compared;
    }
    EXPECT_GT(n_compared, 3) << name;
  }
}

// input_scale of this model is a quarter of the calibrated amax (tests/golden/README.md).
TEST_F(TapTraceTest, RatioOfAScaleThatIsAQuarter) {
  const Run r = run("modelopt-llama3-shared", [](auto&) {});
  int n = 0;
  for (const TracedTap& tap : r.trace->taps()) {
    if (!tap.is_input() || tap.layer < 0) {
      EXPECT_FALSE(tap.ratio()) << tap.name;
      continue;
    }
    ASSERT_TRUE(tap.ratio()) << tap.module;
    EXPECT_EQ(tap.input->calibrated_amax, 2688.0F * tap.input->scale);
    EXPECT_GT(*tap.ratio(), 1.5) << tap.module;
    EXPECT_LT(*tap.ratio(), 6.0) << tap.module;
    EXPECT_GT(tap.input->use.n_saturated_blocks, 0);
    ++n;
  }
  EXPECT_GT(n, 0);
}

TEST_F(TapTraceTest, ANanWeightNamesTensorRowColumnAndByte) {
  const std::string up = "model.layers.1.mlp.up_proj";
  const Run r = run("llama2", [&](EditedCheckpoint& c) {
    put(c, up + ".weight", (3 * 64 + 5) * 2, kBf16Nan);  // d_model 64
  });
  ASSERT_TRUE(r.trace->first_bad());
  EXPECT_EQ(r.trace->first_bad()->module, up);
  EXPECT_EQ(r.trace->first_bad()->layer, 1);
  EXPECT_EQ(r.trace->bad_position(), 0);
  const BadTapCause cause = r.cause();
  EXPECT_EQ(cause.kind, CauseKind::kWeight);
  EXPECT_EQ(cause.tensor, up + ".weight");
  EXPECT_THAT(cause.index, ElementsAre(3, 5));
  EXPECT_EQ(bytes_at(r, cause, 2), kBf16Nan);
  EXPECT_THAT(cause.message, HasSubstr("[3, 5] is nan (byte "));
}

TEST_F(TapTraceTest, AnInfiniteNormWeight) {
  const Run r = run("llama2", [](EditedCheckpoint& c) {
    put(c, "model.layers.1.post_attention_layernorm.weight", 7 * 2, kBf16Inf);
  });
  ASSERT_TRUE(r.trace->first_bad());
  EXPECT_EQ(r.trace->first_bad()->name, "mlp_in");
  const BadTapCause cause = r.cause();
  EXPECT_EQ(cause.kind, CauseKind::kNorm);
  EXPECT_EQ(cause.tensor, "model.layers.1.post_attention_layernorm.weight");
  EXPECT_THAT(cause.index, ElementsAre(7));
  EXPECT_EQ(bytes_at(r, cause, 2), kBf16Inf);
}

TEST_F(TapTraceTest, AHeadNormNamesItsElementWhateverTheHead) {
  const Run r = run("qwen3", [](EditedCheckpoint& c) {
    put(c, "model.layers.0.self_attn.k_norm.weight", 9 * 2, kBf16Nan);
  });
  ASSERT_TRUE(r.trace->first_bad());
  EXPECT_EQ(r.trace->first_bad()->name, "k_norm");
  EXPECT_EQ(r.cause().tensor, "model.layers.0.self_attn.k_norm.weight");
  EXPECT_THAT(r.cause().index, ElementsAre(9));
}

TEST_F(TapTraceTest, ANanEmbeddingRowNamesTokenAndPosition) {
  const std::vector<int32_t> ids = testing::dump_ids("llama2")[0];
  const int32_t token = ids[20];
  const int64_t first = std::find(ids.begin(), ids.end(), token) - ids.begin();
  for (const int64_t chunk : {48, 6}) {  // in one step, and in a later one
    const Run r = run(
        "llama2",
        [&](EditedCheckpoint& c) {
          put(c, "model.embed_tokens.weight", static_cast<size_t>(token * 64 + 11) * 2, kBf16Nan);
        },
        {}, chunk);
    ASSERT_TRUE(r.trace->first_bad());
    EXPECT_EQ(r.trace->first_bad()->name, "embed");
    EXPECT_EQ(r.trace->bad_position(), first);
    EXPECT_EQ(r.cause().kind, CauseKind::kEmbedding);
    EXPECT_THAT(r.cause().index, ElementsAre(token, 11));
  }
}

// An earlier step's keys and values are bad: the tap that made them is named, with its position.
TEST_F(TapTraceTest, ABadHistoryIsTracedToTheTapThatWroteIt) {
  const Run r = run(
      "llama2",
      [](EditedCheckpoint& c) {
        put(c, "model.layers.0.self_attn.v_proj.weight", (2 * 64 + 1) * 2, kBf16Inf);
      },
      {}, 4);
  ASSERT_TRUE(r.trace->first_bad());
  EXPECT_EQ(r.trace->first_bad()->name, "v");
  EXPECT_EQ(r.trace->bad_position(), 0);
  EXPECT_EQ(r.cause().tensor, "model.layers.0.self_attn.v_proj.weight");
}

TEST_F(TapTraceTest, ABias) {
  const Run r = run("qwen2", [](EditedCheckpoint& c) {
    put(c, "model.layers.2.self_attn.k_proj.bias", 4 * 2, kBf16Inf);
  });
  ASSERT_TRUE(r.trace->first_bad());
  EXPECT_EQ(r.cause().kind, CauseKind::kBias);
  EXPECT_EQ(r.cause().tensor, "model.layers.2.self_attn.k_proj.bias");
}

TEST_F(TapTraceTest, ANanBlockScaleAndANanGlobalScale) {
  const std::string down = "model.layers.1.mlp.down_proj";
  const Run r =
      run("modelopt-llama3-shared",
          [&](EditedCheckpoint& c) {
            auto& scales = c.tensors[down + ".weight_scale"];
            put(c, down + ".weight_scale", static_cast<size_t>(5 * scales.shape[1] + 2), "\x7F");
          },
          {"C1"});
  ASSERT_TRUE(r.trace->first_bad());
  EXPECT_EQ(r.cause().kind, CauseKind::kScale);
  EXPECT_EQ(r.cause().tensor, down + ".weight_scale");
  EXPECT_THAT(r.cause().index, ElementsAre(5, 2));
  EXPECT_EQ(bytes_at(r, r.cause(), 1), "\x7F");

  const Run g =
      run("modelopt-llama3-shared",
          [&](EditedCheckpoint& c) {
            std::memcpy(c.tensors[down + ".weight_scale_2"].bytes.data(), &kNan, sizeof(kNan));
          },
          {"C3"});
  ASSERT_TRUE(g.trace->first_bad());
  EXPECT_EQ(g.cause().kind, CauseKind::kGlobalScale);
  EXPECT_EQ(g.cause().tensor, down + ".weight_scale_2");
}

// A divisor of zero is an infinite multiplier; a multiplier of zero is a dead layer, and finite.
TEST_F(TapTraceTest, AZeroGlobalScaleInBothConventions) {
  const std::string gate = "model.layers.0.mlp.gate_proj";
  const Run divisor = run("ct-llama3-nvfp4",
                          [&](EditedCheckpoint& c) {
                            c.tensors[gate + ".weight_global_scale"].bytes = std::string(4, '\0');
                          },
                          {"C3"});
  ASSERT_TRUE(divisor.trace->first_bad());
  EXPECT_EQ(divisor.cause().tensor, gate + ".weight_global_scale");
  EXPECT_EQ(divisor.cause().value, 0.0);

  const Run multiplier = run("modelopt-llama3-shared",
                             [&](EditedCheckpoint& c) {
                               c.tensors[gate + ".weight_scale_2"].bytes = std::string(4, '\0');
                             },
                             {"C3"});
  EXPECT_FALSE(multiplier.trace->first_bad());
  const auto dead = multiplier.trace->dead();
  // One: down is given silu(0) * up = 0, so that it gives zeros is no fault of its own.
  ASSERT_EQ(dead.size(), 1U);
  EXPECT_EQ(dead[0]->module, gate);
  const BadTapCause cause =
      find_dead_cause(*multiplier.checkpoint, multiplier.model->config(), gate);
  EXPECT_EQ(cause.tensor, gate + ".weight_scale_2");
  EXPECT_EQ(bytes_at(multiplier, cause, 4), std::string(4, '\0'));
}

// An expert's tensor has some rows of the step; the tap says which.
TEST(TapTraceRows, PositionOfAnExpertsRow) {
  ThreadPool pool(1);
  const auto checkpoint = std::move(*Checkpoint::open(testing::golden_dir("llama2")));
  const ModelConfig config;
  TapTrace trace(*checkpoint, config, pool);
  std::vector<float> values = {1, 2, 3, kNan};
  const std::vector<int32_t> rows = {4, 7};
  trace.begin_step(100, 8);
  trace.visit({"gate", 3, "model.layers.3.mlp.experts.5.gate_proj", rows}, {values.data(), 2, 2});
  EXPECT_EQ(trace.bad_position(), 107);
  EXPECT_EQ(trace.taps().front().expert, 5);
  // Without them it cannot be said.
  TapTrace other(*checkpoint, config, pool);
  other.begin_step(100, 8);
  other.visit({"gate", 3, "model.layers.3.mlp.experts.5.gate_proj", {}}, {values.data(), 2, 2});
  EXPECT_FALSE(other.bad_position());
  EXPECT_EQ(other.first_bad()->row, 1);
}

// A tap that only a later step visits stands where that step had it.
TEST(TapTraceRows, OrderOfTapsThatAreNotInEveryStep) {
  ThreadPool pool(1);
  const auto checkpoint = std::move(*Checkpoint::open(testing::golden_dir("llama2")));
  TapTrace trace(*checkpoint, {}, pool);
  float x = 1;
  const auto step = [&](int64_t begin, const std::vector<const char*>& names) {
    trace.begin_step(begin, 1);
    for (const char* name : names) trace.visit({name, 0, {}, {}}, {&x, 1, 1});
  };
  step(0, {"a", "d"});
  step(1, {"a", "b", "d", "e"});
  step(2, {"a", "c", "d", "e"});
  std::string order;
  for (const TracedTap& tap : trace.taps()) order += tap.name;
  EXPECT_EQ(order, "acbde");
}

}  // namespace
}  // namespace sextant
