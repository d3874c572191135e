#include "models/plan/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "traces/common/error.h"

namespace stallcast::plan {

Host HostNamed(std::string_view name, std::string_view where) {
  const auto found = std::ranges::find(kHostNames, name);
  if (found != kHostNames.end()) {
    return static_cast<Host>(std::distance(kHostNames.begin(), found));
  }
  throw UsageError(fmt::format("no host is called '{}'", name), std::string(where),
                   "it is cpp, pytorch or graph");
}

}  // namespace stallcast::plan
