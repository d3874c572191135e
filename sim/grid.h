// The grid of a sweep: axes as written on a command line, and the predictions that they ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/predict.h"

namespace stallcast::sim {

/// One dimension of a grid: a name and the values that it takes, as text.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

/// Parses "name=v1,v2,...", "name=lo:hi:step" or "name=lo:hi:xfactor" (both ends included where
/// they are met; a unit, as in "25GB/s:100GB/s:x2", is the same on both ends). Anything else, and
/// more than 10,000 values: usage Error.
Axis ParseAxis(std::string_view text);

/// Parses a count of tokens: "32768", "32K" (of 1024) or "1M". `where` names the option in the
/// usage Error.
int64_t ParseTokens(std::string_view text, std::string_view where);

struct GridPoint {
  PredictRequest request;
  /// Says everything that the result depends on besides the trace, in one canonical line: every
  /// parameter with its value, and a fingerprint of the machine's profile as overridden.
  std::string key;
};

/// The points of a grid over `base`, each once, made when they are asked for: 4 bytes a point stay.
/// An axis is `method`, `machine`, `model`, `context`, `batch`, `tp`, a method parameter (points of
/// methods without it collapse into one) or a path in a machine's profile such as link.h2d. Unknown
/// names, values that do not parse, an axis given twice, and more than 10 million points: usage
/// Errors.
class Grid {
 public:
  Grid(const PredictRequest& base, const std::vector<Axis>& axes);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  size_t size() const;
  /// Thread safe.
  GridPoint operator[](size_t point) const;
  /// A hash of all points, in their order.
  const std::string& id() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// All points of a Grid.
std::vector<GridPoint> ExpandGrid(const PredictRequest& base, const std::vector<Axis>& axes);

}  // namespace stallcast::sim
