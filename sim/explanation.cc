#include "sim/explanation.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "traces/common/error.h"
#include "traces/timeline.h"

namespace stallcast::sim {
namespace {

std::optional<Picoseconds> TimeOf(const Reproduction& row, std::string_view name) {
  if (name.size() < 3 || name[1] != '.' || name[0] < '0' || name[0] > '9') return std::nullopt;
  const size_t index = static_cast<size_t>(name[0] - '0');
  if (index >= row.runs.size()) return std::nullopt;
  const ReproducedRun& run = row.runs[index];
  const std::string_view what = name.substr(2);
  if (what == "step") return run.step;
  for (size_t role = 0; role < traces::kRoles; ++role) {
    if (what == traces::Name(static_cast<traces::Role>(role))) return run.exposed[role];
  }
  return std::nullopt;
}

}  // namespace

std::string Explanation(const Reproduction& row) {
  const std::string& text = row.row->explanation;
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('{', at);
    filled.append(text, at, open - at);
    if (open == std::string::npos) break;
    const size_t close = text.find('}', open);
    const std::string name(text, open + 1, close == std::string::npos ? close : close - open - 1);
    const std::optional<Picoseconds> time = TimeOf(row, name);
    if (!time || close == std::string::npos) {
      throw Error(fmt::format("an explanation has '{{{}}}'", name), row.row->id,
                  "name a run of the row and step or a role, such as {0.step} or {1.recall}");
    }
    filled += fmt::format("{:.1f}", Seconds(*time) * 1e3);
    at = close + 1;
  }
  return filled;
}

}  // namespace stallcast::sim
