// A table for people, laid out for the width that there is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/cli/screen.h"

namespace stallcast::cli {

/// Aligned columns under titles with units. Where they are wider than the screen, in this order:
/// columns that wrap get narrower, columns of a rank above 0 are left out, the highest rank first,
/// and last each row becomes lines of "title: cell".
class TextTable {
 public:
  struct Column {
    std::string title;
    std::string unit = {};  ///< second line of the heading
    bool left = false;      ///< text rather than numbers
    int rank = 0;           ///< 0: never left out
    bool wraps = false;     ///< long text, which may take several lines
    std::string help = {};  ///< for Legend()
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// `cells` has one text a column; the tone is of the whole row.
  void Add(std::vector<std::string> cells, Tone tone = Tone::kPlain) {
    rows_.push_back({std::move(cells), tone});
  }
  /// With a line of the columns that were left out, under it. A screen of width 0 takes all.
  std::string Render(const Screen& screen = OutputScreen()) const;
  /// "title: help; ..." of the columns that Render() shows and that have a help.
  std::string Legend(const Screen& screen) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Tone tone;
  };
  struct Layout {
    std::vector<size_t> widths;  ///< 0: left out
    bool vertical = false;
  };
  std::vector<size_t> NaturalWidths() const;
  size_t LeastWidth(size_t column) const;
  Layout Fit(size_t width) const;
  std::string Side(const Layout& layout, const Screen& screen) const;
  std::string Vertical(const Screen& screen) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace stallcast::cli
