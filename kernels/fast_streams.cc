#include "kernels/fast_streams.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "kernels/cuda_error.h"

namespace stallcast::kernels {
namespace {

constexpr size_t kPool = 24;

std::vector<Stream> MadePool() {
  const StreamTimer timer;
  std::vector<Stream> made(kPool);
  std::vector<double> gaps;
  for (const Stream& stream : made) gaps.push_back(timer.Gap(stream));
  const auto best = std::ranges::min_element(gaps) - gaps.begin();
  // By their distance in order of creation, odd ones first.
  const auto rank = [&](ptrdiff_t i) {
    const ptrdiff_t apart = std::abs(i - best);
    return std::pair{apart != 0 && apart % 2 == 0, apart};
  };
  std::vector<ptrdiff_t> order(kPool);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, rank);
  std::vector<Stream> streams;
  for (const ptrdiff_t i : order) streams.push_back(std::move(made[static_cast<size_t>(i)]));
  return streams;
}

}  // namespace

double StreamTimer::Gap(cudaStream_t stream) const {
  return PerItem(stream, [&](int) { Nothing(stream); });
}

double StreamTimer::Handover(cudaStream_t one, cudaStream_t two) const {
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
