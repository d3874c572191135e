#include "traces/common/count.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace stallcast {

std::optional<int64_t> ParseCount(std::string_view text) {
  int64_t scale = 1;
  if (text.ends_with('K') || text.ends_with('k')) scale = 1024;
  if (text.ends_with('M')) scale = int64_t{1024} * 1024;
  if (scale > 1) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const int64_t most = std::numeric_limits<int64_t>::max() / scale;
  if (value > most || value < -most) return std::nullopt;
  return value * scale;
}

}  // namespace stallcast
