#include "traces/common/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

std::string Text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t Files(const ScratchFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
}

TEST(WholeFile, WhatIsNotWantedLeavesWhatWasThereAndNothingElse) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.txt";
  const auto offer = [&](const std::string& text, bool wanted) {
    WriteWholeIf(path, [&](const fs::path& part) {
      Write(part, text);
      return wanted;
    });
  };
  offer("first", false);
  EXPECT_EQ(Files(folder), 0);
  offer("second", true);
  offer("third", false);
  EXPECT_EQ(Text(path), "second");
  offer("fourth", true);
  EXPECT_EQ(Text(path), "fourth");
  EXPECT_EQ(Files(folder), 1);
}

TEST(WholeFile, WhatFailsLeavesWhatWasThereAndNamesIt) {
  const ScratchFolder folder;
  const fs::path path = folder / "a.txt";
  WriteWhole(path, [](const fs::path& part) { Write(part, "old"); });
  try {
    WriteWhole(path, [](const fs::path& part) {
      Write(part, "half");
      throw Error("is full", part.string(), "make room");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(path.string()));
  }
  EXPECT_EQ(Text(path), "old");
  EXPECT_EQ(Files(folder), 1);
}

}  // namespace
}  // namespace stallcast
