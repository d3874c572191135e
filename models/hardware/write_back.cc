#include "models/hardware/write_back.h"

#include <algorithm>
#include <limits>

namespace stallcast::hardware {
namespace {

// y at x, linear between samples; at the last y behind them.
double At(double x, const std::vector<double>& xs, const std::vector<double>& ys) {
  const auto above = std::ranges::upper_bound(xs, x);
  if (above == xs.end()) return ys.back();
  if (above == xs.begin()) return ys.front();
  const auto i = static_cast<size_t>(above - xs.begin());
  return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
}

}  // namespace

WriteBack::WriteBack(const Profile& profile) : by_bytes_(!profile.zero_copy_drag.empty()) {
  const double most = profile.memory_drag_most;
  const auto add = [&](double bytes, double seconds) {
    if (seconds <= seconds_.back()) return;
    bytes_.push_back(bytes);
    seconds_.push_back(seconds);
  };
  if (!by_bytes_) {
    add(most, most);
    return;
  }
  // More bytes cost no less: what fewer were measured to cost more is noise.
  std::vector<double> seconds = profile.zero_copy_drag.y();
  double least = std::numeric_limits<double>::infinity();
  for (auto at = seconds.rbegin(); at != seconds.rend(); ++at) least = *at = std::min(*at, least);
  for (size_t i = 0; i < seconds.size() && seconds_.back() < most; ++i) {
    double bytes = profile.zero_copy_drag.x()[i];
    if (seconds[i] > most) {
      bytes = bytes_.back() +
              (bytes - bytes_.back()) * (most - seconds_.back()) / (seconds[i] - seconds_.back());
      seconds[i] = most;
    }
    add(bytes, seconds[i]);
  }
}

double WriteBack::Seconds(double bytes) const { return At(bytes, bytes_, seconds_); }

double WriteBack::Bytes(double seconds) const { return At(seconds, seconds_, bytes_); }

}  // namespace stallcast::hardware
