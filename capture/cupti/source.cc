// CUPTI as a source of records. See the header of GpuRecorder for what it costs.
//
// Habits that CUPTI asks for: no lock is held while it is called; buffers are parsed by our thread,
// not by its own; the clock is its own (CLOCK_REALTIME, no timestamp callback: registering one
// twice spoils kernels' times); CUPTI is never finalized, which is safe only inside of a callback
// of a CUDA call.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capture/activity_source.h"
#include "capture/cupti/activity.h"
#include "capture/cupti/buffers.h"
#include "capture/cupti/library.h"
#include "capture/cupti/names.h"
#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

// CUPTI was seen to hang in a last flush; a program must end all the same.
constexpr std::chrono::seconds kStopLimit{30};

// Earlier ones cannot be refused a buffer without harm, and lack fields that are read.
static_assert(CUPTI_API_VERSION >= 130000);

constexpr std::array kKinds = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
};

// What CUPTI's buffer callbacks need: they carry no user data.
struct Session {
  Session(const Cupti& functions, std::shared_ptr<RecordThread> to, int64_t buffer_bytes)
      : cupti(functions),
        thread(std::move(to)),
        parser(functions),
        pool(std::make_shared<BufferPool>(buffer_bytes)) {}

  const Cupti& cupti;
  const std::shared_ptr<RecordThread> thread;
  const ActivityParser parser;
  const std::shared_ptr<BufferPool> pool;
};

// Callbacks may come as late as during exit, so this is never destroyed.
struct CurrentSession {
  std::mutex mutex;
  std::shared_ptr<Session> session;
};
CurrentSession& Current() {
  static CurrentSession& current = *new CurrentSession;
  return current;
}
std::shared_ptr<Session> TheSession() {
  const std::scoped_lock lock(Current().mutex);
  return Current().session;
}

void CUPTIAPI BufferRequested(uint8_t** buffer, size_t* size, size_t* max_records) {
  const std::shared_ptr<Session> session = TheSession();
  *buffer = session != nullptr ? session->pool->Take() : nullptr;
  *size = *buffer != nullptr ? BufferPool::kBytes : 0;
  *max_records = 0;
}

void CUPTIAPI BufferCompleted(CUcontext context, uint32_t stream, uint8_t* buffer, size_t /*size*/,
                              size_t valid_bytes) {
  const std::shared_ptr<Session> session = TheSession();
  if (session == nullptr) {
    std::free(buffer);  // handed over after the end
    return;
  }
  size_t dropped = 0;
  if (session->cupti.ActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
    session->thread->AddDropped(static_cast<int64_t>(dropped));
  }
  const std::shared_ptr<uint8_t> own = session->pool->Own(buffer);
  if (valid_bytes == 0) return;
  const bool taken = session->thread->Post(
      [session, own, valid_bytes](TimelineAssembler& to) {
        session->parser.Parse(own.get(), valid_bytes, to);
      },
      static_cast<int64_t>(BufferPool::kBytes));
  if (!taken) session->thread->AddDropped(session->parser.Count(own.get(), valid_bytes));
}

// The ids that this thread has pushed, for graph nodes that it makes.
std::vector<ExternalId>& Pushed() {
  thread_local std::vector<ExternalId> ids;
  return ids;
}

void OnGraphNode(const Session& session, CUpti_CallbackId id, const CUpti_GraphData& graph) {
  GraphNodeRecord record;
  if (session.cupti.GetGraphNodeId(graph.node, &record.node) != CUPTI_SUCCESS) return;
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
    if (session.cupti.GetGraphNodeId(graph.originalNode, &record.original) != CUPTI_SUCCESS) return;
  } else if (Pushed().empty()) {
    return;
  } else {
    record.id = Pushed().back().Pack();
  }
  session.thread->Post([record](TimelineAssembler& to) { to.Add(record); });
}

