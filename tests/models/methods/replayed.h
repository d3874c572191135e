// A layer replayed by a policy, and its comparison with what a brute force claims.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "models/methods/method.h"
#include "tests/models/methods/brute_force.h"

namespace stallcast::methods {

inline std::set<uint32_t> Set(std::span<const uint32_t> ids) { return {ids.begin(), ids.end()}; }

struct Replayed {
  Replayed(const Policy& policy, const LayerTensors& tensors) {
    policy.Replay(tensors, access, attended);
    fidelity = MeasureAttention(tensors, attended);
  }
  traces::LayerAccess access;
  AttendedRanges attended;
  AttentionFidelity fidelity;
};

inline std::vector<bool> Attended(const Replayed& log, int step, int head, int64_t context) {
  std::vector<bool> tokens(static_cast<size_t>(context));
  for (const AttendedRanges::Range& r : log.attended.Cell(step, head)) {
    EXPECT_LT(r.begin, r.end);
    for (int t = r.begin; t < r.end; ++t) tokens.at(static_cast<size_t>(t)) = true;
  }
  return tokens;
}

// Of each selection head.
inline std::vector<std::vector<bool>> AttendedByHead(const Replayed& log, int step,
                                                     int64_t context) {
  std::vector<std::vector<bool>> attended;
  for (int head = 0; head < log.access.heads; ++head) {
    attended.push_back(Attended(log, step, head, context));
  }
  return attended;
}

// Compares a log with what the brute force claims; at least `share` of the cells must be claimed.
inline void ExpectSame(const Replayed& log, const brute::Cells& want, const brute::Layer& layer,
                       double share = 0.8) {
  ASSERT_EQ(log.access.heads, static_cast<int>(want[0].size()));
  const int heads = log.access.heads;
  ASSERT_EQ(log.access.selected.size(), layer.steps * heads);
  int claimed = 0;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1;
    for (int head = 0; head < heads; ++head) {
      SCOPED_TRACE(testing::Message() << "step " << step << ", head " << head);
      const brute::Cell& cell = want[step][head];
      const int64_t at = int64_t{step} * heads + head;
      const uint8_t flags = log.access.flags[at];
      ASSERT_EQ((flags & traces::kSelectedNow) != 0, cell.selected_now);
      ASSERT_EQ((flags & traces::kSelectedAhead) != 0, cell.selected_ahead);
      ASSERT_EQ((flags & traces::kTriggered) != 0, cell.triggered);
      if (cell.compared) {
        ASSERT_NEAR(log.access.similarity[at], cell.similarity, 1e-6);
      } else {
        ASSERT_TRUE(std::isnan(log.access.similarity[at]));
      }
      if (cell.ambiguous) continue;
      ++claimed;
      ASSERT_EQ(Set(log.access.selected[at]), cell.selected);
      ASSERT_EQ(Set(log.access.recalled_now[at]), cell.recalled_now);
      ASSERT_EQ(Set(log.access.recalled_ahead[at]), cell.recalled_ahead);
      ASSERT_EQ(log.access.evicted[at], cell.evicted);
      ASSERT_EQ(Attended(log, step, head, context), cell.attended);
      ASSERT_EQ(log.access.attended_tokens[at],
                std::count(cell.attended.begin(), cell.attended.end(), true));
    }
  }
  EXPECT_GE(claimed, share * layer.steps * heads);
}

}  // namespace stallcast::methods
