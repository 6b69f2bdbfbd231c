// The engine over a scripted model (testing/fake_model.h), which checks by content that every
// position was fed once and that reused keys are those of the same ids.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <new>
#include <numeric>

#include "engine/testing/fake_model.h"

// g++ inlines the replaced functions below and then sees malloc and operator delete as a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
thread_local bool g_counting = false;
thread_local int64_t g_allocations = 0;
}  // namespace

// Counting forms of the allocation functions; everything else is malloc's.
void* operator new(std::size_t size) {
  if (g_counting) ++g_allocations;
  if (void* p = std::malloc(size != 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace sextant {
namespace {

using testing::chain;
using testing::FakeModel;

struct Outcome {
  std::vector<int32_t> tokens;
  Event finished;
};

class EngineTest : public ::testing::Test {
 protected:
  void make(std::shared_ptr<FakeModel> model, EngineOptions options = {}) {
    model_ = std::move(model);
    auto engine = Engine::create(model_, options, std::make_shared<ThreadPool>(3));
    ASSERT_TRUE(engine) << engine.error().text;
    engine_ = std::move(*engine);
  }
  static Request request(std::vector<int32_t> prompt, int64_t max_tokens = 5) {
    Request made;
    made.prompt = std::move(prompt);
    made.max_tokens = max_tokens;
    made.sampling.temperature = 0;
    return made;
  }
  RequestId submit(Request made) {
    const auto id = engine_->submit(std::move(made));
    EXPECT_TRUE(id) << id.error().text;
    return id.value_or(-1);
  }
  std::map<RequestId, Outcome> run() {
    std::map<RequestId, Outcome> outcomes;
    std::vector<Event> events;
    while (engine_->step(events)) {
    }
    for (Event& event : events) {
      Outcome& outcome = outcomes[event.request];
      if (event.kind == Event::Kind::kToken)
        outcome.tokens.push_back(event.token);
      else
        outcome.finished = std::move(event);
    }
    return outcomes;
  }
  Outcome run_one(Request made) {
    const RequestId id = submit(std::move(made));
    return run()[id];
  }
  static std::vector<int32_t> range(int32_t begin, int32_t end) {
    std::vector<int32_t> ids(static_cast<size_t>(end - begin));
    std::iota(ids.begin(), ids.end(), begin);
    return ids;
  }
  void expect_idle() {
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.n_active, 0);
    EXPECT_EQ(stats.n_waiting, 0);
    engine_->reset();
    EXPECT_EQ(engine_->stats().n_free_pages, engine_->stats().n_pages);
  }

  std::shared_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, GeneratesUntilTheLimit) {
  make(std::make_shared<FakeModel>(100, 64, chain()));
  const Outcome outcome = run_one(request({10, 11, 12}));
  EXPECT_EQ(outcome.tokens, range(13, 18));
  EXPECT_EQ(outcome.finished.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.finished.n_prompt, 3);
  EXPECT_EQ(outcome.finished.n_generated, 5);
  EXPECT_EQ(model_->n_fed(), 3 + 4);  // the last token is never fed
  expect_idle();
}

TEST_F(EngineTest, WithoutALimitTheContextIsFilled) {
  make(std::make_shared<FakeModel>(100, 32, chain()));
  const Outcome outcome = run_one(request(range(0, 10), -1));
  EXPECT_EQ(outcome.tokens, range(10, 32));
  EXPECT_EQ(outcome.finished.reason, FinishReason::kLength);
}

// C122: every end token of config.json and generation_config.json ends the answer.
TEST_F(EngineTest, EveryEndTokenStops) {
  auto model = std::make_shared<FakeModel>(100, 64, chain());
  model->edit_config().eos_ids = {2, 7};
  make(model);
  Outcome outcome = run_one(request({4}, 50));
  EXPECT_EQ(outcome.tokens, range(5, 7));
  EXPECT_EQ(outcome.finished.reason, FinishReason::kStop);
  EXPECT_EQ(outcome.finished.token, 7);
  EXPECT_EQ(outcome.finished.n_generated, 3);

  Request ignoring = request({4}, 6);
  ignoring.ignore_eos = true;
  EXPECT_EQ(run_one(ignoring).tokens, range(5, 11));
  Request own = request({40}, 6);
  own.stop_ids = {43};
  EXPECT_EQ(run_one(own).tokens, range(41, 43));
}

// C121: the model would emit id 70 of a vocabulary of 65.
TEST_F(EngineTest, PaddedVocabularyIsMasked) {
  make(std::make_shared<FakeModel>(80, 64, [](const auto&, std::span<float> logits) {
    logits[70] = 50;
    logits[33] = 5;
  }));
  Request made = request({1}, 3);
  made.n_valid_vocab = 65;
  EXPECT_EQ(run_one(made).tokens, (std::vector<int32_t>{33, 33, 33}));
}

TEST_F(EngineTest, ChunksOfThePromptChangeNothing) {
  for (const int64_t chunk : {1, 2, 3, 7, 100}) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    make(std::make_shared<FakeModel>(100, 64, chain()), options);
    EXPECT_EQ(run_one(request(range(5, 25))).tokens, range(25, 30)) << chunk;
    EXPECT_EQ(model_->n_fed(), 24) << chunk;
  }
}

TEST_F(EngineTest, ABatchGivesWhatEachAloneGives) {
  EngineOptions options;
  options.max_batch = 3;
  options.kv_bytes = 4096;
  options.prefill_chunk = 4;
  make(std::make_shared<FakeModel>(100, 64, chain()), options);
  std::map<RequestId, int32_t> first;
  for (int32_t i = 0; i < 7; ++i)
    first[submit(request(range(i * 10, i * 10 + 1 + i), 4))] = i * 11 + 1;
  auto outcomes = run();
  ASSERT_EQ(outcomes.size(), 7U);
  for (const auto& [id, begin] : first)
    EXPECT_EQ(outcomes[id].tokens, range(begin, begin + 4)) << id;
  EXPECT_EQ(model_->largest_batch(), 3);
  expect_idle();
}

// A chat: the second prompt holds the first, its answer and more; only the new ids are fed.
TEST_F(EngineTest, HistoryIsNotPrefilledAgain) {
  make(std::make_shared<FakeModel>(100, 64, chain()));
  Outcome outcome = run_one(request(range(0, 10), 5));
  EXPECT_EQ(outcome.finished.n_reused, 0);
  const int64_t fed = model_->n_fed();
  std::vector<int32_t> second = range(0, 15);  // prompt and answer
  second.push_back(50);
  outcome = run_one(request(second, 2));
  EXPECT_EQ(outcome.tokens, range(51, 53));
  EXPECT_EQ(outcome.finished.n_reused, 14);  // the last token of the answer was never fed
  EXPECT_EQ(model_->n_fed() - fed, 2 + 1);
  EXPECT_EQ(engine_->stats().reused_tokens, 14);
  // The same prompt again: its last token is fed, since somebody has to give logits.
  outcome = run_one(request(second, 2));
  EXPECT_EQ(outcome.finished.n_reused, 15);
  EXPECT_EQ(outcome.tokens, range(51, 53));
  engine_->reset();
  EXPECT_EQ(run_one(request(second, 2)).finished.n_reused, 0);
}

TEST_F(EngineTest, AnotherHistoryIsReusedToWhereItDiffers) {
  make(std::make_shared<FakeModel>(100, 64, chain()));
  run_one(request(range(0, 20), 3));
  std::vector<int32_t> other = range(0, 8);
  other.push_back(90);
  const Outcome outcome = run_one(request(other, 3));
  EXPECT_EQ(outcome.finished.n_reused, 8);
  EXPECT_EQ(outcome.tokens, range(91, 94));
}

TEST_F(EngineTest, ParkedSequencesMakeRoom) {
  EngineOptions options;
  options.max_context = 32;
  make(std::make_shared<FakeModel>(100, 64, chain()), options);  // pages for one sequence
  for (int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(run_one(request(range(i * 5, i * 5 + 20), -1)).tokens.size(), 12U) << i;
  expect_idle();
}

TEST_F(EngineTest, RequestsWaitForPages) {
  EngineOptions options;
  options.max_context = 32;
  make(std::make_shared<FakeModel>(100, 64, chain()), options);
  const RequestId a = submit(request(range(0, 20), -1));
  const RequestId b = submit(request(range(30, 50), -1));
  auto outcomes = run();
  EXPECT_EQ(outcomes[a].tokens, range(20, 32));
  EXPECT_EQ(outcomes[b].tokens, range(50, 62));
}

TEST_F(EngineTest, CancelEndsWithinOneStep) {
  EngineOptions options;
  options.prefill_chunk = 2;
  options.kv_bytes = 4096;
  options.max_batch = 2;
  make(std::make_shared<FakeModel>(100, 64, chain()), options);
  const RequestId prefilling = submit(request(range(0, 20), -1));
  const RequestId decoding = submit(request({60}, -1));
  const RequestId waiting = submit(request({70}, -1));
  std::vector<Event> events;
  engine_->step(events);
  for (const RequestId id : {prefilling, decoding, waiting}) engine_->cancel(id);
  engine_->cancel(12345);
  events.clear();
  engine_->step(events);
  std::map<RequestId, int> n_finished;
  for (const Event& event : events) {
    ASSERT_EQ(event.kind, Event::Kind::kFinished);
    EXPECT_EQ(event.reason, FinishReason::kCancelled);
    ++n_finished[event.request];
  }
  EXPECT_EQ(n_finished, (std::map<RequestId, int>{{prefilling, 1}, {decoding, 1}, {waiting, 1}}));
  EXPECT_FALSE(engine_->step(events));
  expect_idle();
}

// C101, C065: an error that names the first bad tap, never token 0; others in the batch go on, and
// the bad sequence is not continued from.
TEST_F(EngineTest, NonFiniteLogitsAreAnErrorThatNamesTheFirstBadTap) {
  EngineOptions options;
  options.kv_bytes = 8192;
  options.prefill_chunk = 3;
  make(std::make_shared<FakeModel>(100, 64,
                                   [](const std::vector<int32_t>& ids, std::span<float> logits) {
                                     chain()(ids, logits);
                                     for (const int32_t id : ids)
                                       if (id == 66) logits[17] = NAN;
                                   }),
       options);
  const RequestId good = submit(request({10}, 4));
  // 66 is fed in the first of three chunks; only the last one has logits.
  const RequestId bad = submit(request({66, 1, 2, 3, 4, 5, 6, 7}, 4));
  const RequestId later = submit(request({63}, 6));  // reaches 66 by itself
  auto outcomes = run();
  EXPECT_EQ(outcomes[good].tokens, range(11, 15));
  EXPECT_EQ(outcomes[bad].tokens, std::vector<int32_t>{});
  ASSERT_EQ(outcomes[bad].finished.reason, FinishReason::kError);
  const Error& error = *outcomes[bad].finished.error;
  EXPECT_EQ(error.code, Code::kModel);
  EXPECT_EQ(error.where.tensor, "model.layers.3.self_attn.k_proj");
  EXPECT_NE(error.text.find("layer 3"), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("id 17"), std::string::npos) << error.text;
  EXPECT_EQ(outcomes[later].tokens, range(64, 67));
  EXPECT_EQ(outcomes[later].finished.reason, FinishReason::kError);
  EXPECT_EQ(engine_->stats().n_errors, 2);
  EXPECT_EQ(run_one(request({66, 1, 2}, 1)).finished.n_reused, 0);
  EXPECT_EQ(run_one(request({20}, 2)).tokens, range(21, 23));
}

TEST_F(EngineTest, BadRequestsAreRefusedWithTheField) {
  EngineOptions options;
  options.max_requests = 2;
  make(std::make_shared<FakeModel>(100, 16, chain()), options);
  const auto refused = [&](Request made) {
    const auto id = engine_->submit(std::move(made));
    return id ? std::string("accepted") : id.error().where.field;
  };
  EXPECT_EQ(refused(request({})), "prompt");
  EXPECT_EQ(refused(request({100})), "prompt");
  EXPECT_EQ(refused(request({-1})), "prompt");
  const auto too_long = engine_->submit(request(range(0, 16)));
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().text.find("maximum context length is 16"), std::string::npos);
  EXPECT_EQ(refused(request({1}, 0)), "max_tokens");
  Request made = request({1});
  made.n_logprobs = 21;
  EXPECT_EQ(refused(made), "logprobs");
  made = request({1});
  made.n_valid_vocab = 101;
  EXPECT_EQ(refused(made), "n_valid_vocab");
  made = request({1});
  made.stop_ids.resize(65);
  EXPECT_EQ(refused(made), "stop_ids");
  made = request({1});
  made.sampling.top_p = 2;
  EXPECT_EQ(refused(made), "top_p");

  EXPECT_EQ(refused(request(range(0, 15))), "accepted");
  EXPECT_EQ(refused(request({1})), "accepted");
  const auto full = engine_->submit(request({1}));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kResources);
  run();
  EXPECT_EQ(refused(request({1})), "accepted");
}

TEST_F(EngineTest, LogprobsComeWithTokens) {
  make(std::make_shared<FakeModel>(100, 64, chain(2.0F)));
  Request made = request({1}, 1);
  made.n_logprobs = 3;
  submit(made);
  std::vector<Event> events;
  engine_->step(events);
  ASSERT_FALSE(events.empty());
  ASSERT_EQ(events[0].top.size(), 3U);
  EXPECT_EQ(events[0].top[0].id, 2);
  EXPECT_EQ(events[0].top[1].id, 0);
  EXPECT_NEAR(events[0].logprob, 2 - std::log(99 + std::exp(2.0)), 1e-5);
}

TEST_F(EngineTest, ASeedReproducesWhateverElseRuns) {
  const auto flat = [](const std::vector<int32_t>&, std::span<float>) {};
  EngineOptions options;
  options.kv_bytes = 8192;
  make(std::make_shared<FakeModel>(100, 64, flat), options);
  Request made = request({1}, 20);
  made.sampling.temperature = 1;
  made.sampling.seed = 99;
  const std::vector<int32_t> alone = run_one(made).tokens;
  Request other = made;
  other.sampling.seed = 100;
  submit(other);
  const RequestId again = submit(made);
  auto outcomes = run();
  EXPECT_EQ(outcomes[again].tokens, alone);
  EXPECT_NE(outcomes[again - 1].tokens, alone);
}

TEST_F(EngineTest, ADecodeStepAllocatesNothing) {
  EngineOptions options;
  options.kv_bytes = 1 << 16;
  make(std::make_shared<FakeModel>(100, 512, chain()), options);
  for (int32_t i = 0; i < 3; ++i) {
    Request made = request({i * 20}, 300);
    made.sampling.temperature = 0.7F;
    made.sampling.top_k = 20;
    made.sampling.top_p = 0.9F;
    made.sampling.min_p = 0.01F;
    made.sampling.repetition_penalty = 1.1F;
    made.sampling.presence_penalty = 0.1F;
    submit(made);
  }
  std::vector<Event> events;
  events.reserve(1000);
  for (int i = 0; i < 3; ++i) engine_->step(events);
  ASSERT_EQ(engine_->stats().n_active, 3);
  g_allocations = 0;
  g_counting = true;
  for (int i = 0; i < 200; ++i) engine_->step(events);
  g_counting = false;
  EXPECT_EQ(g_allocations, 0);
  EXPECT_EQ(engine_->stats().n_active, 3);
}

TEST_F(EngineTest, AContextThatMemoryShortensIsNoted) {
  EngineOptions options;
  options.kv_bytes = 20 * 32;  // pages of 4 tokens are 32 bytes
  make(std::make_shared<FakeModel>(100, 100, chain()), options);
  EXPECT_EQ(engine_->max_context(), 80);
  ASSERT_EQ(engine_->notes().size(), 1U);
  EXPECT_NE(engine_->notes()[0].find("from 100 to 80"), std::string::npos);
}

}  // namespace
}  // namespace sextant
