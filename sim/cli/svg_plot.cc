#include "sim/cli/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

namespace stallcast::cli {
namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 70, kTop = 50, kBottom = 60;
constexpr double kLegend = 250;  // on the right
constexpr double kRowHeight = 18;
constexpr double kLogFrom = 8;
constexpr size_t kMostTicks = 12;
// Okabe and Ito: told apart by colour-blind readers too.
constexpr std::array kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                 "#E69F00", "#56B4E9", "#000000", "#999999"};
constexpr std::array kDashes = {"", "6 3", "2 3", "8 3 2 3"};

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        // Control characters are no XML.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text,
                 std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, Escaped(text));
}

// The next of 1, 2 and 5 times a power of ten.
double NiceStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

class Axes {
 public:
  explicit Axes(const LinePlot& plot) {
    double highest = 0;
    for (const PlotSeries& series : plot.series) {
      for (const auto& [x, y] : series.points) {
        xs_.insert(x);
        highest = std::max(highest, y);
      }
    }
    low_ = xs_.empty() ? 0 : *xs_.begin();
    high_ = xs_.empty() ? 1 : *xs_.rbegin();
    log_ = low_ > 0 && high_ / low_ >= kLogFrom;
    if (high_ <= low_) high_ = low_ + 1;
    step_ = NiceStep(highest > 0 ? highest / 6 : 1);
    top_ = step_ * std::max(1.0, std::ceil(highest / step_));
  }

  double X(double x) const {
    const double share =
        log_ ? std::log(x / low_) / std::log(high_ / low_) : (x - low_) / (high_ - low_);
    return kLeft + share * (kWidth - kLegend - kLeft);
  }
  double Y(double y) const { return kHeight - kBottom - y / top_ * (kHeight - kBottom - kTop); }

  std::string Draw() const {
    std::string svg;
    for (int i = 0; i * step_ <= top_ * (1 + 1e-9); ++i) {
      const double y = Y(i * step_);
      svg +=
          fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n",
                      kLeft, y, kWidth - kLegend, y);
      svg += Text(kLeft - 8, y + 4, "end", fmt::format("{:g}", i * step_));
    }
    std::vector<double> ticks(xs_.begin(), xs_.end());
    if (ticks.size() > kMostTicks) {
      ticks.clear();
      const double step = NiceStep((high_ - low_) / 6);
      for (double x = std::ceil(low_ / step) * step; x <= high_; x += step) ticks.push_back(x);
    }
    double last = -kWidth;
    for (const double x : ticks) {
      const double at = X(x);
      svg +=
          fmt::format("<line x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\" stroke=\"#333\"/>\n",
                      at, kHeight - kBottom, at, kHeight - kBottom + 5);
      if (at - last < 44) continue;  // labels would lie on each other
      svg += Text(at, kHeight - kBottom + 20, "middle", fmt::format("{:g}", x));
      last = at;
    }
    return svg + fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#333\"/>\n",
                             kLeft, kHeight - kBottom, kWidth - kLegend, kHeight - kBottom);
  }

 private:
  std::set<double> xs_;
  double low_, high_, top_, step_;
  bool log_;
};

}  // namespace

std::string SvgOf(const LinePlot& plot) {
  const Axes axes(plot);
  const double height =
      std::max(kHeight, kTop + kRowHeight * static_cast<double>(plot.series.size()) + 20);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, height);
  svg += Text(kLeft, 26, "start", plot.title, " font-size=\"16\" font-weight=\"bold\"");
  svg += axes.Draw();
  svg += Text((kLeft + kWidth - kLegend) / 2, kHeight - 15, "middle", plot.x_label);
  svg += Text(18, kHeight / 2, "middle", plot.y_label,
              fmt::format(" transform=\"rotate(-90 18 {})\"", kHeight / 2));
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const PlotSeries& series = plot.series[i];
    const char* colour = kColours[i % kColours.size()];
    const char* dashes = kDashes[i / kColours.size() % kDashes.size()];
    const std::string stroke = fmt::format(
        "fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"", colour, dashes);
    std::string path;
    for (const auto& [x, y] : series.points) {
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", axes.X(x), axes.Y(y));
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", axes.X(x),
                         axes.Y(y), colour);
    }
    svg += fmt::format("<polyline points=\"{}\" {}/>\n", path, stroke);
    const double row = kTop + kRowHeight * static_cast<double>(i);
    const double legend = kWidth - kLegend + 15;
    svg += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", legend, row,
                       legend + 24, row, stroke);
    svg += Text(legend + 30, row + 4, "start", series.name);
  }
  return svg + "</svg>\n";
}

}  // namespace stallcast::cli
