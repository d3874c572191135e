#include "traces/common/nearest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace stallcast {
namespace {

constexpr size_t kLongestName = 80;  // longer ones are no misspelling of anything

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view Nearest(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kLongestName) return {};
  std::string_view best;
  size_t best_distance = name.size() / 2 + 1;
  for (const std::string_view candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string Suggestion(std::string_view name, std::span<const std::string_view> known) {
  const std::string_view nearest = Nearest(name, known);
  const std::string list = fmt::format("known: {}", fmt::join(known, ", "));
  return nearest.empty() ? list : fmt::format("did you mean '{}'? {}", nearest, list);
}

}  // namespace stallcast
