// RaaS: pages keep the time at which they were attended last; the oldest are dropped.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stallcast::methods {

struct RaasParams {
  /// Pages of the prompt stay for good (paper), or are dropped as others (as FreeKV ran it).
  enum class Prompt : uint8_t { kPinned, kEvicted };

  int64_t budget = 2048;  ///< tokens kept, the newest page included; pinned ones apart
  int64_t page = 16;      ///< tokens
  double alpha = 1e-4;    ///< a page of more weight is attended
  Prompt prompt = Prompt::kEvicted;
  int64_t dense_layers = 2;  ///< first layers that keep everything

  int64_t budget_pages() const { return budget / page; }
  /// Pages kept when a step attends whose context is `context`, the newest included.
  int64_t Kept(int64_t prompt_tokens, int64_t context) const {
    const int64_t pages = (context + page - 1) / page;
    const int64_t pinned = prompt == Prompt::kPinned ? prompt_tokens / page : 0;
    return pinned + std::min(pages - pinned, budget_pages());
  }
};

}  // namespace stallcast::methods
