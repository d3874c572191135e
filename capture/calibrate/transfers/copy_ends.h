// Memory on both sides of the link, and copies between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/executor/host_pool.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"

namespace stallcast::capture {

struct CopyEnds {
  static constexpr int64_t kPool = int64_t{1} << 30;
  static constexpr int64_t kPage = 16384;  ///< a piece of a recall
  /// Of so many bytes at both ends.
  explicit CopyEnds(int64_t bytes = kPool) : pool(bytes), host(memory.Get(bytes)), device(bytes) {}

  const int64_t pool;
  kernels::HostPool memory;  ///< as a run has it: in large pages, touched by all cores
  std::byte* const host;
  kernels::Buffer<std::byte> device;

  /// The i-th of copies between places that lie far apart at both ends.
  void CopyPage(int64_t i, int64_t bytes, bool to_device, cudaStream_t stream) const {
    const int64_t places = std::max<int64_t>(1, pool / bytes);
    Copy(i * 7919 % places * bytes, bytes, to_device, stream);
  }
  /// The i-th of the rows of a head in pages of 64 tokens which lie one behind the other with eight
  /// heads each (NHD), the pages scattered over the pool.
  void CopyRow(int i, int64_t bytes, bool to_device, cudaStream_t stream) const {
    constexpr int kRows = 64, kHeads = 8;
    const int64_t row = kHeads * bytes, page = kRows * row;
    const int64_t places = std::max<int64_t>(1, pool / page);
    Copy(int64_t{i / kRows} * 7919 % places * page + i % kRows * row, bytes, to_device, stream);
  }
  void Copy(int64_t at, int64_t bytes, bool to_device, cudaStream_t stream) const {
    std::byte* on_host = host + at;
    std::byte* on_device = device.get() + at;
    kernels::Check(
        cudaMemcpyAsync(to_device ? on_device : on_host, to_device ? on_host : on_device,
                        static_cast<size_t>(bytes),
                        to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  }
};

}  // namespace stallcast::capture
