// What is written to a file, for tests that look at the bytes.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

namespace stallcast::traces {

/// What `write` writes to the path that it is given.
inline std::string Written(const std::function<void(const std::filesystem::path&)>& write) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("stallcast_convert_" + std::to_string(getpid()));
  write(path);
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  std::filesystem::remove(path);
  return content.str();
}

}  // namespace stallcast::traces
