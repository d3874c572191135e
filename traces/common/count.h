// Whole numbers as people write them: "32768", "32K" (of 1024), "1M" (of 1024 x 1024).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stallcast {

/// None where `text` is anything else or does not fit. Decimal, whatever it begins with: "010" is
/// ten.
std::optional<int64_t> ParseCount(std::string_view text);

}  // namespace stallcast
