#include "capture/gpu_recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "capture/activity_source.h"
#include "capture/record_thread.h"
#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

constexpr int64_t kPicosecondsPerNs = 1000;

uint32_t ThisThread() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

}  // namespace

class GpuRecorder::Impl {
 public:
  // What cannot be recorded leaves no file.
  Impl(std::unique_ptr<ActivitySource> source, const std::filesystem::path& path,
       const traces::proto::TraceInfo& info, const GpuRecorderOptions& options)
      : own_writer_(std::in_place, path, info), source_(std::move(source)) {
    try {
      Start(&*own_writer_, options);
    } catch (...) {
      std::error_code ignored;
      if (std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
      throw;
    }
  }
  Impl(std::unique_ptr<ActivitySource> source, traces::TraceWriter* writer,
       const GpuRecorderOptions& options)
      : source_(std::move(source)) {
    Start(writer, options);
  }
  ~Impl() {
    if (hangs_) (void)source_.release();
  }

  ActivitySource& source() const { return *source_; }
  int64_t origin_ns() const { return origin_ns_; }

  void Post(RecordThread::Job job) const {
    if (!thread_->Post(std::move(job))) thread_->AddDropped(1);
  }

  GpuRecorderStats Stop() {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(stopped_, true)) return stats_;
    hangs_ = !source_->Stop();
    stats_ = thread_->Stop();
    if (own_writer_) own_writer_->Finish(stats_.dropped, stats_.zero_stamps);
    if (hangs_) {
      throw Error("did not hand over its last records", "CUPTI",
                  "synchronize the device before the recording ends");
    }
    return stats_;
  }

 private:
  void Start(traces::TraceWriter* writer, const GpuRecorderOptions& options) {
    origin_ns_ = source_->NowNs();
    thread_ = std::make_shared<RecordThread>(writer, options, origin_ns_);
    try {
      source_->Start(thread_, options);
    } catch (...) {
      if (!source_->Stop()) (void)source_.release();
      thread_->End();
      throw;
    }
  }

  std::optional<traces::TraceWriter> own_writer_;  // outlives the source, which hands over to it
  std::unique_ptr<ActivitySource> source_;
  bool hangs_ = false;  // in its Stop(), which still uses it: it is never deleted then
  int64_t origin_ns_ = 0;
  std::shared_ptr<RecordThread> thread_;
  std::mutex mutex_;
  bool stopped_ = false;
  GpuRecorderStats stats_;
};

GpuRecorder::GpuRecorder(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
                         const GpuRecorderOptions& options)
    : GpuRecorder(OpenCupti(), path, info, options) {}

GpuRecorder::GpuRecorder(traces::TraceWriter* writer, const GpuRecorderOptions& options)
    : impl_(std::make_unique<Impl>(OpenCupti(), writer, options)) {}

GpuRecorder::GpuRecorder(std::unique_ptr<ActivitySource> source, const std::filesystem::path& path,
                         const traces::proto::TraceInfo& info, const GpuRecorderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(source), path, info, options)) {}

GpuRecorder::~GpuRecorder() {
  try {
    Stop();
  } catch (...) {
    // As the header says.
  }
}

void GpuRecorder::PushOp(int32_t step, int32_t op) { impl_->source().Push({step, op}); }
void GpuRecorder::PopOp() { impl_->source().Pop(); }

void GpuRecorder::NameStream(void* stream, const std::string& lane, bool compute) {
  impl_->Post([key = impl_->source().KeyOf(stream), lane, compute](TimelineAssembler& to) {
    to.NameStream(key, lane, compute);
  });
}

void GpuRecorder::NameThread(const std::string& lane) {
  impl_->Post(
      [thread = ThisThread(), lane](TimelineAssembler& to) { to.NameThread(thread, lane); });
}

Picoseconds GpuRecorder::Now() const {
  return Picoseconds((impl_->source().NowNs() - impl_->origin_ns()) * kPicosecondsPerNs);
}

void GpuRecorder::AddSpan(const std::string& name, Picoseconds start, Picoseconds end, int32_t step,
                          int32_t op, int64_t bytes) {
  const auto at = [&](Picoseconds time) {
    return impl_->origin_ns() + time.count() / kPicosecondsPerNs;
  };
  impl_->Post([span = SpanRecord{.name = name,
                                 .start_ns = at(start),
                                 .end_ns = at(end),
                                 .thread = ThisThread(),
                                 .id = {step, op},
                                 .bytes = bytes}](TimelineAssembler& to) { to.Add(span); });
}

GpuRecorderStats GpuRecorder::Stop() { return impl_->Stop(); }

}  // namespace stallcast::capture
