// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/latest_job.h"

#include <exception>
#include <new>
#include <utility>

namespace stallcast::gui {
namespace {

// The exception being handled.
Error Caught() {
  const char* const remedy = "choose a smaller run";
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {"there is not enough memory", "background job", remedy};
  } catch (const std::exception& error) {
    return {error.what(), "background job", remedy};
  } catch (...) {
    return {"an unknown failure", "background job", remedy};
  }
}

}  // namespace

LatestJob::LatestJob() : thread_([this](const std::stop_token& end) { Loop(end); }) {}

LatestJob::~LatestJob() {
  thread_.request_stop();
  Cancel();
  thread_.join();
}

void LatestJob::Run(Job job, OnFailure on_failure) {
  {
    const std::lock_guard lock(mutex_);
    current_.request_stop();
    waiting_ = std::move(job);
    on_failure_ = std::move(on_failure);
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
    OnFailure on_failure;
    std::stop_token stop;
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, end, [&] { return waiting_ != nullptr; }) || end.stop_requested())
        return;
      job = std::exchange(waiting_, nullptr);
      on_failure = std::exchange(on_failure_, nullptr);
      current_ = {};
      stop = current_.get_token();
    }
    try {
      job(stop);
    } catch (...) {
      if (!stop.stop_requested()) on_failure(Caught());
    }
  }
}

}  // namespace stallcast::gui
