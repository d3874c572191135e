// `stallcast-gpu record` around programs that need no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/capture/gpu_program.h"
#include "tests/capture/recording.h"

namespace stallcast::capture {
namespace {

using testing::Call;
using testing::ExpectLine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Result;
using testing::ScratchFile;

TEST(RecordCommand, PassesOnHowTheProgramEnds) {
  const ScratchFile file;
  const std::string record = "record -o " + file.path() + " -- ";
  EXPECT_EQ(Call(record + "sh -c 'exit 7'").status, 7);
  EXPECT_EQ(Call(record + "sh -c 'kill -TERM $$'").status, 128 + 15);
  EXPECT_THAT(Call(record + "sh -c 'exit 7'").output, IsEmpty());
}

TEST(RecordCommand, ArgumentsOfTheProgramAreItsOwn) {
  const ScratchFile file;
  const Result result =
      Call("record -o " + file.path() + " -- sh -c 'echo \"$@\"; exit 3' sh --out x -h --version");
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "--out x -h --version\n");
}

TEST(RecordCommand, TheProgramSeesTheInjectedLibraryAndTheFile) {
  const ScratchFile file;
  const Result result =
      Call("record -o " + file.path() +
           " -- sh -c 'echo $STALLCAST_RECORD; ls $CUDA_INJECTION64_PATH; exit 3'");
  EXPECT_THAT(result.output, HasSubstr(file.path() + "\n"));
  EXPECT_THAT(result.output, HasSubstr("libstallcast_inject.so\n"));
}

TEST(RecordCommand, AProgramWithoutCudaRecordsNothingAndAnOldFileGoes) {
  const ScratchFile file;
  std::ofstream(file.path()) << "of an earlier run";
  ExpectLine(Call("record -o " + file.path() + " -- true"), 1, "nothing was recorded");
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

TEST(RecordCommand, OverheadIsPrinted) {
  const ScratchFile file;
  const Result result =
      Call("record --measure-overhead -o " + file.path() + " -- sh -c 'echo ran'");
  EXPECT_THAT(result.output, HasSubstr("ran\n"));
  EXPECT_THAT(result.output, HasSubstr(" s recorded, "));
  ExpectLine(Call("record --measure-overhead -o " + file.path() + " -- false"), 1,
             "without recording");
}

TEST(RecordCommand, WrongUseIsOneLine) {
  ExpectLine(Call("record"), 2, "program is required");
  ExpectLine(Call("record --no-such-option -- true"), 2, "--no-such-option");
  ExpectLine(Call("recrod -- true"), 2, "recrod");
  ExpectLine(Call("record -o /no/such/folder/x.kvt -- true"), 1, "no such folder");
  ExpectLine(Call("record -o /tmp/never.kvt -- /no/such/program"), 127, "No such file");
}

}  // namespace
}  // namespace stallcast::capture
