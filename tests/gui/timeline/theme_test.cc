// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/theme.h"

#include <gtest/gtest.h>

#include "tests/gui/color_sight.h"

namespace stallcast::gui {
namespace {

class ThemeTest : public testing::TestWithParam<const Theme*> {};

// In CIE L*a*b*: differences above 20 are told apart at a glance; 2 is just noticeable.
TEST_P(ThemeTest, RolesStayApartForEveryKindOfSight) {
  const Theme& theme = *GetParam();
  for (const Matrix& sight : kSight) {
    for (size_t a = 0; a < theme.roles.size(); ++a) {
      EXPECT_GT(Distance(theme.roles[a], theme.lane, sight), 25) << a;
      for (size_t b = 0; b < a; ++b) {
        EXPECT_GT(Distance(theme.roles[a], theme.roles[b], sight), 22) << a << " and " << b;
      }
    }
  }
}

// WCAG 2 asks 3 of what is not text: of ops on lanes, of samples in the legend, of bars in charts.
TEST_P(ThemeTest, RolesAreSeenWhereverTheyAreDrawn) {
  const Theme& theme = *GetParam();
  for (size_t role = 0; role < theme.roles.size(); ++role) {
    for (const QColor& behind : {theme.lane, theme.panel, theme.window}) {
      EXPECT_GE(Contrast(theme.roles[role], behind), 3) << role << behind.name().toStdString();
    }
  }
}

TEST_P(ThemeTest, NoRoleIsTakenForTextOrAnOutline) {
  const Theme& theme = *GetParam();
  for (size_t role = 0; role < theme.roles.size(); ++role) {
    EXPECT_GT(Distance(theme.roles[role], theme.text, kSight[0]), 20) << role;
    EXPECT_GT(Distance(theme.roles[role], theme.accent, kSight[0]), 20) << role;
  }
}

TEST(Themes, ARoleHasOneHueInBoth) {
  for (size_t role = 0; role < traces::kRoles; ++role) {
    const Vector light = Lab(Theme::Light().roles[role], kSight[0]);
    const Vector dark = Lab(Theme::Dark().roles[role], kSight[0]);
    // What is nearly grey has no hue.
    constexpr double kGrey = 20;
    if (std::hypot(light[1], light[2]) < kGrey || std::hypot(dark[1], dark[2]) < kGrey) continue;
    const double apart =
        std::remainder(std::atan2(light[2], light[1]) - std::atan2(dark[2], dark[1]), 2 * M_PI);
    EXPECT_LT(std::abs(apart), 0.1) << role;
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

// Outlines stand on a halo of the window's color.
TEST_P(ThemeTest, OutlinesAreSeen) {
  const Theme& theme = *GetParam();
  EXPECT_GE(Contrast(theme.hover, theme.window), 4.5);
  EXPECT_GE(Contrast(theme.accent, theme.window), 7);
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
