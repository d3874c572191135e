// TOML files of this project: profiles of machines and published experiments.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string_view>

namespace stallcast {

/// Parses a file of at most 1 MiB. `what` it should be ("profile") goes into the Error, which names
/// the line of a mistake.
toml::table ReadToml(const std::filesystem::path& path, std::string_view what);

}  // namespace stallcast
