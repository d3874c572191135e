// Runs hook_test.py where Python has torch and transformers ($STALLCAST_PYTHON, else python3); with
// $STALLCAST_TEST_MODEL, a folder of a real model, on that too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

TEST(Hook, RecordsWhatTheModelComputes) {
  const char* chosen = std::getenv("STALLCAST_PYTHON");
  const char* model = std::getenv("STALLCAST_TEST_MODEL");
  const std::string python = chosen ? chosen : "python3";
  if (std::system((python + " -c 'import torch, transformers' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << python << " has no torch and transformers; point STALLCAST_PYTHON at one";
  }
  const std::string command = "STALLCAST_CAPTURE_LIBRARY='" STALLCAST_BINARY_DIR
                              "/lib/capture/libstallcast_capture.so' " +
                              python + " '" STALLCAST_SOURCE_DIR "/tests/capture/hook_test.py' " +
                              (model ? std::string("'") + model + "'" : "");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
