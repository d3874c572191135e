#include "traces/reorder.h"

#include <functional>

#include "traces/common/parallel.h"

namespace stallcast::traces {

void Reorder(Timeline& t, std::span<const uint32_t> order) {
  const std::function<void()> columns[] = {
      [&] { Reorder(t.lane, order); },  [&] { Reorder(t.op, order); },
      [&] { Reorder(t.step, order); },  [&] { Reorder(t.layer, order); },
      [&] { Reorder(t.role, order); },  [&] { Reorder(t.name, order); },
      [&] { Reorder(t.start, order); }, [&] { Reorder(t.duration, order); },
      [&] { Reorder(t.bytes, order); }, [&] { Reorder(t.graph_node, order); },
  };
  ParallelFor(std::ssize(columns), [&](int, int64_t i) { columns[i](); });
}

}  // namespace stallcast::traces
