#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/capture/gpu/workload.h"

namespace stallcast::capture::testing {
namespace {

void Check(cudaError_t error, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "workload.cu:%d: %s\n", line, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) Check(call, __LINE__)

__global__ void Scale(float* data, int n, float by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] *= by;
}

__global__ void Nothing() {}

}  // namespace

void RunWorkload(int steps, const OpHooks& hooks) {
  constexpr int kFloats = static_cast<int>(kPieces * kPieceBytes / sizeof(float));
  float* device = nullptr;
  float* host = nullptr;
  cudaStream_t compute, copy;
  cudaEvent_t copied, computed;
  CHECK(cudaMalloc(&device, kPieces * kPieceBytes));
  CHECK(cudaMallocHost(&host, kPieces * kPieceBytes));
  CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&computed, cudaEventDisableTiming));
  if (hooks.streams) hooks.streams(compute, copy);
  const auto op = [&](int32_t step, int32_t id, const auto& body) {
    if (hooks.push) hooks.push(step, id);
    body();
    if (hooks.pop) hooks.pop();
  };
  const auto scale = [&](float by) {
    Scale<<<kFloats / 256, 256, 0, compute>>>(device, kFloats, by);
    CHECK(cudaGetLastError());
  };

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal));
  op(-1, kGraphFirst, [&] { scale(2.0f); });
  op(-1, kGraphSecond, [&] { scale(0.5f); });
  CHECK(cudaStreamEndCapture(compute, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));

  for (int step = 0; step < steps; ++step) {
    nvtxRangePushA(("step " + std::to_string(step)).c_str());
    op(step, kCopyIn, [&] {
      for (int piece = 0; piece < kPieces; ++piece) {
        const auto offset = piece * kPieceBytes / static_cast<int64_t>(sizeof(float));
        CHECK(cudaMemcpyAsync(device + offset, host + offset, kPieceBytes, cudaMemcpyHostToDevice,
                              copy));
      }
      CHECK(cudaEventRecord(copied, copy));
    });
    op(step, kCompute, [&] {
      CHECK(cudaStreamWaitEvent(compute, copied, 0));
      scale(1.0f);
    });
    op(step, kTwoKernels, [&] {
      scale(3.0f);
      scale(1.0f / 3.0f);
    });
    op(step, kCopyOut, [&] {
      CHECK(cudaEventRecord(computed, compute));
      CHECK(cudaStreamWaitEvent(copy, computed, 0));
      CHECK(cudaMemcpyAsync(host, device, kPieceBytes, cudaMemcpyDeviceToHost, copy));
    });
    op(step, kClear, [&] { CHECK(cudaMemsetAsync(device, 0, kPieceBytes, compute)); });
    op(step, kGraph, [&] { CHECK(cudaGraphLaunch(executable, compute)); });
    op(step, kSync, [&] { CHECK(cudaStreamSynchronize(compute)); });
    nvtxRangePop();
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(copied));
  CHECK(cudaEventDestroy(computed));
  CHECK(cudaStreamDestroy(compute));
  CHECK(cudaStreamDestroy(copy));
  CHECK(cudaFree(device));
  CHECK(cudaFreeHost(host));
}

double LaunchNanoseconds(int launches) {
  CHECK(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) Nothing<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / launches;
}

}  // namespace stallcast::capture::testing
