// FreeKV with every piece switchable. Where paper, accuracy code and speed engine differ, the paper
// is the default.
#pragma once

#include <cstdint>

#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"

namespace stallcast::methods {

struct FreeKvParams {
  /// Layout of the pool on the host: pages contiguous a head (hybrid), or a token (NHD) as on the
  /// GPU.
  enum class Layout : uint8_t { kHybrid, kNhd };
  /// How missed pages cross the link: a copy each, one batched call, gathered by host workers into
  /// a pinned buffer and copied at once, or read by a kernel.
  enum class Recall : uint8_t { kPerPage, kBatched, kStaged, kZeroCopy };
  /// Whether a recall ahead waits for the attention that still reads the pages it overwrites.
  enum class Overwrite : uint8_t { kSafe, kAsCoded };

  int64_t budget = 2048;     ///< tokens on the GPU, sink and window included
  int64_t page = 32;         ///< tokens
  int64_t sink = 512;        ///< tokens
  int64_t window = 512;      ///< tokens, the partial page included
  int64_t dense_layers = 1;  ///< first layers that attend everything
  double tau = 0.9;          ///< a head whose mean cosine falls below is corrected
  PageSummary summary = PageSummary::kMinMax;  ///< cuboid-mean in the speed engine
  /// How the query heads of a group agree on a score: as the paper has it; the accuracy code does
  /// not scale, the speed engine takes the mean of raw scores.
  Pooling pooling = Pooling::kSoftmaxMean;
  bool speculation = true;  ///< off: every step selects and recalls before its attention
  bool correction = true;   ///< only with speculation
  Layout layout = Layout::kHybrid;
  bool double_buffer = true;
  Recall recall = Recall::kPerPage;
  int64_t zero_copy_blocks = 16;
  Overwrite overwrite = Overwrite::kSafe;
  int64_t workers = 2;  ///< host threads that issue the recall ahead, or gather for kStaged

  int64_t sink_pages() const { return sink / page; }
  int64_t window_pages() const { return window / page; }
  PageRegions regions() const { return {page, sink_pages(), window_pages()}; }
  /// GPU slots for selected pages, a KV head; the top-k is as large.
  int64_t slots() const { return (budget - sink - window) / page; }
  /// Whether queries of adjacent steps are compared, which costs a host wait a layer.
  bool checks() const { return speculation && correction; }
};

}  // namespace stallcast::methods
