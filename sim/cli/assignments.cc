#include "sim/cli/assignments.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/hardware/profile.h"
#include "traces/common/error.h"

namespace stallcast::cli {

Assignments Split(const std::vector<std::string>& given, const std::string& option,
                  const std::string& example) {
  Assignments split;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      throw UsageError("`" + text + "` is not name=value", option, "write it as in " + example);
    }
    split.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return split;
}

void RefuseTwice(const Assignments& given, const std::string& option) {
  for (auto later = given.begin(); later != given.end(); ++later) {
    const auto earlier = std::find_if(given.begin(), later,
                                      [&](const auto& each) { return each.first == later->first; });
    if (earlier == later) continue;
    throw UsageError(
        fmt::format("{} is given twice: {} and {}", later->first, earlier->second, later->second),
        option, "leave one out");
  }
}

void AddSet(CLI::App& command, std::vector<std::string>& given, const std::string& group) {
  command
      .add_option("--set", given,
                  "Override a value of the machine, as link.h2d=100GB/s or link.h2d=2x (info "
                  "--machine NAME)")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false)
      ->group(group);
}

Assignments OverridesOf(const std::vector<std::string>& given, const std::string& machine) {
  Assignments overrides = Split(given, "--set", "--set link.h2d=100GB/s");
  hardware::Profile profile = hardware::FindProfile(machine);
  for (const auto& [path, value] : overrides) hardware::Set(profile, path, value);
  RefuseTwice(overrides, "--set");
  return overrides;
}

}  // namespace stallcast::cli
