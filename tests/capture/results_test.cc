// Runs results_test.py, where there is Python: what capture/results shows is what was measured.
#include <gtest/gtest.h>

#include <cstdlib>

namespace {

TEST(Results, PagesSayWhatWasMeasuredAndHow) {
  if (std::system("python3 -c 'import csv' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
  EXPECT_EQ(std::system("python3 '" STALLCAST_SOURCE_DIR "/tests/capture/results_test.py'"), 0);
}

}  // namespace
