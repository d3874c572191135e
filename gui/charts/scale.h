// SPDX-License-Identifier: GPL-3.0-or-later
// From values to positions along an axis, and the values that are worth a label.
#pragma once

#include <QString>
#include <vector>

namespace stallcast::gui {

enum class ScaleKind : uint8_t {
  kLinear,
  kLog,     ///< decades: 1, 2, 5, 10
  kBinary,  ///< powers of two: token counts, pages
};

/// A stretch of values.
struct Range {
  double low = 0, high = 1;
  double span() const { return high - low; }
};

/// Maps values of a range to positions between two ends, which may be in either order.
class ScaleMap {
 public:
  ScaleMap() = default;
  /// On a logarithmic scale the range must be positive. An empty range is widened.
  ScaleMap(ScaleKind kind, Range range, double first, double last);

  double At(double value) const;  ///< position; NaN where a logarithmic scale has no place for it
  double Value(double at) const;  ///< and back
  const Range& range() const { return range_; }

 private:
  double Warp(double value) const;

  ScaleKind kind_ = ScaleKind::kLinear;
  Range range_;
  double first_ = 0, last_ = 1;
  double low_ = 0, high_ = 1;  // warped
};

/// Widens a range to round ends, as a chart of these values shows it. `from_zero`: a linear scale
/// begins at 0 (bars, or values of which only the size counts).
Range RoundRange(ScaleKind kind, Range values, bool from_zero);

/// Round values inside the range, ascending, at most `most` (at least two) of them. `integers`: no
/// fractions.
std::vector<double> Ticks(ScaleKind kind, Range range, int most, bool integers);

/// The label of a tick beside others `step` apart (linear; 0: by its own size). Thousands are
/// grouped: "32,768", "0.25".
QString TickLabel(double value, double step);

}  // namespace stallcast::gui
