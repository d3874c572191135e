#include "sim/cli/count_option.h"

#include <fmt/format.h>

#include <optional>

#include "sim/cli/output.h"
#include "traces/common/count.h"
#include "traces/common/error.h"

namespace stallcast::cli {

int64_t CountGiven(const std::string& text, const std::string& option, int64_t least,
                   int64_t most) {
  const std::optional<int64_t> count = ParseCount(text);
  if (count && *count >= least && *count <= most) return *count;
  throw UsageError(count ? fmt::format("{} is out of range", text)
                         : fmt::format("`{}` is not a whole number", text),
                   option, fmt::format("give {} to {}", Count(least), Count(most)));
}

}  // namespace stallcast::cli
