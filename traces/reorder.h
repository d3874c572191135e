// Rows in another order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::traces {

/// Item i becomes what was item order[i]; what `order` does not name is gone. An empty column,
/// which no row has, stays empty.
template <typename T>
void Reorder(std::vector<T>& column, std::span<const uint32_t> order) {
  if (column.empty()) return;
  std::vector<T> reordered;
  reordered.reserve(order.size());
  for (const uint32_t row : order) reordered.push_back(column[row]);
  column = std::move(reordered);
}

/// All columns of the rows.
void Reorder(Timeline& timeline, std::span<const uint32_t> order);

}  // namespace stallcast::traces
