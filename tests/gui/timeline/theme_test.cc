// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/theme.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stallcast::gui {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector Linear(const QColor& color) {
  const auto linear = [](double c) {
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return {linear(color.redF()), linear(color.greenF()), linear(color.blueF())};
}

// As people see it: Machado, Oliveira and Fernandes (2009), severity 1.
constexpr Matrix kSight[] = {{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
                             {{{0.152286, 1.052583, -0.204868},
                               {0.114503, 0.786281, 0.099216},
                               {-0.003882, -0.048116, 1.051998}}},
                             {{{0.367322, 0.860646, -0.227968},
                               {0.280085, 0.672501, 0.047413},
                               {-0.011820, 0.042940, 0.968881}}},
                             {{{1.255528, -0.076749, -0.178779},
                               {-0.078411, 0.930809, 0.147602},
                               {0.004733, 0.691367, 0.303900}}}};

// CIE L*a*b* under D65.
Vector Lab(const QColor& color, const Matrix& sight) {
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

double Distance(const QColor& a, const QColor& b, const Matrix& sight) {
  const Vector p = Lab(a, sight), q = Lab(b, sight);
  return std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
}

double Contrast(const QColor& a, const QColor& b) {
  const auto luminance = [](const QColor& c) {
    const Vector rgb = Linear(c);
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  };
  const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

class ThemeTest : public testing::TestWithParam<const Theme*> {};

// Differences above 20 are told apart at a glance; 2 is just noticeable.
TEST_P(ThemeTest, RolesStayApartForEveryKindOfSight) {
  const Theme& theme = *GetParam();
  for (const Matrix& sight : kSight) {
    for (size_t a = 0; a < theme.roles.size(); ++a) {
      EXPECT_GT(Distance(theme.roles[a], theme.lane, sight), 25) << a;
      for (size_t b = 0; b < a; ++b) {
        EXPECT_GT(Distance(theme.roles[a], theme.roles[b], sight), 20) << a << " and " << b;
      }
    }
  }
}

TEST_P(ThemeTest, ResidualsTellTooShortFromTooLong) {
  const Theme& theme = *GetParam();
  for (const Matrix& sight : kSight) {
    for (size_t s = 1; s < kShades; ++s) {
      EXPECT_GT(Distance(theme.residuals[s - 1], theme.residuals[s], sight), 8) << s;
    }
    for (size_t s = 0; s < kShades / 2; ++s) {
      EXPECT_GT(Distance(theme.residuals[s], theme.residuals[kShades - 1 - s], sight), 15) << s;
    }
  }
}

// WCAG 2 asks 4.5 of text.
TEST_P(ThemeTest, TextIsReadable) {
  const Theme& theme = *GetParam();
  for (const QColor& behind : {theme.window, theme.lane, theme.band, theme.panel}) {
    EXPECT_GE(Contrast(theme.text, behind), 7);
    EXPECT_GE(Contrast(theme.muted, behind), 4.5);
  }
  for (const QColor& behind : theme.roles) EXPECT_GE(Contrast(TextOn(behind), behind), 4.5);
  for (const QColor& behind : theme.residuals) EXPECT_GE(Contrast(TextOn(behind), behind), 4.5);
}

INSTANTIATE_TEST_SUITE_P(Both, ThemeTest, testing::Values(&Theme::Light(), &Theme::Dark()),
                         [](const auto& theme) {
                           return theme.param == &Theme::Light() ? "Light" : "Dark";
                         });

}  // namespace
}  // namespace stallcast::gui
