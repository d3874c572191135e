// What is written to a file, for tests that look at the bytes.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "tests/scratch_folder.h"

namespace stallcast::traces {

/// What `write` writes to the path that it is given.
inline std::string Written(const std::function<void(const std::filesystem::path&)>& write) {
  const ScratchFolder folder;
  const std::filesystem::path path = folder / "written";
  write(path);
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

}  // namespace stallcast::traces
