// Memory on both sides of the link, and copies between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/buffer.h"
#include "kernels/cuda_error.h"
#include "kernels/executor/host_pool.h"

namespace stallcast::capture {

struct CopyEnds {
  static constexpr int64_t kPool = int64_t{1} << 30;  ///< at both ends
  kernels::HostPool memory;  ///< as a run has it: in large pages, touched by all cores
  std::byte* const host = memory.Get(kPool);
  kernels::Buffer<std::byte> device{kPool};

  /// The i-th of copies as layers recall by turns: of each of eight heads 32 pages, in the order of
  /// their pool (8K tokens a layer), into a layer's cache, where they lie side by side. Between
  /// places that lie far apart at both ends a page takes a tenth longer.
  void CopyPage(int64_t i, int64_t bytes, bool to_device, cudaStream_t stream) const {
    constexpr int64_t kLayers = 32, kHeads = 8, kPages = 32, kCopies = kHeads * kPages;
    constexpr int64_t kLayerPool = kPool / kLayers, kCache = 8 << 20;
    const int64_t layer = i / kCopies % kLayers, head = i / kPages % kHeads, page = i % kPages;
    const int64_t on_host = layer * kLayerPool + page * (kLayerPool / kPages) + head * bytes;
    const int64_t on_device = layer * kCache + i % kCopies * bytes;
    Copy(host + on_host % (kPool - bytes + 1), device.get() + on_device % (kPool - bytes + 1),
         bytes, to_device, stream);
  }
  /// The i-th of the rows of a head in pages of 64 tokens which lie one behind the other with eight
  /// heads each (NHD), the pages scattered over the pool.
  void CopyRow(int i, int64_t bytes, bool to_device, cudaStream_t stream) const {
    constexpr int kRows = 64, kHeads = 8;
    const int64_t row = kHeads * bytes, page = kRows * row;
    const int64_t places = std::max<int64_t>(1, kPool / page);
    Copy(int64_t{i / kRows} * 7919 % places * page + i % kRows * row, bytes, to_device, stream);
  }
  void Copy(int64_t at, int64_t bytes, bool to_device, cudaStream_t stream) const {
    Copy(host + at, device.get() + at, bytes, to_device, stream);
  }

 private:
  static void Copy(std::byte* on_host, std::byte* on_device, int64_t bytes, bool to_device,
                   cudaStream_t stream) {
    kernels::Check(
        cudaMemcpyAsync(to_device ? on_device : on_host, to_device ? on_host : on_device,
                        static_cast<size_t>(bytes),
                        to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  }
};

}  // namespace stallcast::capture
