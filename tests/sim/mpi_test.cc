// `mpirun stallcast sweep`, with the real programs. Skipped where there is no mpirun.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/result_store.h"
#include "tests/scratch_folder.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!STALLCAST_HAS_MPI) GTEST_SKIP() << "built without MPI";
    if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "no mpirun";
    ASSERT_EQ(Run("'" STALLCAST_PROGRAM "' synth t.kvt --heads 4 --kv-heads 2 --head-dim 64 "
                  "--prompt 2K --steps 6 --spread 4"),
              0);
  }

  // In the test's folder, by a shell. What was printed is in the file `out`.
  int Run(const std::string& command) const {
    const int status = std::system(
        fmt::format("cd '{}' && {{ {} ; }} >out 2>&1", folder_.path().string(), command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string Printed() const {
    std::ifstream file(folder_ / "out");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::string Sweep(const std::string& file, const std::string& grid) {
    return fmt::format("'" STALLCAST_PROGRAM
                       "' sweep t.kvt --model trace -o {} --no-prefill "
                       "--steps 2 {}",
                       file, grid);
  }
  static std::string Mpirun(int ranks, const std::string& more = "") {
    return fmt::format("mpirun --allow-run-as-root --oversubscribe --bind-to none -n {} {} ", ranks,
                       more);
  }
  // `command` in the background, and a signal to those of its processes that `which` picks by their
  // environment, once the file holds results.
  std::string Killed(const std::string& command, const std::string& file,
                     const std::string& which) const {
    const std::string job = fmt::format("STALLCAST_TEST_JOB={}", ::getpid());
    return fmt::format(
        "{0} {1} & "
        "until [ -s {2}-wal ]; do sleep 0.02; done; sleep 0.5; "
        "for e in $(grep -slzx {0} /proc/[0-9]*/environ); do "
        "  grep -sqzx {3} $e && kill -9 $(echo $e | cut -d/ -f3); "
        "done; wait $!",
        job, command, file, which);
  }

  // All values by row, but for the time.
  std::vector<std::vector<ResultStore::Value>> Rows(const std::string& file) const {
    ResultStore::Rows rows = ResultStore(folder_ / file, false).Read();
    for (auto& row : rows.rows) row[rows.Column("finished")] = {};
    return rows.rows;
  }

  ScratchFolder folder_;
  const std::string small_ = "-m full,freekv -g budget=64,1280 -g batch=1:8:1 --format csv";
  const std::string large_ = "-m full -g batch=1:50:1 -g context=1024:1103:1 --format csv";
};

TEST_F(Mpi, ASweepOfSeveralRanksIsThatOfOneProcess) {
  const int status = Run(Sweep("one.sqlite", small_));
  EXPECT_EQ(status, 1);  // points failed
  const auto expected = Rows("one.sqlite");
  EXPECT_EQ(expected.size(), 24u);
  for (const int ranks : {2, 3}) {
    const std::string file = fmt::format("{}.sqlite", ranks);
    EXPECT_EQ(Run(Mpirun(ranks) + Sweep(file, small_)), status) << Printed();
    EXPECT_EQ(Rows(file), expected) << ranks;
  }
}

TEST_F(Mpi, AnErrorIsSaidOnce) {
  EXPECT_EQ(Run(Mpirun(3) + Sweep("r.sqlite", "-m freekv -g budgte=1,2")), 2);
  const std::string printed = Printed();
  const size_t first = printed.find("stallcast: ");
  ASSERT_NE(first, std::string::npos) << printed;
  EXPECT_EQ(printed.find("stallcast: ", first + 1), std::string::npos) << printed;
}

TEST_F(Mpi, SurvivesTheLossOfARank) {
  const std::string command = Mpirun(3, "--enable-recovery") + Sweep("lost.sqlite", large_);
  EXPECT_EQ(Run(Killed(command, "lost.sqlite", "OMPI_COMM_WORLD_RANK=1")), 0) << Printed();
  EXPECT_NE(Printed().find("rank 1 is lost"), std::string::npos);
  ASSERT_EQ(Run(Sweep("one.sqlite", large_)), 0);
  EXPECT_EQ(Rows("lost.sqlite"), Rows("one.sqlite"));
}

TEST_F(Mpi, GoesOnAfterAllRanksWereKilled) {
  const std::string command = Mpirun(2) + Sweep("killed.sqlite", large_);
  EXPECT_NE(Run(Killed(command, "killed.sqlite", "OMPI_COMM_WORLD_SIZE=2")), 0);
  const size_t before = Rows("killed.sqlite").size();
  EXPECT_GT(before, 0u);
  EXPECT_LT(before, 4000u);
  EXPECT_EQ(Run(command), 0) << Printed();
  ASSERT_EQ(Run(Sweep("one.sqlite", large_)), 0);
  EXPECT_EQ(Rows("killed.sqlite"), Rows("one.sqlite"));
}

}  // namespace
}  // namespace stallcast::sim
