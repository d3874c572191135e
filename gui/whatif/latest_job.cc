// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/latest_job.h"

#include <utility>

namespace stallcast::gui {

LatestJob::LatestJob() : thread_([this](const std::stop_token& end) { Loop(end); }) {}

LatestJob::~LatestJob() {
  thread_.request_stop();
  Cancel();
  thread_.join();
}

void LatestJob::Run(Job job) {
  {
    const std::lock_guard lock(mutex_);
    current_.request_stop();
    waiting_ = std::move(job);
  }
  wake_.notify_one();
}

void LatestJob::Cancel() {
  const std::lock_guard lock(mutex_);
  current_.request_stop();
  waiting_ = nullptr;
}

void LatestJob::Loop(const std::stop_token& end) {
  while (true) {
    Job job;
    std::stop_token stop;
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, end, [&] { return waiting_ != nullptr; }) || end.stop_requested())
        return;
      job = std::exchange(waiting_, nullptr);
      current_ = {};
      stop = current_.get_token();
    }
    job(stop);
  }
}

}  // namespace stallcast::gui
