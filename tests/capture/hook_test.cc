// Runs the tests of capture/python where Python has torch and transformers ($STALLCAST_PYTHON, else
// python3); with $STALLCAST_TEST_MODEL, a folder of a real model, on that too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

std::string Python() {
  const char* chosen = std::getenv("STALLCAST_PYTHON");
  return chosen ? chosen : "python3";
}

int RunPython(const std::string& script, const std::string& arguments = "") {
  const std::string command = "STALLCAST_PROGRAM='" STALLCAST_BINARY_DIR
                              "/bin/stallcast' STALLCAST_CAPTURE_LIBRARY='" STALLCAST_BINARY_DIR
                              "/lib/capture/libstallcast_capture.so' " +
                              Python() + " '" STALLCAST_SOURCE_DIR "/tests/capture/" + script +
                              "' " + arguments;
  return std::system(command.c_str());
}

class Hook : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system((Python() + " -c 'import torch, transformers' 2>/dev/null").c_str()) != 0) {
      GTEST_SKIP() << Python() << " has no torch and transformers; point STALLCAST_PYTHON at one";
    }
  }
};

TEST_F(Hook, RecordsWhatTheModelComputes) {
  const char* model = std::getenv("STALLCAST_TEST_MODEL");
  EXPECT_EQ(RunPython("hook_test.py", model ? std::string("'").append(model).append("'") : ""), 0);
}

TEST_F(Hook, KnowsWhatArchitecturesDo) { EXPECT_EQ(RunPython("architectures_test.py"), 0); }

// What it needs of torch it skips itself.
TEST(HostCosts, AreASectionOfAProfile) { EXPECT_EQ(RunPython("host_costs_test.py"), 0); }

}  // namespace
