#include "kernels/fast_streams.h"

#include <set>

#include "kernels/probe.h"
#include "tests/kernels/on_device.h"

namespace stallcast::kernels {
namespace {

class FastStreams : public OnDevice {};

TEST_F(FastStreams, AreAsManyAsAskedForAndRunBesideOneAnother) {
  const std::vector<Stream> streams = FastestStreams(3);
  const std::set<cudaStream_t> distinct(streams.begin(), streams.end());
  ASSERT_EQ(distinct.size(), 3u);
  // The first is held until the others are done.
  Buffer<int> flag(1, Memory::kPinned);
  *flag.get() = 1;
  for (const Stream& stream : streams) {
    HoldUntil(flag.get(), stream);
    Nothing(stream);
  }
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  *flag.get() = 0;
  HoldUntil(flag.get(), streams[0]);
  for (const Stream& stream : streams) Nothing(stream);
  EXPECT_EQ(cudaStreamSynchronize(streams[1]), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams[2]), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady);
  *flag.get() = 1;
  EXPECT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
}

}  // namespace
}  // namespace stallcast::kernels
