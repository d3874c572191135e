#include <algorithm>
#include <cmath>
#include <utility>

#include "models/hardware/profile.h"
#include "traces/common/error.h"

namespace stallcast::hardware {
namespace {

void RequireAscending(const std::vector<double>& x) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (!(std::isfinite(x[i]) && x[i] > 0 && (i == 0 || x[i] > x[i - 1]))) {
      throw Error("sample points must be positive and ascending", "curve", "sort them");
    }
  }
}

void RequirePositive(const std::vector<double>& y, size_t size) {
  if (y.size() != size || y.empty()) {
    throw Error("a curve needs one value a sample point", "curve", "give as many of each");
  }
  for (const double value : y) {
    if (!(std::isfinite(value) && value > 0)) {
      throw Error("values of a curve must be positive", "curve", "leave such samples out");
    }
  }
}

// Where `at` lies among `x`: between `low` and `low + 1`, a `share` of the way in log space.
struct Place {
  size_t low = 0;
  double share = 0;
};

Place Find(const std::vector<double>& x, double at) {
  if (!(at > x.front())) return {};
  if (at >= x.back()) return {x.size() - 1, 0};
  const auto low = static_cast<size_t>(std::upper_bound(x.begin(), x.end(), at) - x.begin()) - 1;
  return {low, std::log(at / x[low]) / std::log(x[low + 1] / x[low])};
}

double Mix(double low, double high, double share) { return low * std::pow(high / low, share); }

bool Inside(const std::vector<double>& x, double at) {
  return !x.empty() && at >= x.front() && at <= x.back();
}

}  // namespace

Curve::Curve(std::vector<double> x, std::vector<double> y) : x_(std::move(x)), y_(std::move(y)) {
  RequireAscending(x_);
  RequirePositive(y_, x_.size());
}

double Curve::At(double x) const {
  const auto [low, share] = Find(x_, x);
  return share == 0 ? y_[low] : Mix(y_[low], y_[low + 1], share);
}

double Curve::FromZero(double x) const { return At(x) * std::min(1.0, x / x_.front()); }

bool Curve::Covers(double x) const { return Inside(x_, x); }

Surface::Surface(std::vector<double> rows, std::vector<double> columns, std::vector<double> values)
    : rows_(std::move(rows)), columns_(std::move(columns)), values_(std::move(values)) {
  RequireAscending(rows_);
  RequireAscending(columns_);
  RequirePositive(values_, rows_.size() * columns_.size());
}

double Surface::At(double row, double column) const {
  const Place in_rows = Find(rows_, row);
  const Place in_columns = Find(columns_, column);
  const auto along = [&](size_t i) {
    const double* values = &values_[i * columns_.size() + in_columns.low];
    return in_columns.share == 0 ? values[0] : Mix(values[0], values[1], in_columns.share);
  };
  return in_rows.share == 0 ? along(in_rows.low)
                            : Mix(along(in_rows.low), along(in_rows.low + 1), in_rows.share);
}

bool Surface::Covers(double row, double column) const {
  return Inside(rows_, row) && Inside(columns_, column);
}

void Surface::Relink(double old_link, double new_link) {
  for (double& rate : values_) {
    const double beside_wire = std::max(0.0, 1 / rate - 1 / old_link);
    rate = 1 / (beside_wire + 1 / new_link);
  }
}

}  // namespace stallcast::hardware
