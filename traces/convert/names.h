// Names in files, back into what they name.
#pragma once

#include <optional>
#include <string_view>

#include "traces/timeline.h"

namespace stallcast::traces::convert {

std::optional<Role> RoleNamed(std::string_view name);
std::optional<LaneKind> LaneKindNamed(std::string_view name);
std::optional<Timeline::Origin> OriginNamed(std::string_view name);

}  // namespace stallcast::traces::convert
