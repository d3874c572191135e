#include "kernels/runtime/fast_streams.h"

#include <algorithm>
#include <set>
#include <vector>

#include "kernels/runtime/held_train.h"
#include "kernels/runtime/probe.h"
#include "tests/kernels/on_device.h"

namespace stallcast::kernels {
namespace {

class FastStreamsTest : public OnDevice {};

TEST_F(FastStreamsTest, AreAsManyAsAskedForAndRunBesideOneAnother) {
  const FastStreams streams(3);
  const std::set<cudaStream_t> distinct(streams.begin(), streams.end());
  ASSERT_EQ(distinct.size(), 3u);
  HeldTrain train;
  // Loaded while nothing is held.
  train.Hold(streams[0]);
  EXPECT_TRUE(train.Release());
  for (const cudaStream_t stream : streams) Nothing(stream);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  // The first is held until the others are done.
  train.Hold(streams[0]);
  for (const cudaStream_t stream : streams) Nothing(stream);
  EXPECT_EQ(cudaStreamSynchronize(streams[1]), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams[2]), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady);
  EXPECT_TRUE(train.Release());
  EXPECT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
}

TEST_F(FastStreamsTest, AreTheSameForAllWhoAsk) {
  const FastStreams two(2), many(6), again(2);
  const std::set<cudaStream_t> distinct(many.begin(), many.end());
  EXPECT_EQ(distinct.size(), 6u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two[i], many[i]);
    EXPECT_EQ(two[i], again[i]);
  }
}

TEST_F(FastStreamsTest, NoneThatWaitsSlowsTheFirst) {
  const FastStreams streams(4);
  StreamTimer timer;
  const auto least = [](const auto& seconds) {
    return std::min({seconds(), seconds(), seconds()});
  };
  const double alone = least([&] { return timer.Gap(streams[0]); });
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_LT(least([&] { return timer.GapBeside(streams[0], streams[i]); }), 1.3 * alone);
  }
}

TEST_F(FastStreamsTest, OneThatWasLeftInACaptureIsAsNew) {
  {
    const FastStreams streams(1);
    Check(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    Nothing(streams[0]);
  }
  const FastStreams again(1);
  Nothing(again[0]);
  EXPECT_EQ(cudaStreamSynchronize(again[0]), cudaSuccess);
}

}  // namespace
}  // namespace stallcast::kernels
