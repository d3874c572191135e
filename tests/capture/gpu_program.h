// Calls of the `stallcast-gpu` command.
#pragma once

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace stallcast::capture::testing {

struct Result {
  int status = 0;
  std::string output;  // of both streams
};

inline Result Call(const std::string& arguments) {
  Result result;
  FILE* pipe = popen((STALLCAST_GPU_PROGRAM " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen"};
  std::array<char, 512> part;
  while (fgets(part.data(), part.size(), pipe)) result.output += part.data();
  result.status = WEXITSTATUS(pclose(pipe));
  return result;
}

/// One line that names `what` and holds a remedy.
inline void ExpectLine(const Result& result, int status, const std::string& what) {
  EXPECT_EQ(result.status, status) << result.output;
  EXPECT_THAT(result.output, ::testing::HasSubstr(what));
  EXPECT_THAT(result.output, ::testing::HasSubstr("; "));
  EXPECT_EQ(result.output.find('\n'), result.output.size() - 1) << result.output;
}

}  // namespace stallcast::capture::testing
