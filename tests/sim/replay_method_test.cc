// A role of a recording by a method's plan: its time is that of the method's prediction.
#include "sim/replay_method.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "models/hardware/profile.h"
#include "sim/predict.h"
#include "sim/timeline_summary.h"
#include "traces/common/error.h"
#include "traces/convert/import.h"
#include "traces/samples.h"

namespace stallcast::sim {
namespace {

constexpr const char* kFreeKv =
    "replace kind=recall freekv model=llama-3.1-8b context=32K budget=2048";

traces::Timeline Offloaded() {
  const std::filesystem::path file =
      std::filesystem::path(STALLCAST_SOURCE_DIR) / "tests/sim/recordings/offloaded-32768.kvt";
  return traces::Import(file).trace.timelines.at(0);
}

TEST(ReplayMethodTest, RecallTakesWhatTheMethodIsPredictedToNeed) {
  ReplayChange change = ParseReplayChange(kFreeKv);
  EXPECT_EQ(change.filter, "kind=recall");
  PredictReplacement(&change, "h200");
  PredictRequest request;
  request.model = "llama-3.1-8b";
  request.context = 32 * 1024;
  request.params = {{"budget", "2048"}};
  request.prefill = false;
  const Prediction freekv = Predictor(traces::TracePath("sample:8k")).Predict(request);
  const Picoseconds busy = freekv.metrics.roles[static_cast<size_t>(traces::Role::kRecall)].busy;
  EXPECT_DOUBLE_EQ(change.value, Seconds(busy));
  EXPECT_FALSE(change.note.empty());

  const traces::Timeline recording = Offloaded();
  const Replay replay(recording, MakeReplayMachine(hardware::FindProfile("h200")));
  const Replayed unchanged = replay.Run(), changed = replay.Run(std::span(&change, 1));
  // Write-backs the other way slow them, as the link's two directions do.
  const hardware::Profile machine = hardware::FindProfile("h200");
  const double slower = machine.link.h2d / machine.link.both_h2d;
  const double recall = Seconds(changed.summary.kinds.at("recall").busy);
  EXPECT_GE(recall, 0.99 * Seconds(busy));
  EXPECT_LE(recall, 1.01 * slower * Seconds(busy));
  EXPECT_LT(changed.summary.step, unchanged.summary.step);
  // It moves less, so that no copy is faster than the link.
  EXPECT_LE(changed.summary.kinds.at("recall").Rate(), 1.02 * machine.link.h2d);
  EXPECT_GT(changed.changed, 0);
}

TEST(ReplayMethodTest, SaysWhatIsMissing) {
  for (const char* text :
       {"replace kind=recall freekv", "replace kind=gemm freekv model=x context=1K",
        "replace kind=recall freekv model=llama-3.1-8b context=much",
        "replace kind=recall freekv model=llama-3.1-8b context=32K budget",
        "replace kind=recall nothing model=llama-3.1-8b context=32K"}) {
    ReplayChange change = ParseReplayChange(text);
    EXPECT_THROW(PredictReplacement(&change, "h200"), Error) << text;
  }
  const traces::Timeline recording = Offloaded();
  const Replay replay(recording, MakeReplayMachine(hardware::FindProfile("h200")));
  const ReplayChange unknown = ParseReplayChange(kFreeKv);
  EXPECT_THROW(replay.Run(std::span(&unknown, 1)), Error);
}

}  // namespace
}  // namespace stallcast::sim