std::string Text(const Cupti& cupti, CUptiResult result) {
  const char* text = nullptr;
  return cupti.GetResultString(result, &text) == CUPTI_SUCCESS && text != nullptr
             ? text
             : fmt::format("error {}", static_cast<int>(result));
}

class CuptiSource final : public ActivitySource {
 public:
  CuptiSource() : cupti_(LoadCupti()) { Subscribe(); }
  ~CuptiSource() override { Stop(); }

  int64_t NowNs() const override {
    uint64_t now = 0;
    cupti_.GetTimestamp(&now);
    return static_cast<int64_t>(now);
  }

  void Start(std::shared_ptr<RecordThread> thread, const GpuRecorderOptions& options) override;
  bool Stop() override;

  void Push(ExternalId id) override {
    Pushed().push_back(id);
    cupti_.ActivityPushExternalCorrelationId(ActivityParser::kExternalKind, id.Pack());
  }
  void Pop() override {
    if (Pushed().empty()) return;
    Pushed().pop_back();
    uint64_t last = 0;
    cupti_.ActivityPopExternalCorrelationId(ActivityParser::kExternalKind, &last);
  }
  StreamKey KeyOf(void* stream) const override;

 private:
  static void CUPTIAPI OnCallback(void* user_data, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                  const void* data) {
    if (domain != CUPTI_CB_DOMAIN_RESOURCE) return;
    const auto* source = static_cast<const CuptiSource*>(user_data);
    const auto* resource = static_cast<const CUpti_ResourceData*>(data);
    OnGraphNode(*source->session_, id,
                *static_cast<const CUpti_GraphData*>(resource->resourceDescriptor));
  }

  void Subscribe();
  void Check(CUptiResult result, const char* what) const;
  void EnableCalls() const;
  void FlushNow() const { cupti_.ActivityFlushAll(0); }

  const Cupti& cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool nvtx_ = false;
  std::shared_ptr<Session> session_;
  // Flushes now and then, so that a killed process loses little: CUPTI's own period hands over full
  // buffers only. The one thread that flushes, because two at once were seen to deadlock.
  std::thread flusher_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
};

void CuptiSource::Subscribe() {
  std::array<char, size_t{2}* CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder = {};
  CUpti_SubscriberParams params = {};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "Stallcast";
  params.oldSubscriberName = holder.data();
  params.oldSubscriberSize = holder.size();
  const CUptiResult result = cupti_.Subscribe(&subscriber_, OnCallback, this, &params);
  if (result == CUPTI_SUCCESS) return;
  subscriber_ = nullptr;
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    holder.back() = '\0';
    const std::string name = holder.data();
    const bool named = !name.empty() && name.find("<not provided>") == std::string::npos;
    throw Error(named ? fmt::format("held by '{}'", name) : "held by another profiler or debugger",
                "CUPTI", "record without it: only one at a time can watch a process");
  }
  throw Error(fmt::format("cannot start: {}", Text(cupti_, result)), "CUPTI",
              "check that this machine has an NVIDIA GPU and driver (nvidia-smi)");
}

void CuptiSource::Check(CUptiResult result, const char* what) const {
  if (result == CUPTI_SUCCESS) return;
  throw Error(fmt::format("cannot {}: {}", what, Text(cupti_, result)), "CUPTI",
              "check that driver and CUDA toolkit fit together, and that profiling is allowed");
}

// All calls are enabled, then those that are not recorded disabled: the other way round, calls one
// by one, CUPTI 13.0 records none where a context exists already (seen on an H200).
void CuptiSource::EnableCalls() const {
  const auto enable = [&](CUpti_ActivityKind kind, const std::vector<CallName>& calls,
                          auto enable_one) {
    Check(cupti_.ActivityEnable(kind), "record CUDA calls");
    for (uint32_t id = 1; id < calls.size(); ++id) {
      if (!calls[id].recorded && !calls[id].name.empty()) enable_one(id, 0);
    }
  };
  enable(CUPTI_ACTIVITY_KIND_RUNTIME, session_->parser.runtime_calls(),
         cupti_.ActivityEnableRuntimeApi);
  enable(CUPTI_ACTIVITY_KIND_DRIVER, session_->parser.driver_calls(),
         cupti_.ActivityEnableDriverApi);
}

