// The real traces that ship with the project, and those of measured runs.
#pragma once

#include <algorithm>
#include <filesystem>
#include <vector>

namespace stallcast::methods {

/// Paths of traces/samples/*.kvt, sorted; none where the samples were left out.
inline std::vector<std::filesystem::path> Samples() {
  const std::filesystem::path folder =
      std::filesystem::path(STALLCAST_SOURCE_DIR) / "traces" / "samples";
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".kvt") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Long input: a prompt of 8,192 tokens, three layers of a real model.
inline const std::filesystem::path kRealTrace =
    std::filesystem::path(STALLCAST_SOURCE_DIR) / "traces" / "samples" / "qwen-8k.kvt";

/// The traces that measured runs were made on.
inline const std::filesystem::path kMeasuredTraces =
    std::filesystem::path(STALLCAST_SOURCE_DIR) / "capture" / "results" / "traces";

}  // namespace stallcast::methods
