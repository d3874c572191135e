// Another thread, kept on the second of some cores, that sleeps but while it does its work.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/runtime/host_cores.h"

namespace stallcast::capture {

/// What the work throws, Await() throws.
class SleepingThread {
 public:
  SleepingThread(const std::vector<int>& cores, std::function<void()> work)
      : work_(std::move(work)), thread_([this, cores] {
          const kernels::OnCore core(cores, 1);
          Run();
        }) {}
  ~SleepingThread() {
    Pass(kStop);
    thread_.join();
  }
  void Wake() { Pass(kWork); }
  /// Sleeps until the work is done.
  void Await() {
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [this] { return turn_ == kSleep; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  enum Turn { kSleep, kWork, kStop };
  void Pass(Turn turn) {
    {
      const std::lock_guard lock(mutex_);
      turn_ = turn;
    }
    passed_.notify_all();
  }
  void Run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        passed_.wait(lock, [this] { return turn_ != kSleep; });
        if (turn_ == kStop) return;
      }
      std::exception_ptr failure;
      try {
        work_();
      } catch (...) {
        failure = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        failure_ = failure;
        if (turn_ == kWork) turn_ = kSleep;  // else it is to stop
      }
      passed_.notify_all();
    }
  }

  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable passed_;
  Turn turn_ = kSleep;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace stallcast::capture
