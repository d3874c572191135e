// Tables and paragraphs keep to the width that there is, and lose nothing that they do not name.
#include "sim/cli/text_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "sim/cli/screen.h"

namespace stallcast::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TextTable Example() {
  TextTable table({{.title = "method", .left = true},
                   {.title = "mean", .unit = "ms", .help = "time of a step"},
                   {.title = "rare", .rank = 2, .help = "seldom asked for"},
                   {.title = "useful", .rank = 1},
                   {.title = "what", .left = true, .wraps = true}});
  table.Add(
      {"freekv", "17.75", "123456789", "9.5", "speculative recall that hides behind compute"});
  table.Add({"full", "102.40", "1", "0.1", "everything stays on the GPU"}, Tone::kBad);
  return table;
}

TEST(TextTableTest, NoLineIsWiderThanTheScreen) {
  const TextTable table = Example();
  for (size_t width = 20; width <= 200; ++width) {
    for (const std::string& line : Lines(table.Render({.width = width}))) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
  }
}

TEST(TextTableTest, WrapsThenLeavesOutByRankThenTurnsUpright) {
  const TextTable table = Example();
  const std::string wide = table.Render({.width = 0}), wrapped = table.Render({.width = 70});
  EXPECT_EQ(Lines(wide).size(), 5u);
  EXPECT_THAT(wrapped, HasSubstr("123456789"));
  EXPECT_GT(Lines(wrapped).size(), 5u);
  const std::string narrow = table.Render({.width = 55});
  EXPECT_THAT(narrow, Not(HasSubstr("123456789")));
  EXPECT_THAT(narrow, HasSubstr("9.5"));
  EXPECT_THAT(narrow, HasSubstr("Left out at 55 columns: rare"));
  const std::string upright = table.Render({.width = 30});
  for (const char* cell : {"123456789", "9.5", "102.40", "full"}) {
    EXPECT_THAT(upright, HasSubstr(cell));
  }
}

TEST(TextTableTest, TheLegendIsOfTheColumnsShown) {
  const TextTable table = Example();
  EXPECT_EQ(table.Legend({.width = 0}), "mean: time of a step; rare: seldom asked for");
  EXPECT_EQ(table.Legend({.width = 55}), "mean: time of a step");
}

TEST(TextTableTest, ColoursOnlyWhereTheyShow) {
  const TextTable table = Example();
  EXPECT_THAT(table.Render({.width = 0, .colour = false}), Not(HasSubstr("\033")));
  EXPECT_THAT(table.Render({.width = 0, .colour = true}), HasSubstr("\033[31m"));
}

TEST(WrapTest, KeepsEveryWordWithinTheWidth) {
  const std::string text = "one two three four five six seven eight";
  const std::vector<std::string> lines = Lines(Wrap(text, 12, 2));
  std::string joined;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), 12u);
    EXPECT_EQ(lines[i].starts_with("  "), i > 0);
    joined += (i > 0 ? " " : "") + lines[i].substr(i > 0 ? 2 : 0);
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(Wrap("unbreakable", 4), "unbreakable");
  EXPECT_EQ(Wrap("", 4), "");
}

TEST(ReflowTest, JoinsParagraphsAndLeavesExamplesAlone) {
  EXPECT_EQ(Reflow("A text\nof two lines.\n\nExamples:\n  one   two\n", 80),
            "A text of two lines.\n\nExamples:\n  one   two\n");
}

TEST(DisplayWidthTest, CountsCharacters) { EXPECT_EQ(DisplayWidth("µs ≥ 3"), 6u); }

}  // namespace
}  // namespace stallcast::cli
