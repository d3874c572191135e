// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/theme.h"

#include <cmath>

namespace stallcast::gui {
namespace {

// Relative luminance, WCAG 2.
double Luminance(const QColor& color) {
  const auto linear = [](double c) {
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) +
         0.0722 * linear(color.blueF());
}

}  // namespace

const Theme& Theme::Light() {
  static const Theme theme = [] {
    Theme t;
    t.signs = {"#ffd9d4", "#ffecbf", "#d8e9fb", "#1b1f24", "#ffe1dd",
               "#4a0f0a", "#a3160a", "#00655c", "#a84e08"};
    t.computing = "#0b7a75";
    t.highlight = "#2f6db3";
    t.link = "#1f4e9e";
    t.border = "#8b929b";
    t.window = "#ffffff";
    t.lane = "#f3f4f6";
    t.band = "#f8f9fb";
    t.panel = "#eceef1";
    t.grid = "#d3d7dd";
    t.slack = "#c9ced6";
    t.text = "#1b1f24";
    t.muted = "#59616b";
    t.accent = "#000000";
    t.hover = "#5b6470";
    t.area = QColor(60, 110, 200, 45);
    t.no_twin = "#b4b9c0";
    // other, projection, attention, mlp, index, selection, recall, layout, offload, sync, host
    t.roles = {"#51834b", "#028ce5", "#851997", "#3648d6", "#440b49", "#ac6fae",
               "#b97b00", "#8d3d00", "#1f2b00", "#8a8785", "#5e4b4b"};
    t.residuals = {"#1f4e9e", "#4f83c9", "#8db4e3", "#c6dbf1", "#e3e3e3",
                   "#f7dcb5", "#f0b36a", "#d97f2b", "#a84e08"};
    return t;
  }();
  return theme;
}

const Theme& Theme::Dark() {
  static const Theme theme = [] {
    Theme t;
    t.signs = {"#8c2f2b", "#6b5312", "#1f4e79", "#ffffff", "#5a2322",
               "#ffe9e7", "#ff9a8f", "#5fd3c4", "#ffb44a"};
    t.computing = "#3fb8af";
    t.highlight = "#3574b8";
    t.link = "#8fc0ff";
    t.border = "#7d858f";
    t.window = "#1d1f22";
    t.lane = "#26282c";
    t.band = "#212327";
    t.panel = "#2d3035";
    t.grid = "#41454c";
    t.slack = "#4a4f57";
    t.text = "#eceef1";
    t.muted = "#a5adb8";
    t.accent = "#ffffff";
    t.hover = "#c3cad4";
    t.area = QColor(120, 165, 255, 55);
    t.no_twin = "#6b7078";
    t.roles = {"#b7f9b0", "#34a4ff", "#bf45c3", "#6865fc", "#fab0f3", "#ae7bab",
               "#f9a601", "#c45c06", "#8eb758", "#787b70", "#c7b9ab"};
    t.residuals = {"#8fc0ff", "#5f97e0", "#4a72a8", "#3f5370", "#4d5157",
                   "#6a5439", "#976a31", "#cc8a35", "#ffb44a"};
    return t;
  }();
  return theme;
}

QColor Theme::Of(Ink ink) const {
  using Kind = Ink::Kind;
  switch (ink.kind) {
    case Kind::kWindow:
      return window;
    case Kind::kLane:
      return lane;
    case Kind::kBand:
      return band;
    case Kind::kPanel:
      return panel;
    case Kind::kGrid:
      return grid;
    case Kind::kSlack:
      return slack;
    case Kind::kText:
      return text;
    case Kind::kMuted:
      return muted;
    case Kind::kAccent:
      return accent;
    case Kind::kHover:
      return hover;
    case Kind::kArea:
      return area;
    case Kind::kNoTwin:
      return no_twin;
    case Kind::kRole:
      return roles[ink.value];
    case Kind::kOnRole:
      return TextOn(roles[ink.value]);
    case Kind::kResidual:
      return residuals[ink.value];
    case Kind::kOnResidual:
      return TextOn(residuals[ink.value]);
  }
  return text;
}

QColor Mix(const QColor& a, const QColor& b, double share) {
  const auto part = [share](int x, int y) { return qRound(x + (y - x) * share); };
  return {part(a.red(), b.red()), part(a.green(), b.green()), part(a.blue(), b.blue())};
}

QColor TextOn(const QColor& background) {
  const double l = Luminance(background);
  const bool white = 1.05 / (l + 0.05) > (l + 0.05) / 0.05;
  return white ? QColor(Qt::white) : QColor(Qt::black);
}

}  // namespace stallcast::gui
