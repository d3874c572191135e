// Memory of the host that this process can still take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace stallcast::kernels {

/// Bytes that the process can allocate and touch without being killed. This is the memory that
/// Linux calls available, limited by the process's control group (cgroup v2). The largest number if
/// neither is known. `root` holds /proc and /sys.
int64_t FreeHostBytes(const std::filesystem::path& root = "/");

}  // namespace stallcast::kernels
