// Where text for people goes: its width and colours, and text broken into lines for it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stallcast::cli {

struct Screen {
  size_t width = 100;   ///< characters a line; 0: as many as it takes
  bool colour = false;  ///< takes escape sequences
};

/// Standard output. A terminal: its width, and colours unless NO_COLOR is set. A file or pipe:
/// $COLUMNS or 100 characters, and no colours, so that the same command writes the same text.
Screen OutputScreen();

/// Characters a line of standard error: its terminal's, or 80.
size_t ErrorWidth();

enum class Tone {
  kPlain,
  kStrong,  ///< bold: the best of a table
  kFaint,   ///< dim: notes and legends
  kBad,     ///< red: does not fit, failed
};

/// `text`, which has no line breaks, in a tone.
std::string Paint(std::string_view text, Tone tone, const Screen& screen);

/// Characters of UTF-8 text.
size_t DisplayWidth(std::string_view text);

/// Breaks a paragraph into lines of at most `width` at its blanks. All lines but the first begin
/// with `indent` blanks, which count. A longer word stands alone. No line break at the end.
std::string Wrap(std::string_view text, size_t width, size_t indent = 0);

/// Wraps the paragraphs of `text`; lines that begin with a blank stay as they are.
std::string Reflow(std::string_view text, size_t width);

/// A paragraph of notes or a legend: wrapped, faint, with a line break at its end.
std::string Aside(std::string_view text, const Screen& screen, size_t indent = 2);

}  // namespace stallcast::cli
