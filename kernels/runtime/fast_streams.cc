#include "kernels/runtime/fast_streams.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/probe.h"

namespace stallcast::kernels {
namespace {

// What takes 1.6 times as long, where it does; the least of some, as nothing makes it shorter.
bool Slows(StreamTimer& timer, cudaStream_t waiting, cudaStream_t stream, double gap) {
  double least = INFINITY;
  for (int i = 0; i < 3; ++i) least = std::min(least, timer.GapBeside(stream, waiting));
  return least > 1.3 * gap;
}

// Of streams that have been used in turn before: a process's first stream is faster than it will be
// until a second is used.
double LeastGap(StreamTimer& timer, cudaStream_t stream) {
  double least = INFINITY;
  for (int look = 0; look < 3; ++look) least = std::min(least, timer.Gap(stream));
  return least;
}

// Those that were made one behind the other are of one kind, but where a dozen or sixteen of one
// end: as many as are wanted, where the slowest of those looked at is quickest.
std::vector<Stream> FastCandidates(StreamTimer& timer) {
  constexpr size_t kMade = 48;
  constexpr size_t kEach = 4;  // is looked at: which connection a stream has changes by use
  std::vector<Stream> made(kMade);
  std::vector<double> gaps;
  for (size_t i = 0; i < kMade; i += kEach) timer.Gap(made[i]);
  for (size_t i = 0; i < kMade; i += kEach) gaps.push_back(LeastGap(timer, made[i]));
  size_t first = 0;
  double quickest = INFINITY;
  for (size_t from = 0; from + FastStreams::kCount <= kMade; from += kEach) {
    double slowest = 0;
    for (size_t i = from; i < from + FastStreams::kCount; i += kEach) {
      slowest = std::max(slowest, gaps[i / kEach]);
    }
    // As many looked at one by one differ by a few hundredths.
    if (slowest < 0.96 * quickest) quickest = slowest, first = from;
  }
  std::vector<Stream> of;
  for (size_t i = 0; i < FastStreams::kCount; ++i) of.push_back(std::move(made[first + i]));
  return of;
}

std::vector<Stream> Chosen() {
  StreamTimer timer;
  std::vector<std::pair<double, Stream>> tried;
  for (Stream& stream : FastCandidates(timer)) tried.emplace_back(INFINITY, std::move(stream));
  for (auto& [gap, stream] : tried) timer.Gap(stream);
  for (auto& [gap, stream] : tried) gap = LeastGap(timer, stream);
  std::ranges::sort(tried, {}, [](const auto& of) { return of.first; });
  const auto& [gap, first] = tried[0];
  std::stable_partition(tried.begin() + 1, tried.end(),
                        [&](const auto& of) { return !Slows(timer, of.second, first, gap); });
  std::vector<Stream> chosen;
  for (auto& of : tried) chosen.push_back(std::move(of.second));
  return chosen;
}

}  // namespace

double StreamTimer::Gap(cudaStream_t stream) {
  return PerItem(stream, [&](int) { Nothing(stream); });
}

double StreamTimer::GapBeside(cudaStream_t stream, cudaStream_t waiting) {
  return PerItem(stream, [&](int i) {
    Nothing(stream);
    if (i + 1 < kItems) return;
    Check(cudaEventRecord(passed_, stream), "cudaEventRecord");
    Check(cudaStreamWaitEvent(waiting, passed_, 0), "cudaStreamWaitEvent");
    Nothing(waiting);
  });
}

double StreamTimer::Handover(cudaStream_t one, cudaStream_t two) {
  return PerItem(one, [&](int i) {
    const cudaStream_t from = i % 2 == 0 ? one : two, to = i % 2 == 0 ? two : one;
    Check(cudaEventRecord(passed_, from), "cudaEventRecord");
    Check(cudaStreamWaitEvent(to, passed_, 0), "cudaStreamWaitEvent");
    Nothing(to);
  });
}

FastStreams::FastStreams(size_t count) {
  // Nothing ends them but the process: what is static may use them until then.
  static std::mutex& mutex = *new std::mutex;
  static auto& of_device = *new std::map<int, std::vector<Stream>>;
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  std::vector<Stream>& streams = of_device[device];
  if (streams.empty()) streams = Chosen();
  while (streams.size() < count) streams.emplace_back();
  streams_.assign(streams.begin(), streams.begin() + static_cast<ptrdiff_t>(count));
}

FastStreams::~FastStreams() {
  for (const cudaStream_t stream : streams_) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t asked = cudaStreamIsCapturing(stream, &capture);
    if (asked == cudaSuccess && capture != cudaStreamCaptureStatusNone) {
      cudaGraph_t left = nullptr;
      cudaStreamEndCapture(stream, &left);
      if (left != nullptr) cudaGraphDestroy(left);
      cudaGetLastError();
    }
  }
}

}  // namespace stallcast::kernels
