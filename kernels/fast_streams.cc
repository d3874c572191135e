#include "kernels/fast_streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda_error.h"
#include "kernels/probe.h"

namespace stallcast::kernels {
namespace {

constexpr size_t kPool = 24;
/// In a train, which a stream takes in without blocking.
constexpr int kKernels = 100;
/// Handovers are quick or take twice as long.
constexpr double kQuick = 1.4;

template <class Item>
double PerItem(const Buffer<int>& held, const Event& start, const Event& stop, cudaStream_t stream,
               const Item& item) {
  volatile int* const flag = held.get();
  const auto train = [&] {
    HoldUntil(held.get(), stream);
    Check(cudaEventRecord(start, stream), "cudaEventRecord");
    for (int i = 0; i < kKernels; ++i) item(i);
    Check(cudaEventRecord(stop, stream), "cudaEventRecord");
    *flag = 1;
    Check(cudaEventSynchronize(stop), "cudaEventSynchronize");
  };
  *flag = 1;  // the first launches load the kernels, which waits for all that run
  train();
  *flag = 0;
  train();
  return ElapsedSeconds(start, stop) / kKernels;
}

std::vector<Stream> MadePool() {
  const StreamTimer timer;
  struct Candidate {
    Stream stream;
    double gap = 0, handover = 0;
  };
  std::vector<Candidate> pool(kPool);
  for (Candidate& candidate : pool) candidate.gap = timer.Gap(candidate.stream);
  std::ranges::sort(pool, {}, &Candidate::gap);
  const std::ranges::subrange others(pool.begin() + 1, pool.end());
  for (Candidate& candidate : others) {
    candidate.handover = std::max(timer.Handover(pool[0].stream, candidate.stream),
                                  timer.Handover(candidate.stream, pool[0].stream));
  }
  const double quick =
      kQuick * std::ranges::min_element(others, {}, &Candidate::handover)->handover;
  std::ranges::stable_partition(others, [&](const Candidate& of) { return of.handover <= quick; });
  std::vector<Stream> streams;
  for (Candidate& candidate : pool) streams.push_back(std::move(candidate.stream));
  return streams;
}

}  // namespace

StreamTimer::StreamTimer() : flag_(1, Memory::kPinned) {}

double StreamTimer::Gap(cudaStream_t stream) const {
  return PerItem(flag_, start_, stop_, stream, [&](int) { Nothing(stream); });
}

double StreamTimer::Handover(cudaStream_t one, cudaStream_t two) const {
  return PerItem(flag_, start_, stop_, one, [&](int i) {
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
