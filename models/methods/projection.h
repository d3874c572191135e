// How a model's layers stand for those of a trace that has other ones, or fewer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stallcast::methods {

/// For each of `layers` model layers the index of the traced layer at the nearest relative depth,
/// the earlier of two as near. `traced` are layer numbers of a model of `traced_layers` layers, at
/// least one.
std::vector<int> LayersByDepth(int layers, std::span<const int> traced, int traced_layers);

/// A KV head of a trace: of which traced layer, and its index there.
struct TracedKvHead {
  int layer = 0;
  int head = 0;
  bool operator==(const TracedKvHead&) const = default;
};

/// The heads that stand for `kv_heads` KV heads of a model in `layer` of the trace, whose layers
/// `traced` (with `layer` among them, ascending) have `heads` each: the layer's own, then those of
/// the layers nearest to it, of two as near the earlier one's first; when all are used up, the same
/// again.
std::vector<TracedKvHead> TracedKvHeads(std::span<const int> traced, int layer, int heads,
                                        int kv_heads);

/// The traced query head, of groups of `traced_group`, that stands for query head `head` of a model
/// with groups of `group`: the same KV head's, and in its group by index, repeated where the
/// model's groups are larger.
constexpr int TracedQueryHead(int head, int group, int traced_group) {
  return head / group * traced_group + head % group % traced_group;
}

}  // namespace stallcast::methods
