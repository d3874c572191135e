// SPDX-License-Identifier: GPL-3.0-or-later
// Runs jobs beside the window; only the latest one matters.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "traces/common/error.h"

namespace stallcast::gui {

/// One thread. A new job asks the one under way to stop and replaces the one that waits.
class LatestJob {
 public:
  using Job = std::function<void(const std::stop_token&)>;
  using OnFailure = std::function<void(const Error&)>;

  LatestJob();
  /// Asks the job under way to stop and waits for it.
  ~LatestJob();

  /// What the job throws goes to `on_failure`, in the job's thread; of a job that was asked to stop
  /// nobody wants to know.
  void Run(Job job, OnFailure on_failure);
  void Cancel();

 private:
  void Loop(const std::stop_token& end);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  Job waiting_;
  OnFailure on_failure_;  // of the job that waits
  std::stop_source current_;
  std::jthread thread_;  // last: begins when the rest is there
};

}  // namespace stallcast::gui
