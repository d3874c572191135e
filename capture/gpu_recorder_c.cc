#include "capture/gpu_recorder_c.h"

#include "capture/c_abi.h"
#include "capture/gpu_recorder.h"
#include "capture/run_info.h"

using stallcast::capture::GpuRecorderStats;
using stallcast::capture::Guarded;
using stallcast::capture::NotNull;
using stallcast::capture::Text;

struct stallcast_gpu_recorder {
  stallcast_gpu_recorder(const char* path, const stallcast::capture::GpuRecorderOptions& options)
      : recorder(path, stallcast::capture::RunInfo(), options) {}

  stallcast::capture::GpuRecorder recorder;
};

int stallcast_gpu_recorder_open(const char* path, const char* title, stallcast_gpu_recorder** out) {
  return Guarded(__func__, [&] {
    NotNull(out, "out", "stallcast_gpu_recorder_open") = nullptr;
    NotNull(path, "path", "stallcast_gpu_recorder_open");
    stallcast::capture::GpuRecorderOptions options;
    options.title = Text(title);
    options.op_ids = stallcast::capture::OpIds::kCorrelation;
    *out = new stallcast_gpu_recorder(path, options);
  });
}

int stallcast_gpu_recorder_push(stallcast_gpu_recorder* recorder, int32_t step, int32_t op) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_gpu_recorder_push").recorder.PushOp(step, op);
  });
}

int stallcast_gpu_recorder_pop(stallcast_gpu_recorder* recorder) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_gpu_recorder_pop").recorder.PopOp();
  });
}

int stallcast_gpu_recorder_name_stream(stallcast_gpu_recorder* recorder, void* stream,
                                       const char* lane, int32_t compute) {
  return Guarded(__func__, [&] {
    NotNull(lane, "lane", "stallcast_gpu_recorder_name_stream");
    NotNull(recorder, "recorder", "stallcast_gpu_recorder_name_stream")
        .recorder.NameStream(stream, lane, compute != 0);
  });
}

int stallcast_gpu_recorder_close(stallcast_gpu_recorder* recorder, stallcast_gpu_stats* stats) {
  return Guarded(__func__, [&] {
    const GpuRecorderStats result =
        NotNull(recorder, "recorder", "stallcast_gpu_recorder_close").recorder.Stop();
    if (stats) *stats = {result.rows, result.dropped, result.zero_stamps, result.unmatched};
  });
}

void stallcast_gpu_recorder_free(stallcast_gpu_recorder* recorder) { delete recorder; }
