// A zero-copy gather of pieces that lie scattered over a pinned pool.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "capture/calibrate/copy_ends.h"
#include "kernels/movement.h"
#include "kernels/upload.h"

namespace stallcast::capture {

class ScatteredGather {
 public:
  /// Of `bytes` in pieces of 512 bytes a token of a page: 512 B x tokens. With `rows`, 256 B each.
  ScatteredGather(const CopyEnds& ends, int32_t page_tokens, bool rows, int64_t bytes)
      : ScatteredGather({ends.host, static_cast<size_t>(ends.pool)}, ends.device.get(), page_tokens,
                        rows, bytes) {}
  /// The same of another pool.
  ScatteredGather(std::span<const std::byte> from, std::byte* to, int32_t page_tokens, bool rows,
                  int64_t bytes)
      : from_(from.data()), to_(to), rows_(rows), page_tokens_(page_tokens) {
    const int64_t piece = int64_t{512} * page_tokens;
    pieces_ = static_cast<int32_t>(bytes / piece);
    const int64_t places = static_cast<int64_t>(from.size()) / piece;
    std::vector<int64_t> source;
    std::vector<int32_t> slot, head;
    std::mt19937_64 random(1);
    for (int32_t i = 0; i < pieces_; ++i) {
      source.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(places)));
      slot.push_back(i / kHeads);
      head.push_back(i % kHeads);
    }
    source_ = kernels::Uploaded(source);
    slot_ = kernels::Uploaded(slot);
    head_ = kernels::Uploaded(head);
  }

  /// By so many blocks, so many of the pieces from `first` on, to where `to` bytes of the device's
  /// end lie before them.
  void Run(int32_t blocks, int32_t pieces, cudaStream_t stream, int32_t first = 0,
           int64_t to = 0) const {
    const kernels::PagedKv cache =
        kernels::NhdPages(reinterpret_cast<__nv_bfloat16*>(to_ + to), page_tokens_, kHeads, 128);
    kernels::ZeroCopyGather(reinterpret_cast<const __nv_bfloat16*>(from_), source_.get() + first,
                            slot_.get() + first, head_.get() + first, pieces, nullptr, cache, rows_,
                            blocks, stream);
  }

  int32_t pieces() const { return pieces_; }
  double bytes() const { return piece_bytes() * pieces_; }
  double piece_bytes() const { return 512.0 * page_tokens_; }

 private:
  static constexpr int32_t kHeads = 8;
  const std::byte* from_;
  std::byte* to_;
  bool rows_;
  int32_t page_tokens_, pieces_ = 0;
  kernels::Buffer<int64_t> source_;
  kernels::Buffer<int32_t> slot_, head_;
};

}  // namespace stallcast::capture
