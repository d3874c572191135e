// SPDX-License-Identifier: GPL-3.0-or-later
// Tests on a real X11 screen that nobody sees. Without Xvfb they are skipped.
#include <gtest/gtest.h>

#include <QApplication>
#include <cstdlib>

#include "tests/gui/screens/virtual_screen.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  // Room for a window of 1440 x 900 at 200 %.
  const stallcast::gui::VirtualScreen screen(2900, 1820);
  if (screen.display().empty()) {
    setenv("QT_QPA_PLATFORM", "offscreen", 1);
  } else {
    setenv("QT_QPA_PLATFORM", "xcb", 1);
    setenv("DISPLAY", screen.display().c_str(), 1);
  }
  int failed = 0;
  {
    QApplication application(argc, argv);
    failed = RUN_ALL_TESTS();
  }
  return failed;
}
