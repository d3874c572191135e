// What commands print: tables for people, JSON and CSV for programs.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "traces/common/units.h"

namespace stallcast::cli {

using Json = nlohmann::ordered_json;

enum class Format { kTable, kJson, kCsv };

/// Adds --format.
void AddFormat(CLI::App& command, Format& format);

/// Writes to standard output at once; throws Error when that fails (a full disk).
void Print(const std::string& text);

/// A table for people: right-aligned columns under titles with units.
class TextTable {
 public:
  struct Column {
    std::string title;
    std::string unit;   ///< second line of the heading
    bool left = false;  ///< text rather than numbers
    int rank = 0;       ///< columns of the highest rank are left out first where width is short
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// `cells` has one text a column.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// At most `width` characters a line, as far as columns of a rank above 0 can be left out; 0:
  /// all.
  std::string Render(size_t width = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// JSON text of anything, and CSV of an array of flat objects that have the same keys.
std::string ToJsonText(const Json& json);
std::string ToCsv(const Json& rows);
/// An array of flat objects as a table whose titles are the keys, underscores blank.
std::string TableOf(const Json& rows);
/// Prints an array of flat objects in any format.
void PrintRecords(const Json& rows, Format format);

/// "a=1 b=2" of a range of pairs of strings.
template <class Pairs>
std::string JoinPairs(const Pairs& pairs) {
  std::string text;
  for (const auto& [name, value] : pairs) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

/// Fixed decimals; "-" for NaN.
std::string Fixed(double value, int decimals);
/// About three significant digits without exponent: 0.0123, 1.23, 12.3, 123, 1,234.
std::string Short(double value);
/// A share as a percentage, "-" for NaN.
std::string Percent(double share, int decimals = 1);
/// With thousands separators.
std::string Count(int64_t value);

}  // namespace stallcast::cli
