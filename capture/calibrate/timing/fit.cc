#include "capture/calibrate/timing/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "models/hardware/kernel_law.h"
#include "models/hardware/timed_points.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

double Law(const hardware::KernelFit& fit, const plan::WorkCounts& counts) {
  return fit.fixed_s + hardware::FlowSeconds(fit, counts, fit.bandwidth);
}

// Sum of squared logarithms of timed over law.
double Misfit(const hardware::KernelFit& fit, std::span<const TimedWork> timed) {
  double sum = 0;
  for (const TimedWork& each : timed) {
    const double ratio = std::log(each.seconds / Law(fit, plan::Count(each.work)));
    sum += ratio * ratio;
  }
  return sum;
}

// Lowers `misfit` over the logarithms of some values by coordinate search with shrinking steps, and
// returns it.
template <class F>
double Descend(std::vector<double>& values, const F& misfit) {
  double best = misfit(values);
  constexpr int kSteps = 14;  // to 1.2e-4
  double step = 1;
  for (int halved = 0; halved < kSteps; ++halved, step /= 2) {
    for (bool better = true; better;) {
      better = false;
      for (double& value : values) {
        for (const double factor : {std::exp(step), std::exp(-step)}) {
          const double before = value;
          value *= factor;
          const double now = misfit(values);
          if (now < best - 1e-12) {
            best = now;
            better = true;
          } else {
            value = before;
          }
        }
      }
    }
  }
  return best;
}

}  // namespace

Line FitLine(std::span<const double> x, std::span<const double> y) {
  // Weighted by 1/y^2, each residual is relative.
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double weight = 1 / (y[i] * y[i]);
    w += weight, wx += weight * x[i], wy += weight * y[i];
    wxx += weight * x[i] * x[i], wxy += weight * x[i] * y[i];
  }
  Line line;
  const double determinant = w * wxx - wx * wx;
  line.b = determinant > 0 ? (w * wxy - wx * wy) / determinant : 0;
  line.a = (wy - line.b * wx) / w;
  if (line.a < 0) line = {.a = 0, .b = wxy / wxx};
  if (line.b < 0) line = {.a = wy / w, .b = 0};
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = (line.a + line.b * x[i] - y[i]) / y[i];
    sum += error * error;
  }
  line.spread = std::sqrt(sum / static_cast<double>(x.size()));
  return line;
}

std::vector<double> MonotoneEnvelope(std::vector<double> y, double least) {
  for (double& of : y) least = of = std::max(of, least);
  return y;
}

hardware::KernelFit FitKernel(std::span<const TimedWork> timed) {
  hardware::KernelFit fit;
  double least = timed.front().seconds, most_rate = 1e6, most_flops = 1e6, most_cache = 0,
         least_item = 1;
  bool flops = false, serial = false;
  fit.min_bytes = 1e18;
  for (const TimedWork& each : timed) {
    const plan::WorkCounts counts = plan::Count(each.work);
    const auto bytes = static_cast<double>(counts.device());
    least = std::min(least, each.seconds);
    most_rate = std::max(most_rate, bytes / each.seconds);
    flops = flops || counts.flops > 100 * bytes;  // enough of them to be the limit
    serial = serial || counts.serial_items > 0;
    most_flops = std::max(most_flops, counts.flops / each.seconds);
    most_cache = std::max(most_cache, static_cast<double>(counts.cache_read) / each.seconds);
    if (counts.serial_items > 0) {
      least_item = std::min(least_item, each.seconds / counts.serial_items);
    }
    fit.min_bytes = std::min(fit.min_bytes, bytes);
    fit.max_bytes = std::max(fit.max_bytes, bytes);
  }
  const auto apply = [&](const std::vector<double>& v) {
    fit.fixed_s = v[0];
    fit.bandwidth = v[1];
    fit.flops_rate = flops ? v[2] : 0;
    fit.serial_s = serial ? v[3] : 0;
    fit.cache_rate = most_cache > 0 ? v[4] : 0;
  };
  // From where the bytes explain the times, and from where the operations or the items do: a search
  // does not find a limit that is far from binding.
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> found;
  const double cache = std::max(most_cache, 1e6);
  for (std::vector<double> values : {std::vector{least * 0.8, most_rate, 1e14, 1e-9, cache},
                                     {least * 0.1, 2 * most_rate, 1e14, least_item, cache},
                                     {least * 0.1, 2 * most_rate, most_flops, 1e-9, cache}}) {
    const double misfit = Descend(values, [&](const std::vector<double>& v) {
      apply(v);
      return Misfit(fit, timed);
    });
    if (misfit >= best) continue;
    best = misfit;
    found = std::move(values);
  }
  apply(found);
  std::vector<double> host;
  for (const TimedWork& each : timed) host.push_back(each.host);
  fit.host_s = Median(std::move(host));
  for (const TimedWork& each : timed) {
    fit.points.push_back({plan::ShapeOf(each.work), each.seconds,
                          each.seconds / Law(fit, plan::Count(each.work)),
                          fit.host_s > 0 ? each.host / fit.host_s : 1, each.drag});
  }
  // Each point from the others.
  double sum = 0;
  for (const hardware::KernelPoint& point : fit.points) {
    std::vector<hardware::KernelPoint> others;
    for (const auto& other : fit.points) {
      if (&other != &point) others.push_back(other);
    }
    const double error =
        std::log(point.factor / hardware::TimedPoints(std::move(others)).At(point.shape).factor);
    sum += error * error;
  }
  fit.spread = std::sqrt(sum / static_cast<double>(fit.points.size()));
  return fit;
}

}  // namespace stallcast::capture
