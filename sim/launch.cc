#include "sim/launch.h"

#include <cstdlib>
#include <utility>

#include "traces/common/count.h"

namespace stallcast::sim {

Launch LaunchOf() {
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank_name, size_name] : kVariables) {
    const char *rank = std::getenv(rank_name), *size = std::getenv(size_name);
    if (!rank || !size) continue;
    const auto of_rank = ParseCount(rank), of_size = ParseCount(size);
    if (of_rank && of_size && *of_rank < *of_size) {
      return {static_cast<int>(*of_rank), static_cast<int>(*of_size)};
    }
  }
  return {};
}

}  // namespace stallcast::sim
