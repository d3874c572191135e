#include "kernels/fast_streams.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda_error.h"
#include "kernels/probe.h"

namespace stallcast::kernels {
namespace {

constexpr size_t kPool = 14;

struct Pooled {
  Stream stream;
  bool beside = false;  // of the group that does not slow the fastest one
  bool lent = false;
};

// What takes 1.6 times as long, where it does; the least of some, as nothing makes it shorter.
bool Slows(StreamTimer& timer, cudaStream_t waiting, cudaStream_t stream, double gap) {
  double least = INFINITY;
  for (int i = 0; i < 3; ++i) least = std::min(least, timer.GapBeside(stream, waiting));
  return least > 1.3 * gap;
}

std::vector<Pooled> MadePool() {
  StreamTimer timer;
  std::vector<std::pair<double, Stream>> made;
  for (size_t i = 0; i < kPool; ++i) made.emplace_back(0, Stream());
  for (auto& [gap, stream] : made) gap = timer.Gap(stream);
  std::ranges::sort(made, {}, [](const auto& of) { return of.first; });
  std::vector<Pooled> pool;
  for (auto& [gap, stream] : made) {
    const bool beside = !pool.empty() && !Slows(timer, stream, pool[0].stream, made[0].first);
    pool.push_back({std::move(stream), beside});
  }
  return pool;
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

void ConnectEachStream() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0); }

struct LentStreams::Pool {
  std::mutex mutex;
  std::vector<Pooled> streams = MadePool();  // in order of preference
};

LentStreams::Pool& LentStreams::OfDevice() {
  // Nothing ends them but the process: what is static may use them until then.
  static std::mutex& mutex = *new std::mutex;
  static auto& pools = *new std::map<int, Pool>;
  int device = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  return pools[device];
}

LentStreams::LentStreams(size_t count) : pool_(OfDevice()) {
  const std::lock_guard lock(pool_.mutex);
  std::vector<Pooled>& pool = pool_.streams;
  while (streams_.size() < count) {
    const bool beside = !streams_.empty();
    auto next = std::ranges::find_if(
        pool, [&](const Pooled& of) { return !of.lent && of.beside == beside; });
    if (next == pool.end()) next = std::ranges::find(pool, false, &Pooled::lent);
    if (next == pool.end()) next = pool.insert(next, Pooled());
    next->lent = true;
    places_.push_back(static_cast<size_t>(next - pool.begin()));
    streams_.push_back(next->stream);
  }
}

LentStreams::~LentStreams() {
  const std::lock_guard lock(pool_.mutex);
  for (const size_t place : places_) {
    Pooled& of = pool_.streams[place];
    // Work that failed can have left it in a capture.
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t asked = cudaStreamIsCapturing(of.stream, &capture);
    if (asked == cudaSuccess && capture != cudaStreamCaptureStatusNone) {
      cudaGraph_t left = nullptr;
      cudaStreamEndCapture(of.stream, &left);
      if (left != nullptr) cudaGraphDestroy(left);
      cudaGetLastError();
    }
    of.lent = false;
  }
}

}  // namespace stallcast::kernels
