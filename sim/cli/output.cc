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

// A value on one line, as a cell of a table.
std::string CellText(const Json& value) {
  std::string text;
  if (value.is_null()) return text;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      text += (text.empty() ? "" : " ") + key + "=" + CellText(item);
    }
  } else if (value.is_array()) {
    for (const Json& item : value) text += (text.empty() ? "" : "; ") + CellText(item);
  } else {
    text = ToJsonText(value);
    if (text == "null") text.clear();
  }
  return text;
}

std::string CsvCell(const Json& value) {
  const std::string text = CellText(value);
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

struct CsvColumn {
  std::string key, name;  // `name` of the object that the key has, else empty
};

std::vector<CsvColumn> CsvColumns(const Json& record, const RecordWriter::Names& names) {
  std::vector<CsvColumn> columns;
  for (const auto& [key, value] : record.items()) {
    const auto object = names.find(key);
    if (object == names.end()) {
      columns.push_back({key, ""});
      continue;
    }
    for (const std::string& name : object->second) columns.push_back({key, name});
  }
  return columns;
}

std::string CsvHeading(const std::vector<CsvColumn>& columns) {
  std::string text;
  for (const CsvColumn& column : columns) {
    text += (text.empty() ? "" : ",") +
            CsvCell(column.name.empty() ? column.key : column.key + "." + column.name);
  }
  return text + '\n';
}

std::string CsvRow(const std::vector<CsvColumn>& columns, const Json& row) {
  std::string text;
  for (const CsvColumn& column : columns) {
    if (&column != &columns.front()) text += ',';
    const auto cell = row.find(column.key);
    if (cell == row.end()) continue;
    if (column.name.empty()) {
      text += CsvCell(*cell);
    } else if (cell->contains(column.name)) {
      text += CsvCell((*cell)[column.name]);
    }
  }
  return text + '\n';
}

[[noreturn]] void FailToWrite() {
  throw Error(std::strerror(errno), "standard output", "give it room, or write somewhere else");
}

void Write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) FailToWrite();
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

void AddWide(CLI::App& command, bool& wide) {
  command
      .add_flag("--wide", wide,
                "All columns, however wide the table gets; else it fits the terminal, and in a "
                "file or pipe $COLUMNS or 100 characters")
      ->group("Output");
}

Screen ScreenFor(bool wide) {
  Screen screen = OutputScreen();
  if (wide) screen.width = 0;
  return screen;
}

void Print(const std::string& text) {
  Write(text);
  if (std::fflush(stdout) != 0) FailToWrite();
}

std::string ToJsonText(const Json& json) {
  // Text in a trace may be anything: bytes that are no UTF-8 are replaced.
  return json.dump(json.is_structured() ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

std::string ToCsv(const Json& rows) {
  if (rows.empty()) return "";
  RecordWriter::Names names;
  for (const Json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (!value.is_object()) continue;
      std::vector<std::string>& known = names[key];
      for (const auto& [name, item] : value.items()) {
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
      }
    }
  }
  std::string text;
  const std::vector<CsvColumn> columns = CsvColumns(rows.front(), names);
  text += CsvHeading(columns);
  for (const Json& row : rows) text += CsvRow(columns, row);
  return text;
}

void RecordWriter::Add(const Json& record) {
  std::string text;
  if (format_ == Format::kCsv) {
    const std::vector<CsvColumn> columns = CsvColumns(record, names_);
    if (first_) text += CsvHeading(columns);
    text += CsvRow(columns, record);
  } else {
    text += first_ ? "[\n  " : ",\n  ";
    for (const char c : ToJsonText(record)) {
      text += c;
      if (c == '\n') text += "  ";
    }
  }
  first_ = false;
  Write(text);
}

void RecordWriter::Finish() {
  if (format_ == Format::kJson) Write(first_ ? "[]\n" : "\n]\n");
  Print("");
}

std::string TableOf(const Json& rows, const RecordTable& form) {
  if (rows.empty()) return "none\n";
  const auto place = [](const std::vector<std::string>& keys, const std::string& key) {
    return static_cast<int>(std::find(keys.begin(), keys.end(), key) - keys.begin());
  };
  std::vector<TextTable::Column> columns;
  for (const auto& [key, value] : rows.front().items()) {
    std::string title = key;
    std::replace(title.begin(), title.end(), '_', ' ');
    const int optional = place(form.optional, key);
    columns.push_back({.title = title,
                       .unit = "",
                       .left = !value.is_number(),
                       .rank = optional == std::ssize(form.optional) ? 0 : optional + 1,
                       .wraps = place(form.wrapped, key) < std::ssize(form.wrapped)});
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
        cells.push_back(CellText(value));
      }
    }
    table.Add(std::move(cells));
  }
  return table.Render(form.screen);
}

void PrintRecords(const Json& rows, Format format, const RecordTable& form) {
  switch (format) {
    case Format::kTable:
      return Print(TableOf(rows, form));
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
  return value < 0 ? fmt::format("-{}", digits) : digits;
}

}  // namespace stallcast::cli
