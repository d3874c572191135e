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

WriteBack::WriteBack(const Profile& profile) : most_(profile.memory.drag_most) {
  // More bytes cost no less: what fewer were measured to cost more is noise.
  std::vector<double> seconds = profile.zero_copy.drag.y();
  double least = std::numeric_limits<double>::infinity();
  for (auto at = seconds.rbegin(); at != seconds.rend(); ++at) least = *at = std::min(*at, least);
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] == seconds_.back()) continue;
    bytes_.push_back(profile.zero_copy.drag.x()[i]);
    seconds_.push_back(seconds[i]);
  }
}

double WriteBack::Seconds(double bytes) const {
  return std::min(At(bytes, bytes_, seconds_), most_);
}

double WriteBack::Bytes(double seconds) const { return At(seconds, seconds_, bytes_); }

}  // namespace stallcast::hardware
