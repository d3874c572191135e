#include "kernels/fast_streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda_error.h"
#include "kernels/probe.h"

namespace stallcast::kernels {
namespace {

constexpr size_t kPool = 14;

std::vector<Stream> MadePool() {
  StreamTimer timer;
  std::vector<std::pair<double, Stream>> made;
  for (size_t i = 0; i < kPool; ++i) made.emplace_back(0, Stream());
  for (auto& [gap, stream] : made) gap = timer.Gap(stream);
  std::ranges::sort(made, {}, [](const auto& of) { return of.first; });
  std::vector<Stream> streams;
  for (auto& [gap, stream] : made) streams.push_back(std::move(stream));
  return streams;
}

}  // namespace

double StreamTimer::Gap(cudaStream_t stream) {
  return PerItem(stream, [&](int) { Nothing(stream); });
}

double StreamTimer::Handover(cudaStream_t one, cudaStream_t two) {
  return PerItem(one, [&](int i) {
    const cudaStream_t from = i % 2 == 0 ? one : two, to = i % 2 == 0 ? two : one;
    Check(cudaEventRecord(passed_, from), "cudaEventRecord");
    Check(cudaStreamWaitEvent(to, passed_, 0), "cudaStreamWaitEvent");
    Nothing(to);
  });
}

struct LentStreams::Pool {
  std::mutex mutex;
  std::vector<Stream> streams = MadePool();  // in order of preference
  std::vector<bool> lent = std::vector<bool>(streams.size());
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
  for (size_t place = 0; streams_.size() < count; ++place) {
    if (place == pool_.streams.size()) {
      pool_.streams.emplace_back();
      pool_.lent.push_back(false);
    }
    if (pool_.lent[place]) continue;
    pool_.lent[place] = true;
    places_.push_back(place);
    streams_.push_back(pool_.streams[place]);
  }
}

LentStreams::~LentStreams() {
  const std::lock_guard lock(pool_.mutex);
  for (const size_t place : places_) {
    // Work that failed can have left it in a capture.
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const cudaError_t asked = cudaStreamIsCapturing(pool_.streams[place], &capture);
    if (asked == cudaSuccess && capture != cudaStreamCaptureStatusNone) {
      cudaGraph_t left = nullptr;
      cudaStreamEndCapture(pool_.streams[place], &left);
      if (left != nullptr) cudaGraphDestroy(left);
      cudaGetLastError();
    }
    pool_.lent[place] = false;
  }
}

}  // namespace stallcast::kernels
