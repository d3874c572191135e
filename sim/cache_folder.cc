#include "sim/cache_folder.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <system_error>

#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::sim {

namespace fs = std::filesystem;

namespace {

// Empty where there is none.
fs::path UsersFolder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) {
    return fs::path(xdg) / "stallcast";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".cache" / "stallcast";
  }
  return {};
}

std::string FirstWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

std::vector<fs::path> CacheFolders(const fs::path& folder) {
  constexpr const char* kName = ".stallcast";
  std::vector<fs::path> folders{folder.filename() == kName ? folder : folder / kName};
  if (const fs::path users = UsersFolder(); !users.empty()) folders.push_back(users);
  return folders;
}

std::string OwnSecret() {
  constexpr const char* kName = "secret";
  const fs::path folder = UsersFolder();
  if (folder.empty()) return "";
  if (std::string known = FirstWord(folder / kName); !known.empty()) return known;
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  try {
    // Programs that begin at once agree: a link is not made where there is one.
    WriteWholeIf(folder / kName, [&](const fs::path& part) {
      std::random_device random;
      std::ofstream file(part);
      fs::permissions(part, fs::perms::owner_read | fs::perms::owner_write);
      for (int i = 0; i < 4; ++i) file << fmt::format("{:08x}", random());
      file.close();
      fs::create_hard_link(part, folder / kName, ignored);
      return false;
    });
  } catch (const Error&) {
    return "";
  }
  return FirstWord(folder / kName);
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
