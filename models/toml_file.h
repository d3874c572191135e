// TOML files of this project: profiles of machines and published experiments.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace stallcast {

/// The text of a file of at most 1 MiB. `what` it should be ("profile") goes into the Error.
std::string ReadTomlText(const std::filesystem::path& path, std::string_view what);
/// Parses the text of a file. The Error names the line of a mistake.
toml::table ParseToml(std::string_view text, const std::filesystem::path& path);
/// Both.
toml::table ReadToml(const std::filesystem::path& path, std::string_view what);

}  // namespace stallcast
