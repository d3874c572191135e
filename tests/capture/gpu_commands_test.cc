// What commands of `stallcast-gpu` that need a device say without one.
#include <gtest/gtest.h>

#include "tests/capture/gpu_program.h"

namespace stallcast::capture {
namespace {

using testing::Call;
using testing::ExpectLine;

class GpuCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Call("calibrate --help").status != 0) {
      GTEST_SKIP() << "built without the CUDA toolkit";
    }
    ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
  }
  void TearDown() override { unsetenv("CUDA_VISIBLE_DEVICES"); }
};

TEST_F(GpuCommands, WithoutADeviceThereIsOneLine) {
  const std::string trace = STALLCAST_SOURCE_DIR "/traces/samples/code-8k.kvt";
  for (const std::string& command : {std::string("calibrate -o /dev/null"), std::string("bench"),
                                     "run " + trace, "run --prefill " + trace}) {
    SCOPED_TRACE(command);
    ExpectLine(Call(command), 1, "cuda");
  }
}

TEST_F(GpuCommands, NamesThatAreNoneAreListed) {
  ExpectLine(Call("bench --filter atention"), 2, "decode_attention");
  ExpectLine(Call("bench --model lama-3.1-8b"), 2, "llama-3.1-8b");
}

}  // namespace
}  // namespace stallcast::capture
