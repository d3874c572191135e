#include "sim/cache_folder.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <cstdlib>
#include <system_error>

#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::sim {

namespace fs = std::filesystem;

std::vector<fs::path> CacheFolders(const fs::path& folder) {
  constexpr const char* kName = ".stallcast";
  std::vector<fs::path> folders{folder.filename() == kName ? folder : folder / kName};
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) {
    folders.push_back(fs::path(xdg) / "stallcast");
  } else if (const char* home = std::getenv("HOME"); home && *home) {
    folders.push_back(fs::path(home) / ".cache" / "stallcast");
  }
  return folders;
}

bool WriteCached(const fs::path& folder, const std::string& name,
                 const std::function<void(const fs::path&)>& write) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  try {
    WriteWhole(folder / name, write);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::string HashOf(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace stallcast::sim
