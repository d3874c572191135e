#include "traces/common/factor.h"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "traces/common/error.h"

namespace stallcast {

std::optional<double> ParseFactor(std::string_view text) {
  if (!text.ends_with('x')) return std::nullopt;
  text.remove_suffix(1);
  double factor = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !std::isfinite(factor) || factor <= 0) return std::nullopt;
  return factor;
}

double ParseQuantityOrFactor(std::string_view text, Dimension want, double current,
                             std::string_view where) {
  const std::optional<double> factor = ParseFactor(text);
  if (!factor) return ParseQuantity(text, want, where);
  const double value = current * *factor;
  if (!std::isfinite(value)) {
    throw UsageError("'" + std::string(text) + "' is out of range", std::string(where),
                     "give a smaller factor");
  }
  return value;
}

}  // namespace stallcast
