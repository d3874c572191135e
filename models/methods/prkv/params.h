// PRKV with every piece switchable. What the paper leaves open is said where it is decided.
#pragma once

#include <cstdint>

#include "models/methods/common/page_cache.h"
#include "models/methods/common/page_scores.h"
#include "models/methods/common/ranking.h"

namespace stallcast::methods {

struct PrkvParams {
  /// How large the static set is: a share of the budget, or what the first and the last query of
  /// the observation window agree on (appendix G).
  enum class StaticRule : uint8_t { kFixed, kOverlap };
  /// Pages on host and GPU: a head's tokens together, or a token's heads.
  enum class Layout : uint8_t { kHnd, kNhd };
  /// Missed pages gathered by the host into a pinned buffer and copied at once, or a copy each.
  enum class Transfer : uint8_t { kBatched, kPerPage };

  int64_t budget = 2048;     ///< tokens on the GPU, window included
  int64_t page = 32;         ///< tokens
  int64_t window = 64;       ///< last tokens, kept; their queries choose the static set
  int64_t dense_layers = 0;  ///< first layers that attend everything
  StaticRule static_rule = StaticRule::kFixed;
  double static_ratio = 0.25;  ///< of the budget beside the window, rounded down to whole pages
  int64_t update = 128;        ///< steps between choices of the static set
  PageSummary summary = PageSummary::kCuboidMean;
  Pooling pooling = Pooling::kMean;
  Layout layout = Layout::kHnd;
  Transfer transfer = Transfer::kBatched;
  bool async_write_back = true;
  int64_t workers = 4;  ///< host threads that gather

  /// Pages beside the window, static and dynamic: the paper's budget k.
  int64_t budget_pages() const { return (budget - window) / page; }
  int64_t static_pages() const {
    return static_cast<int64_t>(static_ratio * static_cast<double>(budget_pages()));
  }
  PageRegions regions() const { return {page, /*sink_pages=*/0, window / page}; }
  bool has_static_set() const { return static_rule == StaticRule::kOverlap || static_pages() > 0; }
};

}  // namespace stallcast::methods
