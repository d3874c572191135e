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
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(std::strerror(errno), "standard output", "give it room, or write somewhere else");
  }
}

std::string ToJsonText(const Json& json) {
  // Text in a trace may be anything: bytes that are no UTF-8 are replaced.
  return json.dump(json.is_structured() ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

std::string ToCsv(const Json& rows) {
  if (rows.empty()) return "";
  struct Column {
    std::string key, name;  // `name` of the object that the key has, else empty
  };
  std::vector<Column> columns;
  for (const auto& [key, first] : rows.front().items()) {
    const auto has_objects = std::any_of(rows.begin(), rows.end(), [&, key = key](const Json& row) {
      return row.contains(key) && row[key].is_object();
    });
    if (!has_objects) {
      columns.push_back({key, ""});
      continue;
    }
    std::vector<std::string> names;
    for (const Json& row : rows) {
      for (const auto& [name, value] : row[key].items()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    for (const std::string& name : names) columns.push_back({key, name});
  }
  std::string text;
  for (const Column& column : columns) {
    text += (text.empty() ? "" : ",") +
            CsvCell(column.name.empty() ? column.key : column.key + "." + column.name);
  }
  text += '\n';
  for (const Json& row : rows) {
    bool first = true;
    for (const Column& column : columns) {
      if (!first) text += ',';
      first = false;
      const auto cell = row.find(column.key);
      if (cell == row.end()) continue;
      if (column.name.empty()) {
        text += CsvCell(*cell);
      } else if (cell->contains(column.name)) {
        text += CsvCell((*cell)[column.name]);
      }
    }
    text += '\n';
  }
  return text;
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
        cells.push_back(value.is_string() ? value.get<std::string>() : CsvCell(value));
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
