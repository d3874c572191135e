// What commands print: tables for people, JSON and CSV for programs.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/cli/text_table.h"
#include "traces/common/units.h"

namespace stallcast::cli {

using Json = nlohmann::ordered_json;

enum class Format { kTable, kJson, kCsv };

/// Adds --format.
void AddFormat(CLI::App& command, Format& format);
/// Adds --wide.
void AddWide(CLI::App& command, bool& wide);
/// Standard output, or with `wide` one of any width.
Screen ScreenFor(bool wide);

/// Writes to standard output at once; throws Error when that fails (a full disk).
void Print(const std::string& text);

/// JSON text of anything, and CSV of an array of objects that have the same keys. Objects in them
/// are columns "key.name", empty where a row has no such name.
std::string ToJsonText(const Json& json);
std::string ToCsv(const Json& rows);

/// The same of an array whose objects come one by one, to standard output.
class RecordWriter {
 public:
  /// The names that objects in the records have, by their key.
  using Names = std::map<std::string, std::vector<std::string>>;
  RecordWriter(Format format, Names names) : format_(format), names_(std::move(names)) {}
  void Add(const Json& record);
  void Finish();

 private:
  Format format_;
  Names names_;
  bool first_ = true;
};

/// How an array of flat objects becomes a table.
struct RecordTable {
  std::vector<std::string> wrapped = {};  ///< keys whose texts may take several lines
  std::vector<std::string> optional =
      {};  ///< keys to leave out where width is short, the last first
  Screen screen = OutputScreen();
};
/// An array of flat objects as a table whose titles are the keys, underscores blank.
std::string TableOf(const Json& rows, const RecordTable& form = {});
/// Prints an array of flat objects in any format.
void PrintRecords(const Json& rows, Format format, const RecordTable& form = {});

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
