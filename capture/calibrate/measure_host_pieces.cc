#include "capture/calibrate/measure_host_pieces.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "capture/calibrate/device_times.h"
#include "capture/calibrate/fit.h"
#include "capture/calibrate/recording.h"
#include "kernels/decoder.h"
#include "kernels/fill.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

// A layer's widest product, and as many of them behind one another as a layer reads bytes twice.
constexpr int64_t kRows = 28672, kColumns = 4096;
constexpr int kProducts = 3;
constexpr int64_t kPiece = 16384;
constexpr int kCycles = 20, kFirst = 4;  // the first cycles warm up

}  // namespace

bool MeasureHostPieces(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  profile.memory_host_piece = profile.memory_host_pieces = profile.memory_host_share = 0;
  // Weights of a whole model where they fit: a product finds none of its own translations.
  size_t free = 0, all = 0;
  kernels::Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  const int64_t bytes = kRows * kColumns * int64_t{sizeof(Bf16)};
  const int64_t parts = std::min<int64_t>(64, static_cast<int64_t>(free) / 2 / bytes);
  if (parts < 8) return false;
  const std::unique_ptr<Recording> recording = Recording::Begin();
  if (!recording) return false;
  GpuRecorder& recorder = recording->recorder();
  Buffer<Bf16> weights(parts * kRows * kColumns), input(kColumns), output(kRows);
  kernels::FillRandom(weights.get(), weights.size(), 1, 2, nullptr);
  kernels::FillRandom(input.get(), input.size(), 1, 3, nullptr);
  kernels::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  kernels::Gemm gemm;
  const std::vector<int> counts = {0, 16, 32, 48, 64, 96, 128, 256, 512};
  // A step for each place behind so many copies.
  const auto step = [](int count, int place) { return count * kProducts + place; };
  int part = 0, page = 0;
  for (const int count : counts) {
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      for (int i = 0; i < count; ++i) ends.CopyPage(page++, kPiece, true, watch.stream());
      for (int place = 0; place < kProducts; ++place) {
        recorder.PushOp(step(count, place), cycle < kFirst ? -1 : cycle);
        gemm.Run(input.get(), weights.get() + part++ % parts * kRows * kColumns, output.get(), 1,
                 kRows, kColumns, watch.stream());
        recorder.PopOp();
      }
      watch.Finish();
    }
  }
  auto spans = DeviceSpans(recording->End());
  std::vector<double> alone;  // of the first count, none, by place
  std::vector<BehindPieces> behind;
  for (const int count : counts) {
    BehindPieces of{.pieces = static_cast<double>(count)};
    for (int place = 0; place < kProducts; ++place) {
      const std::optional<double> seconds = MedianTime(spans[step(count, place)]);
      if (!seconds) return false;
      if (place == 0) of.first = *seconds;
      if (count == 0) {
        alone.push_back(*seconds);
      } else {
        of.longer += *seconds - alone[static_cast<size_t>(place)];
      }
    }
    if (count > 0) behind.push_back(of);
  }
  const HostPieces fit = FitHostPieces(alone.front(), behind);
  profile.memory_host_piece = fit.each;
  profile.memory_host_pieces = fit.most;
  profile.memory_host_share = fit.share;
  return true;
}

}  // namespace stallcast::capture
