#include "models/methods/param.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "traces/common/count.h"

namespace stallcast::methods {
namespace {

std::string Where(const ParamSpec& spec, std::string_view method) {
  return fmt::format("{}, parameter {}", method, spec.name);
}

std::string Range(const ParamSpec& spec) {
  return fmt::format("{} to {}{}{}", WriteNumber(spec, spec.min), WriteNumber(spec, spec.max),
                     spec.unit.empty() ? "" : " ", spec.unit);
}

}  // namespace

double ParseNumber(const ParamSpec& spec, std::string_view method, std::string_view text) {
  const bool integer = spec.type == ParamSpec::Type::kInteger;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  bool read = error == std::errc() && stop == end && std::isfinite(value);
  if (integer) {
    // 2K and 1M too; 1e4 as every number.
    const std::optional<int64_t> count = ParseCount(text);
    if (count) value = static_cast<double>(*count);
    read = count || (read && value == std::floor(value));
  }
  if (!read) {
    throw UsageError(
        fmt::format("`{}` is not a {}{}{}", text, integer ? "whole number" : "number",
                    spec.unit.empty() ? "" : " of ", spec.unit),
        Where(spec, method),
        fmt::format("give {}, {}", integer ? "a whole number, as 2048 or 2K" : "a plain number",
                    Range(spec)));
  }
  if (value < spec.min || value > spec.max) {
    throw UsageError(fmt::format("{} is out of range", text), Where(spec, method),
                     fmt::format("give {}", Range(spec)));
  }
  return value;
}

bool ParseFlag(const ParamSpec& spec, std::string_view method, std::string_view text) {
  if (text == "on" || text == "true" || text == "1") return true;
  if (text == "off" || text == "false" || text == "0") return false;
  throw UsageError(fmt::format("`{}` is neither on nor off", text), Where(spec, method),
                   "give on or off");
}

std::string ParseText(const ParamSpec& spec, std::string_view method, std::string_view text) {
  if (!text.empty()) return std::string(text);
  throw UsageError("the text is empty", Where(spec, method),
                   fmt::format("give one, or leave {} out", spec.name));
}

int ParseChoice(const ParamSpec& spec, std::string_view method, std::string_view text) {
  const auto it = std::find(spec.choices.begin(), spec.choices.end(), text);
  if (it == spec.choices.end()) {
    throw UsageError(fmt::format("there is no choice `{}`", text), Where(spec, method),
                     fmt::format("choose one of {}", fmt::join(spec.choices, ", ")));
  }
  return static_cast<int>(it - spec.choices.begin());
}

std::string WriteNumber(const ParamSpec& spec, double value) {
  return spec.type == ParamSpec::Type::kInteger ? fmt::format("{}", static_cast<int64_t>(value))
                                                : fmt::format("{}", value);
}

void CheckNames(const std::vector<ParamSpec>& specs, std::string_view method,
                const ParamValues& values) {
  for (const auto& value : values) {
    const std::string& name = value.first;
    const auto known = [&](const ParamSpec& spec) { return spec.name == name; };
    if (std::any_of(specs.begin(), specs.end(), known)) continue;
    std::vector<std::string> names;
    names.reserve(specs.size());
    for (const ParamSpec& spec : specs) names.push_back(spec.name);
    throw UsageError(fmt::format("there is no parameter `{}`", name), std::string(method),
                     names.empty() ? std::string("it has none")
                                   : fmt::format("choose from {}", fmt::join(names, ", ")));
  }
}

}  // namespace stallcast::methods
