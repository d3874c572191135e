// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/legend.h"

#include <algorithm>
#include <cmath>

#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

using traces::Role;
using Kind = Ink::Kind;

// Logical pixels.
constexpr int kLine = 18, kMargin = 3, kSide = 8, kPadding = 4, kGap = 12;

// On any side, in their order.
std::vector<Role> RolesOf(const TimelinePair& pair) {
  RoleSums rows{};
  for (Side side : kSides) {
    const TimelineModel* model = pair.model(side).get();
    if (model == nullptr) continue;
    for (size_t k = 0; k < model->tracks().size(); ++k) {
      const Track track = model->Ops(static_cast<int32_t>(k));
      for (Role role : track.roles()) {
        ++rows[static_cast<size_t>(role)];
      }
    }
  }
  std::vector<Role> roles;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] > 0) roles.push_back(static_cast<Role>(r));
  }
  return roles;
}

std::vector<LegendEntry> ResidualEntries() {
  std::vector<LegendEntry> entries;
  for (uint8_t s = 0; s < kShades; ++s) {
    const int distance = std::abs(s - kShades / 2);
    const double limit = 100 * ShadeLimit(kShades / 2 + std::max(0, distance - 1));
    QString text = (s < kShades / 2 ? QStringLiteral("−%1 %") : QStringLiteral("+%1 %")).arg(limit);
    if (distance == 0) text = QStringLiteral("within %1 %").arg(limit);
    if (s == 0) text = QStringLiteral("predicted too short: ") + text;
    if (s == kShades - 1) text += QStringLiteral(" and more: too long");
    entries.push_back({text, {Kind::kResidual, s}, {}});
  }
  entries.push_back({QStringLiteral("no twin"), {Kind::kNoTwin}, {}});
  return entries;
}

}  // namespace

QString FilterOf(Role role) { return QStringLiteral("role:") + Text(std::string(Name(role))); }

Legend MakeLegend(const TimelinePair& pair, ColorBy color, bool slack, int width, double scale,
                  const TextMeasure& measure) {
  const auto px = [scale](int logical) { return static_cast<int>(std::lround(logical * scale)); };
  Legend legend;
  if (color == ColorBy::kResidual && pair.both()) {
    legend.entries = ResidualEntries();
  } else {
    for (Role role : RolesOf(pair)) {
      legend.entries.push_back({Text(std::string(Name(role))), Ink::Role(role), {}});
    }
  }
  if (slack) {
    legend.entries.push_back({QStringLiteral("step ended earlier here"), {Kind::kSlack}, {}});
  }
  int x = px(kSide), y = px(kMargin);
  for (LegendEntry& entry : legend.entries) {
    const int wide =
        px(Legend::kSwatch) + px(kPadding) + measure.Width(entry.text, TextStyle::kSmall) + 1;
    if (x > px(kSide) && x + wide > width - px(kSide)) {
      x = px(kSide);
      y += px(kLine);
    }
    entry.box = {x, y, std::min(x + wide, width), y + px(kLine)};
    x += wide + px(kGap);
  }
  legend.height = y + px(kLine) + px(kMargin);
  return legend;
}

}  // namespace stallcast::gui
