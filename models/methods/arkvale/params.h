// ArkVale, as published and as FreeKV ran it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/methods/common/page_cache.h"

namespace stallcast::methods {

struct ArkValeParams {
  /// Published: one page set a layer, chosen by the mean score over all query heads; a recalled
  /// page is one copy of all heads. FreeKV's: a page set a KV head, every selectable slot chosen
  /// anew, a copy a page and head, and a device synchronisation after each layer's recall.
  enum class Variant : uint8_t { kPublished, kFreeKv };

  Variant variant = Variant::kPublished;
  int64_t budget = 2048;  ///< tokens on the GPU, sink and window included
  int64_t page = 32;      ///< tokens
  int64_t topk = 0;       ///< pages selected a step, sink and window included; 0: the paper's rule
  int64_t sink = 64;      ///< tokens
  int64_t window = 64;    ///< tokens, the partial page included
  int64_t dense_layers = 2;  ///< first layers that attend everything

  int64_t sink_pages() const { return sink / page; }
  int64_t window_pages() const { return window / page; }
  PageRegions regions() const { return {page, sink_pages(), window_pages()}; }
  /// GPU slots for pages that are neither sink nor window; all of them are attended.
  int64_t slots() const { return (budget - sink - window) / page; }
  /// Pages ranked to the top in a step, which alone are recalled. As in the code, `topk` counts the
  /// sink and the window's full pages, not the partial one.
  int64_t ranked() const {
    if (variant == Variant::kFreeKv) return slots();
    const int64_t pages = topk > 0 ? topk : std::min(int64_t{40} * 32, budget / 2) / page;
    return std::clamp<int64_t>(pages - sink_pages() - (window_pages() - 1), 0, slots());
  }
};

}  // namespace stallcast::methods
