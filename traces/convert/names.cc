#include "traces/convert/names.h"

namespace stallcast::traces::convert {
namespace {

template <typename Value>
std::optional<Value> Named(std::string_view name, Value last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (Name(static_cast<Value>(i)) == name) return static_cast<Value>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Role> RoleNamed(std::string_view name) {
  return Named(name, static_cast<Role>(kRoles - 1));
}

std::optional<LaneKind> LaneKindNamed(std::string_view name) {
  return Named(name, LaneKind::kCopyEngine);
}

std::optional<Timeline::Origin> OriginNamed(std::string_view name) {
  return Named(name, Timeline::Origin::kMeasured);
}

}  // namespace stallcast::traces::convert
