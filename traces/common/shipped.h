// Files that come with the programs: hardware profiles, papers, sample traces.
#pragma once

#include <filesystem>
#include <string_view>

namespace stallcast {

/// Where `path` of the source tree ("models/hardware") lies for the program that runs: in the data
/// folder that was installed with it, which is found from the program's own place, else in the
/// source tree that it was built from. It need not exist.
std::filesystem::path Shipped(std::string_view path);

/// For a library in the program of others: they lie in `root`. To be called before Shipped().
void ShipFrom(std::filesystem::path root);

}  // namespace stallcast
