// How a model's layers stand for those of a trace that has other ones, or fewer.
#pragma once

#include <span>
#include <vector>

namespace stallcast::methods {

/// For each of `layers` model layers the index of the traced layer at the nearest relative depth,
/// the earlier of two as near. `traced` are layer numbers of a model of `traced_layers` layers, at
/// least one.
std::vector<int> LayersByDepth(int layers, std::span<const int> traced, int traced_layers);

/// The traced query head, of groups of `traced_group`, that stands for query head `head` of a model
/// with groups of `group`: the same KV head's, and in its group by index, repeated where the
/// model's groups are larger.
constexpr int TracedQueryHead(int head, int group, int traced_group) {
  return head / group * traced_group + head % group % traced_group;
}

}  // namespace stallcast::methods
