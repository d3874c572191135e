// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gui/screens/virtual_screen.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace stallcast::gui {
namespace {

constexpr int kStartMilliseconds = 20'000;

// What the server writes when it is ready: its number and a new line.
std::string ReadNumber(int from) {
  std::string number;
  pollfd ready{from, POLLIN, 0};
  char c = 0;
  while (poll(&ready, 1, kStartMilliseconds) == 1 && read(from, &c, 1) == 1) {
    if (c == '\n') return number;
    number += c;
  }
  return {};
}

}  // namespace

VirtualScreen::VirtualScreen(int width, int height) {
  int ends[2];
  if (pipe(ends) != 0) return;
  const std::string number = std::to_string(ends[1]);
  const std::string size = std::to_string(width) + "x" + std::to_string(height) + "x24";
  server_ = fork();
  if (server_ == 0) {
    close(ends[0]);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    execlp("Xvfb", "Xvfb", "-displayfd", number.c_str(), "-screen", "0", size.c_str(), "-nolisten",
           "tcp", nullptr);
    _exit(127);
  }
  close(ends[1]);
  if (server_ > 0) {
    const std::string ready = ReadNumber(ends[0]);
    if (!ready.empty()) display_ = ":" + ready;
  }
  close(ends[0]);
}

VirtualScreen::~VirtualScreen() {
  if (server_ <= 0) return;
  kill(server_, SIGTERM);
  waitpid(server_, nullptr, 0);
}

}  // namespace stallcast::gui
