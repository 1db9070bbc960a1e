#include "engine/prompt_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lookback {
namespace {

/// The times of `steps` steps on a machine where decoding takes `decode` seconds and each of
/// `waiting` prompt rows `row`.
std::vector<double> Times(PromptPace& pace, int64_t steps, double decode, double row,
                          int64_t waiting, int64_t* fed = nullptr) {
  std::vector<double> times;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t rows = std::min(waiting, pace.rows());
    times.push_back(decode + static_cast<double>(rows) * row);
    pace.Record(rows, times.back());
    if (fed != nullptr) *fed += rows;
  }
  return times;
}

TEST(PromptPace, AStepTakesAsLongAsItMayAndNoLonger) {
  for (const double slowdown : {1.25, 1.75, 3.0}) {
    PromptPace pace(slowdown);
    int64_t fed = 0;
    const auto times = Times(pace, 200, 0.050, 0.0005, 1000, &fed);
    for (const double time : times) EXPECT_LE(time, 0.050 * slowdown + 1e-9);
    // Of what fits, all but the first steps and every seventeenth.
    EXPECT_GE(static_cast<double>(fed), 180 * (slowdown - 1.0) * 100 * 0.9);
  }
}

TEST(PromptPace, FollowsWhatDecodingTakes) {
  PromptPace pace(2.0);
  Times(pace, 100, 0.010, 0.001, 1000);
  EXPECT_NEAR(static_cast<double>(pace.rows()), 10, 1);
  Times(pace, 400, 0.100, 0.001, 1000);
  pace.Record(0, 0.100);
  EXPECT_NEAR(static_cast<double>(pace.rows()), 100, 10);
}

TEST(PromptPace, PromptsGoOnHoweverSlowARowIs) {
  PromptPace pace(1.5);
  int64_t fed = 0;
  Times(pace, 170, 0.001, 1.0, 1000, &fed);
  EXPECT_GE(fed, 4 * 150);
}

TEST(PromptPace, TakesAnyTimes) {
  PromptPace pace(2.0);
  // A step with prompts that was faster than one without, and a clock that stood still.
  pace.Record(0, 0.0);
  EXPECT_EQ(pace.rows(), 0);
  pace.Record(0, 0.010);
  EXPECT_EQ(pace.rows(), 4);
  pace.Record(4, 0.005);
  EXPECT_GT(pace.rows(), 1000);
  pace.Record(1000, 1.0);
  EXPECT_GE(pace.rows(), 4);
}

TEST(PromptPace, WithoutALimitThereIsNone) {
  PromptPace pace(0.0);
  EXPECT_GT(pace.rows(), 1 << 20);
  pace.Record(100, 1.0);
  EXPECT_GT(pace.rows(), 1 << 20);
}

}  // namespace
}  // namespace lookback
