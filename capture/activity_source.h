// Where records of GPU activity come from.
#pragma once

#include <cstdint>
#include <memory>

#include "capture/gpu_record.h"
#include "capture/record_thread.h"

namespace stallcast::capture {

/// CUPTI, subscribed to: no other profiler can take it. Nothing is recorded before Start().
class ActivitySource {
 public:
  virtual ~ActivitySource() = default;

  /// The clock of the records.
  virtual int64_t NowNs() const = 0;
  /// Begins to post records to `*thread`.
  virtual void Start(std::shared_ptr<RecordThread> thread, const GpuRecorderOptions& options) = 0;
  /// Posts what is left and lets CUPTI go. False where CUPTI did not return: records are lost, and
  /// this object must never be deleted.
  virtual bool Stop() = 0;

  virtual void Push(ExternalId id) = 0;
  virtual void Pop() = 0;
  /// Of a stream of the calling thread's current context.
  virtual StreamKey KeyOf(void* stream) const = 0;
};

/// Throws Error where CUPTI is missing, cannot start, or is held by another profiler.
std::unique_ptr<ActivitySource> OpenCupti();

/// For a process whose NVTX_INJECTION64_PATH names a library that forwards to this: makes NVTX
/// ranges known to CUPTI. Returns 0 where that fails.
int InitializeCuptiNvtx(void* get_export_table);

}  // namespace stallcast::capture
