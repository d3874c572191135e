// The files are as Linux 6.1 writes them.
#include "kernels/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

namespace stallcast::kernels {
namespace {

namespace fs = std::filesystem;

class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "proc");
    fs::create_directories(root_ / "sys/fs/cgroup");
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const char* path, const char* text) const { std::ofstream(root_ / path) << text; }

  fs::path root_ = fs::temp_directory_path() / ("stallcast_memory_" + std::to_string(getpid()));
};

constexpr char kMeminfo[] =
    "MemTotal:       24684096 kB\n"
    "MemFree:         1000000 kB\n"
    "MemAvailable:   22447332 kB\n"
    "HugePages_Total:       0\n";

TEST_F(HostMemory, CountsWhatThePageCacheWouldGiveUp) {
  Write("proc/meminfo", kMeminfo);
  EXPECT_EQ(FreeHostBytes(root_), int64_t{22447332} * 1024);
  Write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(FreeHostBytes(root_), int64_t{22447332} * 1024);
}

TEST_F(HostMemory, IsAtMostWhatTheControlGroupLeaves) {
  Write("proc/meminfo", kMeminfo);
  Write("sys/fs/cgroup/memory.max", "8589934592\n");
  Write("sys/fs/cgroup/memory.stat", "anon 3221225472\nfile 4294967296\nkernel 1048576\n");
  EXPECT_EQ(FreeHostBytes(root_), int64_t{5} << 30);
  Write("sys/fs/cgroup/memory.stat", "anon 9000000000\n");
  EXPECT_EQ(FreeHostBytes(root_), 0);
}

TEST_F(HostMemory, WhereNothingSaysSoThereIsNoLimit) {
  EXPECT_EQ(FreeHostBytes(root_), std::numeric_limits<int64_t>::max());
}

TEST_F(HostMemory, OfThisMachineIsLessThanItHas) {
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  EXPECT_GT(FreeHostBytes(), 0);
  EXPECT_LT(FreeHostBytes(), all);
}

}  // namespace
}  // namespace stallcast::kernels
