#include "sim/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace stallcast::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kBarWidth = 30;
// More than threads can be out of order.
constexpr double kStartsAnew = 0.1;

std::string TimeLeft(double seconds) {
  const auto s = std::lround(seconds);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02} min", s / 60, s % 60);
}

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) != 0) {}

Progress::Progress(Listener listener) : listener_(std::move(listener)) {}

Progress::~Progress() { Clear(); }

void Progress::Update(const std::string& what, double share) {
  if (listener_) listener_(what, share);
  if (!terminal_) return;
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (share < share_ - kStartsAnew) start_ = last_ = now;
  share_ = share;
  if (now - start_ < 1s || now - last_ < 100ms) return;
  last_ = now;
  drawn_ = true;
  share = std::clamp(share, 0.0, 1.0);
  const auto full = static_cast<size_t>(share * kBarWidth);
  std::string line = fmt::format("\r\033[K{} [{}{}] {:.0f} %", what, std::string(full, '#'),
                                 std::string(kBarWidth - full, '.'), share * 100);
  if (share > 0) {
    const double passed = std::chrono::duration<double>(now - start_).count();
    line += ", " + TimeLeft(passed * (1 - share) / share) + " left";
  }
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void Progress::Clear() {
  const std::lock_guard lock(mutex_);
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace stallcast::cli
