// What commands of `stallcast-gpu` that need a device say without one.
#include <gtest/gtest.h>

#include "tests/capture/gpu_program.h"

namespace stallcast::capture {
namespace {

using testing::Call;
using testing::ExpectLine;
using testing::Result;

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
  const std::string trace = STALLCAST_SOURCE_DIR "/traces/samples/qwen-8k.kvt";
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

TEST_F(GpuCommands, AGridIsCheckedBeforeADeviceIsWanted) {
  const std::string run =
      "run " STALLCAST_SOURCE_DIR "/traces/samples/qwen-8k.kvt --method freekv -g ";
  ExpectLine(Call(run + "recal=staged"), 2, "did you mean 'recall'");
  ExpectLine(Call(run + "recall=staged,fast"), 2, "no choice `fast`");
  ExpectLine(Call(run + "recall"), 2, "is not an axis");
  ExpectLine(Call(run + "batch=1 -p recal=staged"), 2, "did you mean 'recall'");
  ExpectLine(Call(run + "recall=staged,zero-copy -g batch=1,4"), 1, "cuda");
}

TEST(GpuBench, TimesZeroCopyReads) {
  const Result result = Call("bench --filter zero_copy_gather");
  if (result.status == 1 && result.output.find("cuda") != std::string::npos) {
    GTEST_SKIP() << "no CUDA device";
  }
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, ::testing::HasSubstr("16 blocks"));
}

}  // namespace
}  // namespace stallcast::capture
