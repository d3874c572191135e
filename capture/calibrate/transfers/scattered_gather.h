// A zero-copy gather of pieces that lie scattered over a pinned pool, as a recall's: of units that
// eight heads miss, by lists on the device.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "capture/calibrate/transfers/copy_ends.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/upload.h"

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
      : from_(from.data()),
        to_(to),
        rows_(rows),
        page_tokens_(page_tokens),
        pages_(static_cast<int32_t>(std::ssize(from) / (int64_t{512} * page_tokens * kHeads))) {
    pieces_ = static_cast<int32_t>(bytes / (int64_t{512} * page_tokens));
    a_head_ = (pieces_ + kHeads - 1) / kHeads;
    std::vector<int32_t> unit, slot, count;
    std::mt19937 random(1);
    for (int32_t i = 0; i < kHeads * a_head_; ++i) {
      unit.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(pages_)));
      slot.push_back(i % a_head_);
    }
    for (int32_t pieces = 0; pieces <= pieces_; ++pieces) {
      for (int32_t head = 0; head < kHeads; ++head) {
        count.push_back((pieces + kHeads - 1 - head) / kHeads);
      }
    }
    unit_ = kernels::Uploaded(unit);
    slot_ = kernels::Uploaded(slot);
    count_ = kernels::Uploaded(count);
  }

  /// By so many blocks, so many of the pieces, by turns of the heads, from `first` on, a multiple
  /// of their number, to where `to` bytes of the device's end lie before them.
  void Run(int32_t blocks, int32_t pieces, cudaStream_t stream, int32_t first = 0,
           int64_t to = 0) const {
    const kernels::PagedKv cache =
        kernels::NhdPages(reinterpret_cast<__nv_bfloat16*>(to_ + to), page_tokens_, kHeads, 128);
    kernels::MissedUnits missed;
    missed.unit = unit_.get() + first / kHeads;
    missed.slot = slot_.get() + first / kHeads;
    missed.count = count_.get() + int64_t{kHeads} * pieces;
    missed.rows = kHeads;
    missed.k = a_head_;
    kernels::ZeroCopyMissed(reinterpret_cast<const __nv_bfloat16*>(from_), missed,
                            {.slots_a_sequence = a_head_, .pool_pages = pages_}, cache, rows_,
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
  int32_t page_tokens_, pages_, pieces_ = 0, a_head_ = 0;
  kernels::Buffer<int32_t> unit_, slot_, count_;  // [head][a_head_]; by pieces, [kHeads] each
};

}  // namespace stallcast::capture
