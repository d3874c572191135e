// SPDX-License-Identifier: GPL-3.0-or-later
// Colors as people see them.
#pragma once

#include <QColor>
#include <algorithm>
#include <array>
#include <cmath>

namespace stallcast::gui {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

inline Vector Linear(const QColor& color) {
  const auto linear = [](double c) {
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return {linear(color.redF()), linear(color.greenF()), linear(color.blueF())};
}

/// Full sight, protanopia, deuteranopia and tritanopia (Machado, Oliveira and Fernandes 2009,
/// severity 1), on linear RGB.
inline constexpr Matrix kSight[] = {{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
                                    {{{0.152286, 1.052583, -0.204868},
                                      {0.114503, 0.786281, 0.099216},
                                      {-0.003882, -0.048116, 1.051998}}},
                                    {{{0.367322, 0.860646, -0.227968},
                                      {0.280085, 0.672501, 0.047413},
                                      {-0.011820, 0.042940, 0.968881}}},
                                    {{{1.255528, -0.076749, -0.178779},
                                      {-0.078411, 0.930809, 0.147602},
                                      {0.004733, 0.691367, 0.303900}}}};

/// CIE L*a*b* under D65.
inline Vector Lab(const QColor& color, const Matrix& sight) {
  const Vector rgb = Linear(color);
  Vector seen{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) seen[i] += sight[i][j] * rgb[j];
    seen[i] = std::clamp(seen[i], 0.0, 1.0);
  }
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f((0.4124564 * seen[0] + 0.3575761 * seen[1] + 0.1804375 * seen[2]) / 0.95047);
  const double y = f(0.2126729 * seen[0] + 0.7151522 * seen[1] + 0.0721750 * seen[2]);
  const double z = f((0.0193339 * seen[0] + 0.1191920 * seen[1] + 0.9503041 * seen[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

inline double Distance(const QColor& a, const QColor& b, const Matrix& sight) {
  const Vector p = Lab(a, sight), q = Lab(b, sight);
  return std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
}

/// As WCAG 2 defines it.
inline double Contrast(const QColor& a, const QColor& b) {
  const auto luminance = [](const QColor& c) {
    const Vector rgb = Linear(c);
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  };
  const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

}  // namespace stallcast::gui
