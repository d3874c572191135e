#include "sim/cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace stallcast::cli {
namespace {

constexpr size_t kLeastWidth = 20;  // narrower is no width that somebody reads

size_t WidthOf(const char* columns) {
  const std::string_view text = columns ? columns : "";
  size_t width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && width >= kLeastWidth ? width : Screen{}.width;
}

// A line of Wrap() or of a table, painted where that shows.
std::string_view Sequence(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kStrong:
      return "\033[1m";
    case Tone::kFaint:
      return "\033[2m";
    case Tone::kBad:
      return "\033[31m";
  }
  return "";
}

}  // namespace

Screen OutputScreen() {
  if (!::isatty(STDOUT_FILENO)) return {WidthOf(std::getenv("COLUMNS")), false};
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool colour =
      (!no_colour || !*no_colour) && std::string_view("dumb") != (terminal ? terminal : "");
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return {std::max<size_t>(size.ws_col, kLeastWidth), colour};
  }
  return {std::getenv("COLUMNS") ? WidthOf(std::getenv("COLUMNS")) : 80, colour};
}

size_t ErrorWidth() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::max<size_t>(size.ws_col, kLeastWidth) : 80;
}

std::string Paint(std::string_view text, Tone tone, const Screen& screen) {
  const std::string_view begin = Sequence(tone);
  if (!screen.colour || begin.empty() || text.empty()) return std::string(text);
  return std::string(begin) + std::string(text) + "\033[0m";
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Wrap(std::string_view text, size_t width, size_t indent) {
  std::string lines;
  size_t used = 0;    // of the line at hand
  bool first = true;  // word of its line
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t size = DisplayWidth(word);
    if (!first && width > 0 && used + 1 + size > width) {
      lines += '\n' + std::string(indent, ' ');
      used = indent;
      first = true;
    }
    if (!first) lines += ' ', ++used;
    lines += word;
    used += size;
    first = false;
  }
  return lines;
}

std::string Reflow(std::string_view text, size_t width) {
  std::string out, paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) out += Wrap(paragraph, width) + '\n';
    paragraph.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.front() != ' ') {
      if (!paragraph.empty()) paragraph += ' ';
      paragraph += line;
      continue;
    }
    flush();
    out += std::string(line) + '\n';
  }
  flush();
  return out;
}

std::string Aside(std::string_view text, const Screen& screen, size_t indent) {
  std::string lines = Wrap(text, screen.width, indent), painted;
  for (size_t begin = 0; begin <= lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    painted += Paint(lines.substr(begin, end - begin), Tone::kFaint, screen) + '\n';
    begin = end + 1;
  }
  return painted;
}

}  // namespace stallcast::cli
