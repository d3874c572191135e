#include "traces/common/shipped.h"

#include <utility>

namespace stallcast {
namespace fs = std::filesystem;
namespace {

fs::path FindRoot() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed =
      (program.parent_path() / STALLCAST_DATA_FROM_PROGRAM).lexically_normal();
  return !error && fs::is_directory(installed, error) ? installed : fs::path(STALLCAST_SOURCE_DIR);
}

fs::path& Root() {
  static fs::path root = FindRoot();
  return root;
}

}  // namespace

fs::path Shipped(std::string_view path) { return Root() / path; }

void ShipFrom(fs::path root) { Root() = std::move(root); }

}  // namespace stallcast
