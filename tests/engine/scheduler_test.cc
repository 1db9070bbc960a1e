#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <set>

namespace lookback {
namespace {

constexpr int64_t kBlockTokens = 32;

std::shared_ptr<Request> MakeRequest(const std::string& id, int64_t prompt, int64_t new_tokens,
                                     int64_t n = 1) {
  GenerateParams params;
  params.request_id = id;
  params.prompt.assign(static_cast<size_t>(prompt), 1);
  params.max_new_tokens = new_tokens;
  params.n = n;
  auto stream = std::make_shared<RequestStream>(id, 0, nullptr);
  return std::make_shared<Request>(std::move(params), StreamWriter(stream));
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() : SchedulerTest(64) {}
  explicit SchedulerTest(int64_t blocks)
      : cache_({1, 1, 4, kBlockTokens, kernels::Element::kF32, {{kFullWindow, 0}}},
               Buffer(blocks * kBlockTokens * 4 * 8), 4),
        scheduler_(cache_, 4, 16, 24) {}

  /// Pretends that the step ran: feeds the cache, adds a token where one was sampled.
  void RunStep(const StepPlan& plan) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      Sequence& sequence = *scheduler_.planned()[i];
      const auto tokens = static_cast<int64_t>(plan.items[i].ids.size());
      cache_.Reserve(sequence.slot, tokens);
      cache_.Commit(sequence.slot);
      sequence.fed += tokens;
      if (plan.items[i].want_last_logits) sequence.tokens.push_back(2);
      if (sequence.output_tokens() == sequence.request->params.max_new_tokens) {
        scheduler_.Remove(sequence);
      }
    }
  }

  KvCache cache_;
  Scheduler scheduler_;
};

TEST_F(SchedulerTest, DecodesGoFirstAndPromptsFillTheRest) {
  scheduler_.Enqueue(MakeRequest("a", 3, 10));
  scheduler_.Enqueue(MakeRequest("b", 100, 10));
  scheduler_.Enqueue(MakeRequest("c", 100, 10));
  EXPECT_EQ(scheduler_.Admit({}), 3);
  StepPlan& first = scheduler_.Plan();
  ASSERT_EQ(first.items.size(), 3U);
  EXPECT_EQ(first.items[0].ids.size(), 3U);
  EXPECT_TRUE(first.items[0].want_last_logits);
  EXPECT_EQ(first.items[1].ids.size(), 16U) << "one sequence's chunk";
  EXPECT_FALSE(first.items[1].want_last_logits);
  EXPECT_EQ(first.items[2].ids.size(), 5U) << "what is left of the step";
  RunStep(first);
  StepPlan& second = scheduler_.Plan();
  ASSERT_EQ(second.items.size(), 3U);
  EXPECT_EQ(second.items[0].ids.size(), 1U) << "a decodes";
  EXPECT_EQ(second.items[1].ids.size(), 16U);
  EXPECT_EQ(second.items[2].ids.size(), 7U);
}

TEST_F(SchedulerTest, PromptsHaveSoManyRowsWhereSomethingDecodes) {
  scheduler_.Enqueue(MakeRequest("a", 3, 10));
  scheduler_.Enqueue(MakeRequest("b", 100, 10));
  scheduler_.Admit({});
  RunStep(scheduler_.Plan(2));
  EXPECT_EQ(scheduler_.planned_prompt_rows(), 19) << "nothing decoded";
  StepPlan& second = scheduler_.Plan(2);
  ASSERT_EQ(second.items.size(), 2U);
  EXPECT_EQ(second.items[0].ids.size(), 1U) << "a decodes";
  EXPECT_EQ(second.items[1].ids.size(), 2U);
  EXPECT_EQ(scheduler_.planned_prompt_rows(), 2);
  StepPlan& third = scheduler_.Plan(0);
  ASSERT_EQ(third.items.size(), 1U);
  EXPECT_EQ(scheduler_.planned_prompt_rows(), 0);
}

TEST_F(SchedulerTest, ALargeRequestIsNotOvertaken) {
  scheduler_.Enqueue(MakeRequest("small", 40 * kBlockTokens, 1));
  scheduler_.Enqueue(MakeRequest("large", 60 * kBlockTokens, 1));
  scheduler_.Enqueue(MakeRequest("next", 1, 1));
  EXPECT_EQ(scheduler_.Admit({}), 1);
  EXPECT_EQ(scheduler_.running_sequences(), 1);
  EXPECT_EQ(scheduler_.waiting().size(), 2U);
  scheduler_.Remove(*scheduler_.running()[0]->sequences[0]);
  EXPECT_EQ(scheduler_.Admit({}), 2);
}

TEST_F(SchedulerTest, ChoicesOfARequestAreAdmittedAsRoomAllows) {
  scheduler_.Enqueue(MakeRequest("a", 1, 4, 6));
  EXPECT_EQ(scheduler_.Admit({}), 0) << "four slots, six choices";
  EXPECT_EQ(scheduler_.running_sequences(), 4);
  while (scheduler_.running()[0]->finished < 6) {
    RunStep(scheduler_.Plan());
    scheduler_.Admit({});
  }
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(cache_.blocks_held(), 0);
}

TEST_F(SchedulerTest, EveryTokenIsFedOnceAndEveryRequestEnds) {
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < 40; ++i) {
    requests.push_back(MakeRequest(StrCat("r", i), 1 + (i * 37) % 90, 1 + (i * 11) % 30));
    scheduler_.Enqueue(requests.back());
  }
  int64_t rows = 0;
  for (int step = 0; step < 10000 && !scheduler_.idle(); ++step) {
    scheduler_.Admit({});
    StepPlan& plan = scheduler_.Plan();
    ASSERT_FALSE(plan.items.empty());
    ASSERT_LE(plan.rows(), 24);
    std::set<int32_t> slots;
    for (const StepItem& item : plan.items) {
      ASSERT_TRUE(slots.insert(item.slot).second);
      ASSERT_LE(item.ids.size(), 16U);
    }
    rows += plan.rows();
    RunStep(plan);
  }
  ASSERT_TRUE(scheduler_.idle());
  int64_t expected = 0;
  for (const auto& request : requests) {
    expected += request->cached_tokens();
    EXPECT_EQ(request->finished, 1);
  }
  EXPECT_EQ(rows, expected);
}

TEST_F(SchedulerTest, AWithdrawnRequestLeavesTheQueue) {
  const auto request = MakeRequest("a", 1, 1);
  scheduler_.Enqueue(request);
  EXPECT_TRUE(scheduler_.Withdraw(*request));
  EXPECT_FALSE(scheduler_.Withdraw(*request));
  EXPECT_TRUE(scheduler_.idle());
}

}  // namespace
}  // namespace lookback
