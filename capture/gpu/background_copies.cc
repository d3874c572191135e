#include "capture/gpu/background_copies.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/fast_streams.h"
#include "models/hardware/background_ticks.h"

namespace stallcast::capture {

using kernels::FastStreams;
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Check;

}  // namespace

class BackgroundCopies::Direction {
 public:
  Direction(std::string name, double rate, int64_t piece, cudaMemcpyKind kind)
      : name_(std::move(name)),
        rate_(rate),
        kind_(kind),
        host_(piece, kernels::Memory::kPinned),
        device_(piece) {
    Check(cudaGetDevice(&gpu_), "cudaGetDevice");
    for (kernels::Event& event : done_) event = kernels::Event(cudaEventDisableTiming);
    thread_ = std::thread([this] { Run(); });
  }

  ~Direction() {
    stop_ = true;
    thread_.join();
    cudaStreamSynchronize(stream_);
  }

  std::string note() const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    return fmt::format("{}: {:.1f} of {:.1f} GB/s copied", name_,
                       static_cast<double>(moved_) / seconds * 1e-9, rate_ * 1e-9);
  }

 private:
  // A copy at each tick, or none where too many are under way: the tick is lost, as in the engine.
  void Run() {
    cudaSetDevice(gpu_);
    const bool down = kind_ == cudaMemcpyHostToDevice;
    hardware::BackgroundTicks ticks(
        down ? plan::Direction::kHostToDevice : plan::Direction::kDeviceToHost,
        FromSeconds(static_cast<double>(host_.bytes()) / rate_));
    auto tick = Clock::now();
    while (!stop_) {
      tick += std::chrono::duration_cast<Clock::duration>(ticks.Next());
      while (Clock::now() < tick && !stop_) {
      }
      while (finished_ < issued_ && cudaEventQuery(EventOf(finished_)) == cudaSuccess) {
        ++finished_;
        moved_ += host_.bytes();
      }
      if (issued_ - finished_ == hardware::kBackgroundCopies) continue;
      if (cudaMemcpyAsync(down ? device_.get() : host_.get(), down ? host_.get() : device_.get(),
                          static_cast<size_t>(host_.bytes()), kind_, stream_) != cudaSuccess ||
          cudaEventRecord(EventOf(issued_), stream_) != cudaSuccess) {
        return;  // the run beside meets the same error and says so
      }
      ++issued_;
    }
  }
  cudaEvent_t EventOf(int64_t copy) const {
    return done_[static_cast<size_t>(copy % hardware::kBackgroundCopies)];
  }

  std::string name_;
  double rate_;
  cudaMemcpyKind kind_;
  kernels::Buffer<std::byte> host_, device_;
  int gpu_ = 0;
  // Of the last, which no plan has.
  const cudaStream_t stream_ = FastStreams(
      FastStreams::kCount)[FastStreams::kCount - (kind_ == cudaMemcpyHostToDevice ? 1 : 2)];
  std::array<kernels::Event, hardware::kBackgroundCopies> done_;
  int64_t issued_ = 0, finished_ = 0;
  std::atomic<int64_t> moved_ = 0;
  std::atomic<bool> stop_ = false;
  Clock::time_point begin_ = Clock::now();
  std::thread thread_;
};

BackgroundCopies::BackgroundCopies(const hardware::Profile& profile) {
  const auto piece = static_cast<int64_t>(profile.background.piece);
  if (profile.background.h2d > 0) {
    directions_.push_back(std::make_unique<Direction>("background.h2d", profile.background.h2d,
                                                      piece, cudaMemcpyHostToDevice));
  }
  if (profile.background.d2h > 0) {
    directions_.push_back(std::make_unique<Direction>("background.d2h", profile.background.d2h,
                                                      piece, cudaMemcpyDeviceToHost));
  }
}

BackgroundCopies::~BackgroundCopies() = default;

std::vector<std::string> BackgroundCopies::notes() const {
  std::vector<std::string> notes;
  for (const auto& direction : directions_) notes.push_back(direction->note());
  return notes;
}

}  // namespace stallcast::capture
