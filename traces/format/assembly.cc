#include "traces/format/assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace stallcast::traces::format {
namespace {

std::string Where(const TensorSpec& spec) {
  return fmt::format("{} of layer {}", Name(spec.kind), spec.layer);
}

bool SameShape(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.heads == b.heads && a.head_dim == b.head_dim;
}

// Elements of a token range of `tensor`, copied.
Tensor Cut(const Tensor& tensor, int64_t first_token, int64_t end_token) {
  Tensor cut;
  cut.spec = tensor.spec;
  cut.spec.first_token = first_token;
  cut.spec.tokens = end_token - first_token;
  if (tensor.data.empty()) return cut;
  cut.data.reserve(static_cast<size_t>(cut.spec.bytes()));
  for (int head = 0; head < cut.spec.heads; ++head) {
    const std::span<const std::byte> rows = tensor.Rows(head, first_token, cut.spec.tokens);
    cut.data.insert(cut.data.end(), rows.begin(), rows.end());
  }
  return cut;
}

}  // namespace

std::vector<TensorPlan> PlanTensors(const std::vector<TensorMeta>& metas,
                                    std::vector<std::string>* problems) {
  // Groups stay in the order in which the file first names them.
  std::vector<std::vector<size_t>> groups;
  std::map<std::pair<TensorKind, int32_t>, size_t> group_of;
  for (size_t i = 0; i < metas.size(); ++i) {
    const TensorSpec& spec = metas[i].spec;
    const auto [place, fresh] = group_of.emplace(std::pair(spec.kind, spec.layer), groups.size());
    if (fresh) groups.emplace_back();
    std::vector<size_t>& group = groups[place->second];
    if (!group.empty() && !SameShape(metas[group.front()].spec, spec)) {
      problems->push_back(fmt::format(
          "{}: tokens {} to {} differ in heads, dimension or type from those before; left out",
          Where(spec), spec.first_token, spec.end_token()));
      continue;
    }
    group.push_back(i);
  }

  std::vector<TensorPlan> plans;
  for (std::vector<size_t>& group : groups) {
    std::ranges::stable_sort(group, {}, [&](size_t i) {
      return std::pair(metas[i].spec.first_token, metas[i].spec.end_token());
    });
    bool open = false;
    for (const size_t i : group) {
      const TensorSpec& spec = metas[i].spec;
      const int64_t due = open ? plans.back().spec.end_token() : 0;
      if (open && spec.first_token < due) {
        problems->push_back(
            fmt::format("{}: tokens {} to {} are there twice; the second is left out", Where(spec),
                        spec.first_token, spec.end_token()));
        continue;
      }
      if (open && spec.first_token > due) {
        problems->push_back(
            fmt::format("{}: tokens {} to {} are missing", Where(spec), due, spec.first_token));
      }
      if (!open || spec.first_token > due) {
        plans.push_back({spec, {i}});
      } else {
        plans.back().spec.tokens += spec.tokens;
        plans.back().parts.push_back(i);
      }
      open = true;
    }
  }
  return plans;
}

std::vector<Tensor> WithoutParts(Tensor tensor, const TensorPlan& plan,
                                 const std::vector<TensorMeta>& metas,
                                 const std::vector<bool>& lost) {
  std::vector<Tensor> left;
  int64_t begin = tensor.spec.first_token;
  const auto keep_to = [&](int64_t end) {
    if (end > begin) left.push_back(Cut(tensor, begin, end));
  };
  for (const size_t part : plan.parts) {
    if (!lost[part]) continue;
    keep_to(metas[part].spec.first_token);
    begin = metas[part].spec.end_token();
  }
  keep_to(tensor.spec.end_token());
  return left;
}

}  // namespace stallcast::traces::format
