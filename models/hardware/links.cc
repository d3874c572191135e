#include "models/hardware/links.h"

#include <fmt/format.h>

#include <string>

#include "traces/common/error.h"

namespace stallcast::hardware {

LinkRates LinkNamed(std::string_view name, std::string_view where) {
  if (name == "c2c") return {346e9, 295e9};
  constexpr double kSixteenLanes[] = {12.8e9, 25.5e9, 55e9, 106e9};  // PCIe 3 to 6
  constexpr std::string_view kStart = "pcie";
  if (name.starts_with(kStart) && name.size() > kStart.size() + 2 &&
      name[kStart.size() + 1] == 'x') {
    const int generation = name[kStart.size()] - '0';
    for (const int lanes : {1, 2, 4, 8, 16}) {
      if (generation < 3 || generation > 6) break;
      if (name.substr(kStart.size() + 2) != std::to_string(lanes)) continue;
      const double rate = kSixteenLanes[generation - 3] * lanes / 16;
      return {rate, rate};
    }
  }
  throw UsageError(fmt::format("there is no link '{}'", name), std::string(where),
                   "give pcie3x16 to pcie6x16, with 1, 2, 4, 8 or 16 lanes, or c2c");
}

}  // namespace stallcast::hardware
