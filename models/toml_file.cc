#include "models/toml_file.h"

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <system_error>

#include "traces/common/error.h"

namespace stallcast {
namespace {

constexpr uintmax_t kLargestFile = 1 << 20;

}  // namespace

std::string ReadTomlText(const std::filesystem::path& path, std::string_view what) {
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
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw Error(fmt::format("cannot read the {}", what), where, "check its permissions");
  }
  return text;
}

toml::table ParseToml(std::string_view text, const std::filesystem::path& path) {
  const std::string where = path.string();
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& problem) {
    throw Error(fmt::format("not TOML: {}", problem.description()),
                fmt::format("{}:{}", where, problem.source().begin.line), "correct the line");
  }
}

toml::table ReadToml(const std::filesystem::path& path, std::string_view what) {
  return ParseToml(ReadTomlText(path, what), path);
}

}  // namespace stallcast
