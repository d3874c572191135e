#include "kernels/runtime/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace stallcast::kernels {
namespace {

// The number behind a word of a file of lines "word number".
std::optional<int64_t> NumberOf(const std::filesystem::path& path, const std::string& word) {
  std::ifstream file(path);
  std::string name;
  for (int64_t number = 0; file >> name >> number; file.ignore(1 << 10, '\n')) {
    if (name == word) return number;
  }
  return std::nullopt;
}

}  // namespace

int64_t FreeHostBytes(const std::filesystem::path& root) {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  if (const auto available = NumberOf(root / "proc/meminfo", "MemAvailable:")) {
    bytes = *available * 1024;
  }
  // "max" where there is no limit.
  const std::filesystem::path group = root / "sys/fs/cgroup";
  if (int64_t limit = 0; std::ifstream(group / "memory.max") >> limit) {
    // Of what is used, all but files' pages stays.
    const int64_t stays = NumberOf(group / "memory.stat", "anon").value_or(0);
    bytes = std::min(bytes, std::max<int64_t>(limit - stays, 0));
  }
  return bytes;
}

}  // namespace stallcast::kernels
