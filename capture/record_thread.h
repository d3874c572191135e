// The thread that turns records into timeline chunks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "capture/timeline_assembler.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture {

/// Runs jobs that hand records to an assembler, in the order in which they were posted, and writes
/// what the assembler emits as parts of one timeline. Between construction and Stop() only this
/// thread uses the writer. It rests for options.flush_period at a time, or until a quarter waits of
/// what may: on the other hyperthread of a core whose calls are recorded it would slow them.
class RecordThread {
 public:
  using Job = std::function<void(TimelineAssembler&)>;
  /// Jobs that may wait; a source that can have more waiting drops and counts.
  static constexpr size_t kMaxJobs = size_t{1} << 16;

  RecordThread(traces::TraceWriter* writer, const GpuRecorderOptions& options, int64_t origin_ns);
  ~RecordThread() { End(); }
  RecordThread(const RecordThread&) = delete;
  RecordThread& operator=(const RecordThread&) = delete;

  /// Of a job that holds so much of options.buffer_bytes. Never waits for the disk. The job is run
  /// or, after a failure, only destroyed. False where it was not taken: after Stop(), or while
  /// kMaxJobs wait.
  bool Post(Job job, int64_t bytes = 0);
  void AddDropped(int64_t records) { dropped_ += records; }
  /// Runs what was posted, writes the rest and ends the thread. Throws the thread's failure, once.
  GpuRecorderStats Stop();
  /// The same where nobody asks what came of it. The writer is not used afterwards.
  void End() noexcept;

 private:
  void Run();
  void RunJobs(std::vector<Job>& jobs);
  void FlushIfDue();
  bool MuchWaits() const;

  using Clock = std::chrono::steady_clock;
  const std::chrono::milliseconds flush_period_;
  const int64_t buffer_bytes_;
  Clock::time_point flushed_ = Clock::now();
  TimelineAssembler assembler_;
  std::atomic<int64_t> dropped_{0};
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Job> jobs_;
  int64_t held_ = 0;  // bytes, by jobs_
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace stallcast::capture
