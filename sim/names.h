// Names that a user types: methods, parameters, and what to say about an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stallcast::traces::proto {
class TraceInfo;
}

namespace stallcast::sim {

/// All names that MakeMethod() knows, presets behind their method.
std::vector<std::string> MethodNames();

/// Whether the method or preset has a parameter of this name.
bool HasParameter(std::string_view method, std::string_view parameter);

/// Checks a value against the parameter's declaration, by itself: a usage Error if it does not
/// parse or is out of range. The method must have the parameter.
void CheckParameter(std::string_view method, std::string_view parameter, std::string_view value);

/// Throws a usage Error, with the nearest of the known names and all of them, unless `name` is
/// known. `what` is the kind of thing, `where` the option.
void CheckName(std::string_view what, std::string_view name, const std::vector<std::string>& known,
               std::string_view where);

/// The one of `known` that is `name` but for capital letters, else `name`.
std::string InUsualCase(const std::string& name, const std::vector<std::string>& known);

/// Why the model that a trace was captured from is none to predict unless asked for: it is a toy,
/// or made up. Empty where it is a model like others.
std::string WhyNotItsModel(const traces::proto::TraceInfo& trace);

/// Throws an Error unless `name` is that of a known model or the path of a readable config.json.
void CheckModel(std::string_view name, std::string_view where);

}  // namespace stallcast::sim
