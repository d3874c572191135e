// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/log_chart.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace stallcast::gui {
namespace {

enum Fate : size_t { kHit, kAhead, kVain, kNow };
constexpr size_t kFates = 4;

// Joins the cells of a unit that has the same fate in consecutive steps.
class Runs {
 public:
  void Add(Fate fate, uint32_t unit, int step) {
    auto& open = open_[fate];
    const auto [found, made] = open.try_emplace(unit, runs_[fate].size());
    if (!made) {
      CellMark::Run& run = runs_[fate][found->second];
      if (run.column + run.length == step) {
        ++run.length;
        return;
      }
      found->second = runs_[fate].size();
    }
    runs_[fate].push_back({step, unit, 1});
  }
  std::vector<CellMark::Run>& operator[](Fate fate) { return runs_[fate]; }

 private:
  std::array<std::vector<CellMark::Run>, kFates> runs_;
  std::array<std::unordered_map<uint32_t, size_t>, kFates> open_;
};

bool Has(std::span<const uint32_t> ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Chart UnitMap(const traces::AccessLog& log, int layer, int head, const ChartColors& colors) {
  Chart chart;
  const QString unit = QString::fromStdString(log.unit.empty() ? "unit" : log.unit);
  chart.x = {.title = QStringLiteral("step"), .integers = true, .tight = true};
  chart.y = {.title = unit, .integers = true, .tight = true};
  if (layer < 0 || layer >= std::ssize(log.layers)) {
    chart.title = QStringLiteral("Units over steps");
    chart.empty = QStringLiteral("No access log");
    return chart;
  }
  const traces::LayerAccess& access = log.layers[static_cast<size_t>(layer)];
  chart.title = QStringLiteral("%1s over steps, layer %2, head %3 (%4)")
                    .arg(unit)
                    .arg(access.layer)
                    .arg(head)
                    .arg(QString::fromStdString(log.method));
  chart.title[0] = chart.title[0].toUpper();
  if (access.dense || head < 0 || head >= access.heads) {
    chart.empty = access.dense ? QStringLiteral("This layer attends everything")
                               : QStringLiteral("This layer has no such head");
    return chart;
  }
  if (log.unit_tokens > 1) {
    chart.note = QStringLiteral("a %1 is %2 tokens; sink and window are always attended")
                     .arg(unit)
                     .arg(log.unit_tokens);
  }

  const auto cells = [&](const traces::IdLists& lists, int step) -> std::span<const uint32_t> {
    const int64_t cell = int64_t{step} * access.heads + head;
    if (step < 0 || cell >= lists.size()) return {};
    return lists[cell];
  };
  Runs runs;
  for (int step = 0; step < log.steps; ++step) {
    const auto selected = cells(access.selected, step);
    const auto now = cells(access.recalled_now, step);
    const auto ahead = cells(access.recalled_ahead, step - 1);
    for (const uint32_t id : selected) {
      runs.Add(Has(now, id) ? kNow : Has(ahead, id) ? kAhead : kHit, id, step);
    }
    for (const uint32_t id : ahead) {
      if (!std::ranges::binary_search(selected, id)) runs.Add(kVain, id, step);
    }
  }
  const std::array<std::pair<Fate, QString>, kFates> names = {{
      {kHit, QStringLiteral("hit: on the GPU already")},
      {kAhead, QStringLiteral("recalled a step ahead")},
      {kVain, QStringLiteral("recalled ahead in vain")},
      {kNow, QStringLiteral("recalled before attention")},
  }};
  const std::array<QColor, kFates> inks = {colors.Series(4), colors.Series(2), colors.muted(),
                                           colors.Series(1)};
  for (const auto& [fate, name] : names) {
    if (runs[fate].empty()) continue;
    chart.series.push_back({name, inks[fate], CellMark{std::move(runs[fate])}});
  }
  chart.empty = QStringLiteral("Nothing was selected");
  return chart;
}

}  // namespace stallcast::gui
