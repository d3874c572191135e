// A machine of one's own: a profile over another one, from figures that a vendor publishes.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace stallcast::hardware {

/// A figure as a person writes it: "32GiB", "1792GB/s"; empty where it is not given.
struct OwnMachine {
  std::string name, title;
  std::string base;  ///< a profile's name, or the path of its file
  std::string memory, bandwidth, sms, link, flops, host_memory;
  /// What of the published rates is reached: by reads of the memory, by large GEMMs, by prefill
  /// attention.
  double read_share = 0.85, gemm_share = 0.75, prefill_share = 0.6;
};

/// A figure that it needs or may have, for the options of a command.
struct OwnFigure {
  std::string_view option;  ///< "--memory"
  std::string OwnMachine::*member;
  std::string_view unit, example, help;
  bool optional = false;
};
std::span<const OwnFigure> OwnFigures();

/// The profile as text of a TOML file that is to lie in `folder`. One usage Error tells all that is
/// missing or wrong.
std::string OwnProfile(const OwnMachine& machine, const std::filesystem::path& folder);

}  // namespace stallcast::hardware
