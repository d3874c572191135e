// Notes of many rows are folded without losing a number or an owner.
#include "sim/cli/notes.h"

#include <gtest/gtest.h>

namespace stallcast::cli {
namespace {

const Screen kWide{.width = 0};

TEST(NoteListTest, NotesThatDifferInNumbersAreARange) {
  NoteList notes;
  notes.Add("extrapolated: 15.2 % of ops on h200", "freekv");
  notes.Add("extrapolated: 9.1 % of ops on h200", "quest");
  notes.Add("extrapolated: 46 % of ops on h200", "full");
  EXPECT_EQ(notes.Render({"freekv", "quest", "full"}, kWide),
            "- extrapolated: 9.1 to 46 % of ops on h200\n");
}

TEST(NoteListTest, NumbersInNamesAreWords) {
  NoteList notes;
  notes.Add("derived: a100-40gb", "a");
  notes.Add("derived: a100-80gb", "b");
  EXPECT_EQ(notes.Render({"a", "b"}, kWide),
            "- derived: a100-40gb (a)\n- derived: a100-80gb (b)\n");
}

TEST(NoteListTest, SaysWhoseTheyAreTheShortWay) {
  NoteList notes;
  for (const char* method : {"a", "b", "c"}) notes.Add("projected", method);
  notes.Add("rare", "d");
  EXPECT_EQ(notes.Render({"a", "b", "c", "d"}, kWide), "- projected (all but d)\n- rare (d)\n");
}

TEST(NoteListTest, ThousandsAndFullStopsAreReadAsPeopleWriteThem) {
  NoteList notes;
  notes.Add("context 8,192.", "a");
  notes.Add("context 131,072.", "a");
  EXPECT_EQ(notes.Render({"a"}, kWide), "- context 8,192 to 131,072.\n");
}

}  // namespace
}  // namespace stallcast::cli
