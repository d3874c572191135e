// The traces that ship with Stallcast, by name from any folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace stallcast::traces {

struct Sample {
  std::string_view name;     ///< after "sample:"
  std::string_view file;     ///< in SampleFolder()
  std::string_view summary;  ///< one line
};

/// All that ship.
const std::vector<Sample>& Samples();

/// Where the shipped traces lie (traces/common/shipped.h).
std::filesystem::path SampleFolder();

/// The file that `trace` stands for: a shipped trace for `sample:NAME`, else `trace` itself.
/// Throws a usage Error that lists the names for an unknown one, an Error where the file is
/// missing.
std::filesystem::path TracePath(const std::string& trace);

}  // namespace stallcast::traces
