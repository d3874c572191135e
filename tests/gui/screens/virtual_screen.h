// SPDX-License-Identifier: GPL-3.0-or-later
// An X server without a screen, for the time of a program.
#pragma once

#include <sys/types.h>

#include <string>

namespace stallcast::gui {

class VirtualScreen {
 public:
  /// Starts Xvfb with a display of its own; where there is none, or it does not come up, display()
  /// is empty.
  VirtualScreen(int width, int height);
  ~VirtualScreen();
  VirtualScreen(const VirtualScreen&) = delete;
  VirtualScreen& operator=(const VirtualScreen&) = delete;

  const std::string& display() const { return display_; }  ///< ":3"

 private:
  pid_t server_ = -1;
  std::string display_;
};

}  // namespace stallcast::gui
