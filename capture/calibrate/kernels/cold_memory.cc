#include "capture/calibrate/kernels/cold_memory.h"

#include <algorithm>
#include <bit>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"

namespace stallcast::capture {
namespace {

constexpr int64_t kApart = int64_t{4} << 20;  // bytes; two of the GPU's large pages

int64_t Parts(int64_t part_bytes, int64_t bytes) {
  size_t free = 0, all = 0;
  kernels::Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  const int64_t fit = std::min(bytes, static_cast<int64_t>(free) / 4) / part_bytes;
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(fit, 1))));
}

}  // namespace

ColdMemory::ColdMemory(int64_t part, float range, int64_t bytes)
    : part_(std::max<int64_t>(1, (part + 127) / 128) * 128),
      parts_(Parts(2 * part_, bytes)),
      stride_(kApart / (2 * part_) | 1),
      data_(part_ * parts_) {
  kernels::FillRandom(data_.get(), data_.size(), range, 1, nullptr);
}

}  // namespace stallcast::capture
