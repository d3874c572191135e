// What the reader of profile files shares with Check() and Set().
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/hardware/profile.h"
#include "traces/common/quantity.h"

namespace stallcast::hardware {

/// What is wrong with `value` of the field `path`, or empty.
std::string OutOfRange(std::string_view path, Dimension dimension, double value);

/// Sets one value and scales those that go with it, as Set() does.
void SetField(Profile& profile, const ProfileField& field, double value);

/// The op kinds whose fit a profile may leave out: those that plan::CostedAs() another.
std::span<const std::string_view> OptionalKernelKinds();

}  // namespace stallcast::hardware
