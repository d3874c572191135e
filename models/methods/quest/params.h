// Quest: all KV on the GPU, pages chosen by their channel-wise bounds.
#pragma once

#include <cstdint>

namespace stallcast::methods {

struct QuestParams {
  /// How the query heads of a group choose: each for itself (the published kernel), or one choice a
  /// KV head by the maximum (as FreeKV and LouisKV adapted it) or the mean of the group's scores.
  enum class Group : uint8_t { kQueryHead, kMax, kMean };

  int64_t budget = 2048;     ///< tokens, the last page included
  int64_t page = 16;         ///< tokens
  int64_t dense_layers = 2;  ///< first layers that attend everything
  Group group = Group::kQueryHead;

  /// Pages attended by a selection head, the last page included.
  int64_t budget_pages() const { return budget / page; }
};

}  // namespace stallcast::methods
