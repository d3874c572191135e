// Who issues a plan's ops.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace stallcast::plan {

enum class Host : uint8_t {
  kCpp,      ///< plain CUDA calls
  kPyTorch,  ///< eager PyTorch: operators (models/plan/operators.h)
  kGraph,    ///< CUDA graphs, as few a step as its host work and its copies allow
};
/// As the command line has them, in order.
inline constexpr std::array<std::string_view, 3> kHostNames = {"cpp", "pytorch", "graph"};
constexpr std::string_view Name(Host host) { return kHostNames[static_cast<size_t>(host)]; }
/// Unknown: usage Error, in which `where` is the place.
Host HostNamed(std::string_view name, std::string_view where);

}  // namespace stallcast::plan
