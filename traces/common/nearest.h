// The known name that a mistyped one most resembles.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stallcast {

/// The entry of `known` with the least edit distance to `name`; empty where none is near.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> known);
/// "did you mean 'link.h2d'? Known: a, b, c"
std::string Suggestion(std::string_view name, std::span<const std::string_view> known);

}  // namespace stallcast
