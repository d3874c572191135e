#include "models/hardware/timed_points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace stallcast::hardware {
namespace {

plan::KernelShape Octaves(const plan::KernelShape& shape) {
  plan::KernelShape octaves{};
  for (size_t i = 0; i < shape.size(); ++i) octaves[i] = std::log2(shape[i]);
  return octaves;
}

}  // namespace

TimedPoints::TimedPoints(std::vector<KernelPoint> points) : points_(std::move(points)) {
  most_.fill(-std::numeric_limits<double>::infinity());
  for (const KernelPoint& point : points_) {
    logs_.push_back({Octaves(point.shape), std::log(point.factor), std::log(point.host_factor)});
    for (size_t i = 0; i < most_.size(); ++i) {
      most_[i] = std::max(most_[i], logs_.back().octaves[i]);
    }
  }
}

KernelPoint TimedPoints::At(const plan::KernelShape& shape) const {
  constexpr double kPriorOctaves = 2;
  const auto weight = [](double square) { return 1 / (square * square); };
  plan::KernelShape octaves = Octaves(shape);
  for (size_t i = 0; i < octaves.size(); ++i) octaves[i] = std::min(octaves[i], most_[i]);
  double factor = 0, host_factor = 0, drag = 0, weights = weight(kPriorOctaves * kPriorOctaves);
  for (size_t p = 0; p < points_.size(); ++p) {
    double square = 0;
    for (size_t i = 0; i < octaves.size(); ++i) {
      const double apart = octaves[i] - logs_[p].octaves[i];
      square += apart * apart;
    }
    if (square < 1e-9) return points_[p];
    const double near = weight(square);
    factor += near * logs_[p].factor;
    host_factor += near * logs_[p].host_factor;
    drag += near * points_[p].drag;
    weights += near;
  }
  return {.shape = shape,
          .factor = std::exp(factor / weights),
          .host_factor = std::exp(host_factor / weights),
          .drag = drag / weights};
}

}  // namespace stallcast::hardware
