// Line plots as SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stallcast::cli {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x and y, by x
};

struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
};

/// A picture of 960 x 540 with axes, marks at the points and a legend. y begins at 0; x is
/// logarithmic where its values are positive and span a factor of 8 or more.
std::string SvgOf(const LinePlot& plot);

}  // namespace stallcast::cli
