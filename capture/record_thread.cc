#include "capture/record_thread.h"

#include <algorithm>
#include <utility>

namespace stallcast::capture {
namespace {

// Every chunk repeats the tables of names and lanes, so small ones are put off.
constexpr size_t kRowsPerFlush = size_t{1} << 15;

// The first part makes the timeline, the others extend it.
TimelineAssembler::Emit WriteTo(traces::TraceWriter* writer) {
  return [writer, begun = false, id = uint32_t{0}](const traces::Timeline& part) mutable {
    if (std::exchange(begun, true)) {
      writer->Append(id, part);
    } else {
      id = writer->Write(part);
    }
  };
}

}  // namespace

RecordThread::RecordThread(traces::TraceWriter* writer, const GpuRecorderOptions& options,
                           int64_t origin_ns)
    : flush_period_(options.flush_period),
      buffer_bytes_(options.buffer_bytes),
      assembler_(options, origin_ns, WriteTo(writer)),
      thread_([this] { Run(); }) {}

bool RecordThread::Post(Job job, int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (stopping_ || jobs_.size() >= kMaxJobs) return false;
  jobs_.push_back(std::move(job));
  held_ += bytes;
  if (MuchWaits()) posted_.notify_one();
  return true;
}

bool RecordThread::MuchWaits() const {
  return jobs_.size() >= kMaxJobs / 4 || held_ >= std::max<int64_t>(1, buffer_bytes_ / 4);
}

GpuRecorderStats RecordThread::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    posted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return assembler_.stats();
}

void RecordThread::End() noexcept {
  try {
    Stop();
  } catch (...) {
    // As the header says.
  }
}

void RecordThread::Run() {
  std::vector<Job> jobs;
  std::unique_lock lock(mutex_);
  while (!stopping_ || !jobs_.empty()) {
    posted_.wait_for(lock, flush_period_, [&] { return stopping_ || MuchWaits(); });
    jobs.swap(jobs_);
    held_ = 0;
    lock.unlock();
    RunJobs(jobs);
    jobs.clear();
    lock.lock();
  }
  lock.unlock();
  if (failure_) return;
  try {
    assembler_.AddDropped(dropped_);
    assembler_.Finish();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void RecordThread::RunJobs(std::vector<Job>& jobs) {
  if (failure_) return;
  try {
    for (Job& job : jobs) {
      job(assembler_);
      job = nullptr;  // gives its buffer back
    }
    FlushIfDue();
  } catch (...) {
    // A gap in a file is worse than an early end: nothing is written after a failure.
    failure_ = std::current_exception();
  }
}

void RecordThread::FlushIfDue() {
  const bool overdue = Clock::now() - flushed_ >= flush_period_;
  if (assembler_.waiting() < (overdue ? 1 : kRowsPerFlush)) return;
  assembler_.Flush();
  flushed_ = Clock::now();
}

}  // namespace stallcast::capture
