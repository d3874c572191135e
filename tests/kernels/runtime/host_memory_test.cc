// The files are as Linux 6.1 writes them.
#include "kernels/runtime/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/scratch_folder.h"

namespace stallcast::kernels {
namespace {

namespace fs = std::filesystem;

class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root() / "proc");
    fs::create_directories(root() / "sys/fs/cgroup");
  }
  void Write(const char* path, const char* text) const { std::ofstream(root() / path) << text; }

  const fs::path& root() const { return folder_.path(); }

  ScratchFolder folder_;
};

constexpr char kMeminfo[] =
    "MemTotal:       24684096 kB\n"
    "MemFree:         1000000 kB\n"
    "MemAvailable:   22447332 kB\n"
    "HugePages_Total:       0\n";

TEST_F(HostMemory, CountsWhatThePageCacheWouldGiveUp) {
  Write("proc/meminfo", kMeminfo);
  EXPECT_EQ(FreeHostBytes(root()), int64_t{22447332} * 1024);
  Write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(FreeHostBytes(root()), int64_t{22447332} * 1024);
}

TEST_F(HostMemory, IsAtMostWhatTheControlGroupLeaves) {
  Write("proc/meminfo", kMeminfo);
  Write("sys/fs/cgroup/memory.max", "8589934592\n");
  Write("sys/fs/cgroup/memory.stat", "anon 3221225472\nfile 4294967296\nkernel 1048576\n");
  EXPECT_EQ(FreeHostBytes(root()), int64_t{5} << 30);
  Write("sys/fs/cgroup/memory.stat", "anon 9000000000\n");
  EXPECT_EQ(FreeHostBytes(root()), 0);
}

TEST_F(HostMemory, WhereNothingSaysSoThereIsNoLimit) {
  EXPECT_EQ(FreeHostBytes(root()), std::numeric_limits<int64_t>::max());
}

TEST_F(HostMemory, OfThisMachineIsLessThanItHas) {
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_GT(FreeHostBytes(), 0);
  EXPECT_LT(FreeHostBytes(), all);
}

}  // namespace
}  // namespace stallcast::kernels
