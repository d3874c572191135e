#include "traces/common/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
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

TEST(WholeFile, ANameMayBeAsLongAsTheSystemTakes) {
  const ScratchFolder folder;
  const fs::path path = folder / std::string(255, 'n');
  WriteWhole(path, [](const fs::path& part) { Write(part, "text"); });
  EXPECT_EQ(Text(path), "text");
}

TEST(WholeFile, OldPartsOfProgramsThatAreGoneGo) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    WriteWhole(folder / "a.txt", [](const fs::path& part) {
      Write(part, "half");
      ::raise(SIGKILL);
    });
  }
  ::waitpid(child, nullptr, 0);
  const auto write = [&] {
    WriteWhole(folder / "b.txt", [](const fs::path& part) { Write(part, "whole"); });
  };
  write();
  EXPECT_EQ(Files(folder), 2) << "a part that may be another computer's was taken";
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  write();
  EXPECT_EQ(Files(folder), 1);
}

TEST(WholeFile, AnInterruptedWriterLeavesNothing) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    RemovePartsOnSignals();
    WriteWhole(folder / "a.txt", [](const fs::path& part) {
      Write(part, "half");
      ::raise(SIGINT);
    });
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  EXPECT_EQ(Files(folder), 0);
}

}  // namespace
}  // namespace stallcast
