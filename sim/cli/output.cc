#include "sim/cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

std::string CsvCell(const Json& value) {
  std::string text;
  if (value.is_null()) return text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      text += (text.empty() ? "" : " ") + key + "=" + CsvCell(item);
    }
  } else if (value.is_array()) {
    for (const Json& item : value) text += (text.empty() ? "" : "; ") + CsvCell(item);
  } else {
    text = ToJsonText(value);
    return text == "null" ? "" : text;
  }
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string Pad(const std::string& text, size_t width, bool left) {
  const std::string blank(width - std::min(width, text.size()), ' ');
  return left ? text + blank : blank + text;
}

}  // namespace

void AddFormat(CLI::App& command, Format& format) {
  const auto choose = [&format](const std::string& text) {
    if (text == "table") {
      format = Format::kTable;
    } else if (text == "json") {
      format = Format::kJson;
    } else if (text == "csv") {
      format = Format::kCsv;
    } else {
      throw UsageError("unknown format '" + text + "'", "--format", "choose table, json or csv");
    }
  };
  command.add_option_function<std::string>("--format", choose, "table (default), json or csv")
      ->type_name("FORMAT")
      ->group("Output");
}

void Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(std::strerror(errno), "standard output", "give it room, or write somewhere else");
  }
}

std::string TextTable::Render(size_t width) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t widest = std::max(columns_[c].title.size(), columns_[c].unit.size());
    for (const auto& row : rows_) widest = std::max(widest, row[c].size());
    widths.push_back(widest);
  }
  std::vector<bool> shown(columns_.size(), true);
  const auto line_width = [&] {
    size_t sum = 0;
    for (size_t c = 0; c < columns_.size(); ++c) sum += shown[c] ? widths[c] + 2 : 0;
    return sum - 2;
  };
  while (width > 0 && line_width() > width) {
    size_t drop = columns_.size();
    for (size_t c = 0; c < columns_.size(); ++c) {
      const bool candidate = shown[c] && columns_[c].rank > 0;
      if (candidate && (drop == columns_.size() || columns_[c].rank >= columns_[drop].rank))
        drop = c;
    }
    if (drop == columns_.size()) break;
    shown[drop] = false;
  }

  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (!shown[c]) continue;
      if (c > 0) line += "  ";
      line += Pad(cell(c), widths[c], columns_[c].left);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](size_t c) { return columns_[c].title; });
  if (std::any_of(columns_.begin(), columns_.end(),
                  [](const auto& c) { return !c.unit.empty(); })) {
    add_line([&](size_t c) { return columns_[c].unit; });
  }
  text += std::string(line_width(), '-') + '\n';
  for (const auto& row : rows_) {
    add_line([&](size_t c) { return row[c]; });
  }
  return text;
}

std::string ToJsonText(const Json& json) {
  // Text in a trace may be anything: bytes that are no UTF-8 are replaced.
  return json.dump(json.is_structured() ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

std::string ToCsv(const Json& rows) {
  std::string text;
  if (rows.empty()) return text;
  const auto add_line = [&](const Json& row, bool keys) {
    bool first = true;
    for (const auto& [key, value] : row.items()) {
      if (!first) text += ',';
      text += keys ? key : CsvCell(value);
      first = false;
    }
    text += '\n';
  };
  add_line(rows.front(), true);
  for (const Json& row : rows) add_line(row, false);
  return text;
}

std::string TableOf(const Json& rows) {
  if (rows.empty()) return "none\n";
  std::vector<TextTable::Column> columns;
  for (const auto& [key, value] : rows.front().items()) {
    std::string title = key;
    std::replace(title.begin(), title.end(), '_', ' ');
    columns.push_back({title, "", !value.is_number()});
  }
  TextTable table(columns);
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [key, value] : row.items()) {
      if (value.is_number_integer()) {
        cells.push_back(Count(value.get<int64_t>()));
      } else if (value.is_number()) {
        cells.push_back(Short(value.get<double>()));
      } else {
        cells.push_back(value.is_string() ? value.get<std::string>() : CsvCell(value));
      }
    }
    table.Add(std::move(cells));
  }
  return table.Render();
}

void PrintRecords(const Json& rows, Format format) {
  switch (format) {
    case Format::kTable:
      return Print(TableOf(rows));
    case Format::kJson:
      return Print(ToJsonText(rows) + "\n");
    case Format::kCsv:
      return Print(ToCsv(rows));
  }
}

std::string Fixed(double value, int decimals) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, decimals);
}

std::string Short(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 999.5 && size < 1e15) return Count(static_cast<int64_t>(std::llround(value)));
  if (size >= 1e15 || size < 1e-4) return fmt::format("{:.3g}", value);
  const int magnitude = static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", value, std::max(0, 2 - magnitude));
}

std::string Percent(double share, int decimals) {
  return std::isnan(share) ? "-" : fmt::format("{:.{}f}", share * 100, decimals);
}

std::string Count(int64_t value) {
  std::string digits = fmt::to_string(value < 0 ? -value : value);
  for (int64_t at = std::ssize(digits) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return value < 0 ? "-" + digits : digits;
}

}  // namespace stallcast::cli
