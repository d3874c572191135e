// A thread that does the same over and over while this lives, beside what is timed.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/host_cores.h"

namespace stallcast::capture {

/// It has begun once this is made. What the work throws ends it, and the measurement at the latest
/// in Finish().
class BackgroundLoad {
 public:
  /// On the core at this place of `cores`.
  BackgroundLoad(const std::vector<int>& cores, size_t place, std::function<void()> work) {
    int gpu = 0;
    kernels::Check(cudaGetDevice(&gpu), "cudaGetDevice");
    thread_ = std::thread([this, gpu, cores, place, work = std::move(work)] {
      cudaSetDevice(gpu);
      const kernels::OnCore core(cores, place);
      try {
        while (!stop_) {
          work();
          begun_ = true;
        }
      } catch (...) {
        failure_ = std::current_exception();
        begun_ = true;
      }
    });
    while (!begun_) std::this_thread::yield();
  }
  ~BackgroundLoad() { Join(); }
  void Finish() {
    Join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void Join() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<bool> begun_ = false, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace stallcast::capture