void CuptiSource::Start(std::shared_ptr<RecordThread> thread, const GpuRecorderOptions& options) {
  session_ = std::make_shared<Session>(cupti_, std::move(thread), options.buffer_bytes);
  {
    const std::scoped_lock lock(Current().mutex);
    Current().session = session_;
  }
  Check(cupti_.SetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM), "name threads");
  Check(cupti_.ActivityRegisterCallbacks(BufferRequested, BufferCompleted), "hand over buffers");
  for (const auto id :
       {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED}) {
    Check(cupti_.EnableCallback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id), "follow graphs");
  }
  for (const CUpti_ActivityKind kind : kKinds) {
    Check(cupti_.ActivityEnable(kind), "record GPU activity");
  }
  EnableCalls();
  nvtx_ = options.nvtx;
  if (nvtx_) Check(cupti_.ActivityEnable(CUPTI_ACTIVITY_KIND_MARKER), "record NVTX ranges");
  flusher_ = std::thread([this, period = options.flush_period] {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, period, [&] { return stopping_; })) {
      lock.unlock();
      FlushNow();
      lock.lock();
    }
  });
}

bool CuptiSource::Stop() {
  if (subscriber_ == nullptr) return true;
  if (flusher_.joinable()) {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    stop_.notify_one();
  }
  // Where it hangs, the caller never deletes this object.
  std::promise<void> promise;
  std::future<void> done = promise.get_future();
  std::thread worker([this, ended = std::move(promise)]() mutable {
    if (flusher_.joinable()) flusher_.join();
    if (session_ != nullptr) {
      cupti_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
      for (const CUpti_ActivityKind kind : kKinds) cupti_.ActivityDisable(kind);
      cupti_.ActivityDisable(CUPTI_ACTIVITY_KIND_RUNTIME);
      cupti_.ActivityDisable(CUPTI_ACTIVITY_KIND_DRIVER);
      if (nvtx_) cupti_.ActivityDisable(CUPTI_ACTIVITY_KIND_MARKER);
      cupti_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
      size_t dropped = 0;
      if (cupti_.ActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS) {
        session_->thread->AddDropped(static_cast<int64_t>(dropped));
      }
    }
    cupti_.Unsubscribe(subscriber_);
    ended.set_value();
  });
  if (done.wait_for(kStopLimit) == std::future_status::timeout) {
    worker.detach();
    return false;
  }
  worker.join();
  subscriber_ = nullptr;
  const std::scoped_lock lock(Current().mutex);
  Current().session = nullptr;
  return true;
}

StreamKey CuptiSource::KeyOf(void* stream) const {
  StreamKey key;
  Check(cupti_.GetStreamIdEx(nullptr, static_cast<CUstream>(stream), 0, &key.stream),
        "identify the stream");
  // The process has the driver loaded, or there would be no stream.
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    const auto current =
        reinterpret_cast<decltype(&cuCtxGetCurrent)>(dlsym(driver, "cuCtxGetCurrent"));
    CUcontext context = nullptr;
    if (current != nullptr && current(&context) == CUDA_SUCCESS) {
      Check(cupti_.GetContextId(context, &key.context), "identify the context");
    }
    dlclose(driver);
  }
  return key;
}

}  // namespace

std::unique_ptr<ActivitySource> OpenCupti() { return std::make_unique<CuptiSource>(); }

int InitializeCuptiNvtx(void* get_export_table) {
  try {
    return LoadCupti().InitializeInjectionNvtx2(get_export_table);
  } catch (const Error&) {
    return 0;  // whoever starts a recording says it
  }
}

}  // namespace stallcast::capture
