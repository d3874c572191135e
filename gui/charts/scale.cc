// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/scale.h"

#include <QLocale>
#include <algorithm>
#include <cmath>
#include <limits>

namespace stallcast::gui {
namespace {

// 1, 2 or 5 times a power of ten, the smallest not below `least`.
double RoundStep(double least) {
  const double decade = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (decade * factor >= least * (1 - 1e-9)) return decade * factor;
  }
  return decade * 10;
}

// The finest round step that leaves at most `most` ticks.
std::vector<double> LinearTicks(Range range, int most, bool integers) {
  const double slack = range.span() * 1e-9;
  double step = RoundStep(range.span() / most);
  if (integers) step = std::max(1.0, std::round(step));
  const auto first = [&] { return std::ceil((range.low - slack) / step); };
  const auto last = [&] { return std::floor((range.high + slack) / step); };
  while (last() - first() + 1 > most) step = RoundStep(step * 1.5);
  std::vector<double> ticks;
  const double begin = first(), count = last() - begin + 1;
  for (int i = 0; i < count; ++i) ticks.push_back((begin + i) * step);
  return ticks;
}

// Every n-th of the values, so that at most `most` are left.
std::vector<double> Thin(const std::vector<double>& values, int most) {
  const size_t every =
      (values.size() + static_cast<size_t>(most) - 1) / static_cast<size_t>(std::max(1, most));
  std::vector<double> kept;
  for (size_t i = 0; i < values.size(); i += std::max<size_t>(1, every)) kept.push_back(values[i]);
  return kept;
}

std::vector<double> Inside(const std::vector<double>& values, Range range) {
  std::vector<double> inside;
  for (const double v : values) {
    if (v >= range.low * (1 - 1e-9) && v <= range.high * (1 + 1e-9)) inside.push_back(v);
  }
  return inside;
}

// base^n for all n that reach from below the range to above it, times each factor.
std::vector<double> Powers(double base, Range range, std::initializer_list<double> factors) {
  std::vector<double> values;
  const double first = std::floor(std::log(range.low) / std::log(base));
  for (double n = first; std::pow(base, n) <= range.high * (1 + 1e-9); ++n) {
    for (const double factor : factors) values.push_back(std::pow(base, n) * factor);
  }
  return Inside(values, range);
}

std::vector<double> DecadeTicks(Range range, int most) {
  for (const auto& factors : {std::initializer_list<double>{1, 2, 5}, {1, 3}, {1}}) {
    std::vector<double> ticks = Powers(10, range, factors);
    if (ticks.size() <= static_cast<size_t>(most) && ticks.size() >= 2) return ticks;
  }
  const std::vector<double> decades = Powers(10, range, {1});
  return decades.size() > static_cast<size_t>(most) ? Thin(decades, most)
                                                    : LinearTicks(range, most, false);
}

}  // namespace

ScaleMap::ScaleMap(ScaleKind kind, Range range, double first, double last)
    : kind_(kind), range_(range), first_(first), last_(last) {
  if (!(range_.high > range_.low)) range_ = RoundRange(kind, range_, false);
  low_ = Warp(range_.low);
  high_ = Warp(range_.high);
}

double ScaleMap::Warp(double value) const {
  if (kind_ == ScaleKind::kLinear) return value;
  return value > 0 ? std::log(value) : std::numeric_limits<double>::quiet_NaN();
}

double ScaleMap::At(double value) const {
  return first_ + (Warp(value) - low_) / (high_ - low_) * (last_ - first_);
}

double ScaleMap::Value(double at) const {
  const double warped = low_ + (at - first_) / (last_ - first_) * (high_ - low_);
  return kind_ == ScaleKind::kLinear ? warped : std::exp(warped);
}

Range RoundRange(ScaleKind kind, Range values, bool from_zero) {
  if (kind != ScaleKind::kLinear) {
    if (!(values.low > 0)) values.low = values.high > 0 ? values.high / 10 : 1;
    if (!(values.high > values.low)) return {values.low / 2, values.low * 2};
    const double margin = std::pow(values.high / values.low, 0.04);
    return {values.low / margin, values.high * margin};
  }
  if (from_zero) values = {std::min(0.0, values.low), std::max(0.0, values.high)};
  if (!(values.high > values.low)) {
    const double half = values.low == 0 ? 0.5 : std::abs(values.low) / 2;
    return {values.low - half, values.low + half};
  }
  const double step = RoundStep(values.span() / 10);
  return {std::floor(values.low / step + 1e-9) * step, std::ceil(values.high / step - 1e-9) * step};
}

std::vector<double> Ticks(ScaleKind kind, Range range, int most, bool integers) {
  most = std::max(2, most);
  switch (kind) {
    case ScaleKind::kLinear:
      break;
    case ScaleKind::kLog:
      return DecadeTicks(range, most);
    case ScaleKind::kBinary: {
      const std::vector<double> powers = Powers(2, range, {1});
      if (powers.size() >= 2) return Thin(powers, most);
      break;
    }
  }
  return LinearTicks(range, most, integers);
}

QString TickLabel(double value, double step) {
  const double size = step > 0 ? step : std::abs(value);
  const int decimals =
      size > 0 ? std::max(0, static_cast<int>(-std::floor(std::log10(size) + 1e-9))) : 0;
  // A step such as 2.5 needs the digit behind its leading one.
  const double scaled = size * std::pow(10.0, decimals);
  const int more = std::abs(scaled - std::round(scaled)) > 1e-6 ? 1 : 0;
  QLocale locale = QLocale::c();
  locale.setNumberOptions(QLocale::DefaultNumberOptions);
  return locale.toString(value == 0 ? 0.0 : value, 'f', std::min(decimals + more, 9));
}

}  // namespace stallcast::gui
