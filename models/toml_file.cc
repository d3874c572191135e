#include "models/toml_file.h"

#include <fmt/format.h>

#include <string>
#include <system_error>

#include "traces/common/error.h"

namespace stallcast {
namespace {

constexpr uintmax_t kLargestFile = 1 << 20;

}  // namespace

toml::table ReadToml(const std::filesystem::path& path, std::string_view what) {
  const std::string where = path.string();
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) {
    throw Error(fmt::format("cannot read the {}: {}", what, error.message()), where,
                "check the path");
  }
  if (size > kLargestFile) {
    throw Error(fmt::format("too large for a {}", what), where, "is this the right file?");
  }
  try {
    return toml::parse_file(where);
  } catch (const toml::parse_error& problem) {
    throw Error(fmt::format("not TOML: {}", problem.description()),
                fmt::format("{}:{}", where, problem.source().begin.line), "correct the line");
  }
}

}  // namespace stallcast
