// Values given in relation to another: "2x" is twice as much, "0.5x" half.
#pragma once

#include <optional>
#include <string_view>

#include "traces/common/quantity.h"

namespace stallcast {

/// The factor of "2x"; none where `text` is not a number above 0 and an x.
std::optional<double> ParseFactor(std::string_view text);

/// `current` times the factor that `text` is, else the quantity that it is (ParseQuantity()).
double ParseQuantityOrFactor(std::string_view text, Dimension want, double current,
                             std::string_view where);

}  // namespace stallcast
