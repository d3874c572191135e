#include "sim/cli/text_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace stallcast::cli {
namespace {

constexpr size_t kGap = 2;           // between columns
constexpr size_t kWrapsDownTo = 24;  // a column of text that is narrower is no longer read

std::string Pad(const std::string& text, size_t width, bool left) {
  const std::string blank(width - std::min(width, DisplayWidth(text)), ' ');
  return left ? text + blank : blank + text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

size_t Total(const std::vector<size_t>& widths) {
  size_t sum = 0;
  for (const size_t width : widths) sum += width > 0 ? width + kGap : 0;
  return sum > 0 ? sum - kGap : 0;
}

}  // namespace

std::vector<size_t> TextTable::NaturalWidths() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t widest =
        std::max({DisplayWidth(columns_[c].title), DisplayWidth(columns_[c].unit), size_t{1}});
    for (const Row& row : rows_) widest = std::max(widest, DisplayWidth(row.cells[c]));
    widths.push_back(widest);
  }
  return widths;
}

// What a column that wraps needs: its longest word at least.
size_t TextTable::LeastWidth(size_t column) const {
  size_t widest = DisplayWidth(columns_[column].title);
  const auto longest_word = [&](const std::string& text) {
    for (const std::string& line : Lines(Wrap(text, 1)))
      widest = std::max(widest, DisplayWidth(line));
  };
  for (const Row& row : rows_) longest_word(row.cells[column]);
  return std::max(widest, kWrapsDownTo);
}

TextTable::Layout TextTable::Fit(size_t width) const {
  Layout layout{NaturalWidths(), false};
  if (width == 0 || Total(layout.widths) <= width) return layout;
  std::vector<size_t> least;
  for (size_t c = 0; c < columns_.size(); ++c) least.push_back(LeastWidth(c));
  while (Total(layout.widths) > width) {
    // The widest of the columns that wrap gives way, a character at a time.
    std::vector<size_t> narrower = layout.widths;
    while (Total(narrower) > width) {
      size_t widest = columns_.size();
      for (size_t c = 0; c < columns_.size(); ++c) {
        if (!columns_[c].wraps || narrower[c] == 0 || narrower[c] <= least[c]) continue;
        if (widest == columns_.size() || narrower[c] > narrower[widest]) widest = c;
      }
      if (widest == columns_.size()) break;
      --narrower[widest];
    }
    if (Total(narrower) <= width) {
      layout.widths = narrower;
      return layout;
    }
    size_t drop = columns_.size();
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (layout.widths[c] == 0 || columns_[c].rank == 0) continue;
      if (drop == columns_.size() || columns_[c].rank >= columns_[drop].rank) drop = c;
    }
    if (drop == columns_.size()) {
      layout.vertical = true;
      return layout;
    }
    layout.widths[drop] = 0;
  }
  return layout;
}

std::string TextTable::Side(const Layout& layout, const Screen& screen) const {
  std::string text;
  const auto add_line = [&](const auto& cell, Tone tone) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (layout.widths[c] == 0) continue;
      if (!line.empty()) line += std::string(kGap, ' ');
      line += Pad(cell(c), layout.widths[c], columns_[c].left);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += Paint(line, tone, screen) + '\n';
  };
  add_line([&](size_t c) { return columns_[c].title; }, Tone::kPlain);
  if (std::any_of(columns_.begin(), columns_.end(),
                  [](const auto& c) { return !c.unit.empty(); })) {
    add_line([&](size_t c) { return columns_[c].unit; }, Tone::kPlain);
  }
  text += Paint(std::string(Total(layout.widths), '-'), Tone::kFaint, screen) + '\n';
  for (const Row& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const bool wrapped = columns_[c].wraps && layout.widths[c] > 0;
      cells.push_back(Lines(wrapped ? Wrap(row.cells[c], layout.widths[c]) : row.cells[c]));
      if (layout.widths[c] > 0) height = std::max(height, cells.back().size());
    }
    for (size_t at = 0; at < height; ++at) {
      add_line([&](size_t c) { return at < cells[c].size() ? cells[c][at] : std::string(); },
               row.tone);
    }
  }
  return text;
}

std::string TextTable::Vertical(const Screen& screen) const {
  const auto title = [](const Column& c) {
    return c.title + (c.title.empty() || c.unit.empty() ? "" : " ") + c.unit;
  };
  size_t widest = 0;
  for (const Column& column : columns_) widest = std::max(widest, DisplayWidth(title(column)));
  std::string text;
  for (const Row& row : rows_) {
    if (!text.empty()) text += '\n';
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (row.cells[c].empty()) continue;
      const std::string body =
          Wrap(row.cells[c], std::max(screen.width, widest + kGap + 10) - widest - kGap, 0);
      bool first = true;
      for (const std::string& each : Lines(body)) {
        text += Pad(first ? title(columns_[c]) : "", widest, true) + std::string(kGap, ' ') +
                Paint(each, row.tone, screen) + '\n';
        first = false;
      }
    }
  }
  return text;
}

std::string TextTable::Legend(const Screen& screen) const {
  const Layout layout = Fit(screen.width);
  std::string legend;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const Column& column = columns_[c];
    if (column.help.empty() || (layout.widths[c] == 0 && !layout.vertical)) continue;
    legend += fmt::format("{}{}: {}", legend.empty() ? "" : "; ", column.title, column.help);
  }
  return legend;
}

std::string TextTable::Render(const Screen& screen) const {
  const Layout layout = Fit(screen.width);
  if (layout.vertical) return Vertical(screen);
  std::vector<std::string> left_out;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const std::string& title = columns_[c].title;
    if (layout.widths[c] > 0 || title.empty()) continue;
    if (std::find(left_out.begin(), left_out.end(), title) == left_out.end()) {
      left_out.push_back(title);
    }
  }
  if (left_out.empty()) return Side(layout, screen);
  return Side(layout, screen) + Aside(fmt::format("Left out at {} columns: {}; --wide shows them.",
                                                  screen.width, fmt::join(left_out, ", ")),
                                      screen, 0);
}

}  // namespace stallcast::cli
