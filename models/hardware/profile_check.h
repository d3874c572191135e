// The range of a profile's values, shared by its file reader and Check().
#pragma once

#include <string>
#include <string_view>

#include "traces/common/quantity.h"

namespace stallcast::hardware {

/// What is wrong with `value` of the field `path`, or empty.
std::string OutOfRange(std::string_view path, Dimension dimension, double value);

}  // namespace stallcast::hardware
