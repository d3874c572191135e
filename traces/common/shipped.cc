#include "traces/common/shipped.h"

namespace stallcast {
namespace fs = std::filesystem;
namespace {

fs::path Root() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed =
      (program.parent_path() / STALLCAST_DATA_FROM_PROGRAM).lexically_normal();
  return !error && fs::is_directory(installed, error) ? installed : fs::path(STALLCAST_SOURCE_DIR);
}

}  // namespace

fs::path Shipped(std::string_view path) {
  static const fs::path root = Root();
  return root / path;
}

}  // namespace stallcast
