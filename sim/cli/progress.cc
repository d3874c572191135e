#include "sim/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "sim/cli/screen.h"

namespace stallcast::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kBarWidth = 30;
constexpr std::chrono::milliseconds kBetweenLines = 10s;
// More than threads can be out of order.
constexpr double kStartsAnew = 0.1;

std::string TimeLeft(double seconds) {
  const auto s = std::lround(seconds);
  return s < 60 ? fmt::format("{} s", s) : fmt::format("{}:{:02} min", s / 60, s % 60);
}

// The beginning of a text that is longer than a line has room for.
std::string Shortened(const std::string& text, size_t room) {
  if (DisplayWidth(text) <= room) return text;
  size_t end = 0;
  for (size_t shown = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (begins && ++shown + 3 > room) break;
  }
  return text.substr(0, end) + "...";
}

}  // namespace

Progress::Progress(Form form)
    : terminal_(::isatty(STDERR_FILENO) != 0), lines_(form == kLines && !terminal_) {}

Progress::Progress(Listener listener) : listener_(std::move(listener)) {}

Progress::~Progress() { Clear(); }

void Progress::Update(const std::string& what, double share) {
  if (listener_) listener_(what, share);
  if (!terminal_ && !lines_) return;
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (share < share_ - kStartsAnew) start_ = last_ = now;
  share_ = share;
  if (now - start_ < 1s || now - last_ < (lines_ ? kBetweenLines : 100ms)) return;
  last_ = now;
  share = std::clamp(share, 0.0, 1.0);
  const double passed = std::chrono::duration<double>(now - start_).count();
  const std::string left =
      share > 0 ? fmt::format(", {} left", TimeLeft(passed * (1 - share) / share)) : "";
  if (lines_) {
    fmt::print(stderr, "{}: {:.0f} %{}\n", what, share * 100, left);
    return;
  }
  drawn_ = true;
  const auto full = static_cast<size_t>(share * kBarWidth);
  const std::string bar = fmt::format(" [{}{}] {:.0f} %{}", std::string(full, '#'),
                                      std::string(kBarWidth - full, '.'), share * 100, left);
  // A line that wraps could not be taken away.
  const std::string line =
      "\r\033[K" + Shortened(what, std::max(ErrorWidth(), bar.size() + 20) - bar.size() - 1) + bar;
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
