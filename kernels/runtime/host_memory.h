// Memory of the host that this process can still take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace stallcast::kernels {

/// Bytes that can be taken without ending the process: what Linux says is available, page cache
/// that it would give up included, and at most what the process's control group (cgroup v2) leaves
/// it. The largest number where nothing says so. `root` is where /proc and /sys are.
int64_t FreeHostBytes(const std::filesystem::path& root = "/");

}  // namespace stallcast::kernels
