/* C interface of the GPU recorder, in libstallcast_capture.so. Status codes, stallcast_last_error()
 * and texts as in recorder_c.h. All functions may be called from any thread. One recorder at a time
 * in a process; call order: open, ..., close, free. */
#ifndef STALLCAST_CAPTURE_GPU_RECORDER_C_H_
#define STALLCAST_CAPTURE_GPU_RECORDER_C_H_

#include <stdint.h>

#include "capture/recorder_c.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stallcast_gpu_recorder stallcast_gpu_recorder;

typedef struct stallcast_gpu_stats {
  int64_t rows;        /* in the file */
  int64_t dropped;     /* records lost */
  int64_t zero_stamps; /* records without a usable time: they give no row */
  int64_t unmatched;   /* rows of GPU work whose CUDA call was not found */
} stallcast_gpu_stats;

/* Begins to record the process's kernels, copies, waits, CUDA calls and NVTX ranges into a file of
 * its own. `title` may be null. Fails, leaving no file, where CUPTI is missing or held by another
 * profiler. Ops that are not pushed get CUDA's correlation id, which a call shares with its work.
 */
STALLCAST_API int stallcast_gpu_recorder_open(const char* path, const char* title,
                                              stallcast_gpu_recorder** out);

/* CUDA calls of this thread belong to this step and op, either of which may be -1, until the
 * matching pop. */
STALLCAST_API int stallcast_gpu_recorder_push(stallcast_gpu_recorder* recorder, int32_t step,
                                              int32_t op);
STALLCAST_API int stallcast_gpu_recorder_pop(stallcast_gpu_recorder* recorder);

/* Names the lane of a cudaStream_t of the current context, before work is issued to it. `compute`:
 * not 0 for the stream whose idle time counts as exposed. */
STALLCAST_API int stallcast_gpu_recorder_name_stream(stallcast_gpu_recorder* recorder, void* stream,
                                                     const char* lane, int32_t compute);

/* Writes what is left and ends the file. Synchronize the device first: work that still runs is
 * lost. `stats` may be null. */
STALLCAST_API int stallcast_gpu_recorder_close(stallcast_gpu_recorder* recorder,
                                               stallcast_gpu_stats* stats);

/* Closes where that was not done, and frees; null is allowed. */
STALLCAST_API void stallcast_gpu_recorder_free(stallcast_gpu_recorder* recorder);

#ifdef __cplusplus
}
#endif

#endif /* STALLCAST_CAPTURE_GPU_RECORDER_C_H_ */
