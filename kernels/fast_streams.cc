#include "kernels/fast_streams.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda_error.h"
#include "kernels/probe.h"

namespace stallcast::kernels {
namespace {

/// Beside those that are asked for.
constexpr size_t kCandidates = 12;
/// In a train, which a stream takes in without blocking.
constexpr int kKernels = 200;

}  // namespace

GapTimer::GapTimer() : flag_(1, Memory::kPinned) {}

double GapTimer::Seconds(cudaStream_t stream) const {
  volatile int* const flag = flag_.get();
  const auto train = [&] {
    HoldUntil(flag_.get(), stream);
    Check(cudaEventRecord(start_, stream), "cudaEventRecord");
    for (int i = 0; i < kKernels; ++i) Nothing(stream);
    Check(cudaEventRecord(stop_, stream), "cudaEventRecord");
    *flag = 1;
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  };
  *flag = 1;  // the first launches load the kernels, which waits for all that run
  train();
  *flag = 0;
  train();
  return ElapsedSeconds(start_, stop_) / kKernels;
}

std::vector<Stream> FastestStreams(size_t count) {
  const GapTimer timer;
  std::vector<std::pair<double, Stream>> candidates;
  for (size_t i = 0; i < count + kCandidates; ++i) {
    candidates.emplace_back(0, Stream());
  }
  for (auto& [gap, stream] : candidates) gap = timer.Seconds(stream);
  std::ranges::sort(candidates, {}, [](const auto& candidate) { return candidate.first; });
  std::vector<Stream> streams;
  for (size_t i = 0; i < count; ++i) streams.push_back(std::move(candidates[i].second));
  return streams;
}

}  // namespace stallcast::kernels
