#include "sim/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "models/llm/config_json.h"
#include "models/methods/method.h"
#include "traces/common/error.h"
#include "traces/common/nearest.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {
namespace {

// Weights of the smallest model that somebody runs; smaller ones are made to test programs with.
constexpr Bytes kLeastWeights = 200'000'000;

// Null where the method has no such parameter.
const methods::ParamSpec* FindParameter(std::string_view method, std::string_view parameter) {
  const std::vector<methods::ParamSpec>& specs = methods::MakeMethod(method, {}).info->params;
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const auto& spec) { return spec.name == parameter; });
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const methods::MethodInfo& info : methods::Methods()) {
    names.push_back(info.name);
    for (const auto& [preset, values] : info.presets) names.push_back(preset);
  }
  return names;
}

bool HasParameter(std::string_view method, std::string_view parameter) {
  return FindParameter(method, parameter) != nullptr;
}

void CheckParameter(std::string_view method, std::string_view parameter, std::string_view value) {
  using Type = methods::ParamSpec::Type;
  const methods::ParamSpec& spec = *FindParameter(method, parameter);
  switch (spec.type) {
    case Type::kInteger:
    case Type::kReal:
      methods::ParseNumber(spec, method, value);
      break;
    case Type::kFlag:
      methods::ParseFlag(spec, method, value);
      break;
    case Type::kChoice:
      methods::ParseChoice(spec, method, value);
      break;
    case Type::kText:
      methods::ParseText(spec, method, value);
      break;
  }
}

void CheckName(std::string_view what, std::string_view name, const std::vector<std::string>& known,
               std::string_view where) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::vector<std::string_view> views(known.begin(), known.end());
  throw UsageError(fmt::format("there is no {} '{}'", what, name), std::string(where),
                   Suggestion(name, views));
}

std::string InUsualCase(const std::string& name, const std::vector<std::string>& known) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  const auto found = std::find_if(known.begin(), known.end(), [&](const std::string& each) {
    return std::equal(each.begin(), each.end(), name.begin(), name.end(), same);
  });
  return found == known.end() ? name : *found;
}

std::string WhyNotItsModel(const traces::proto::TraceInfo& trace) {
  const std::string& name = trace.model().name();
  const std::vector<std::string> known = llm::ModelNames();
  if (std::find(known.begin(), known.end(), name) != known.end()) return "";
  if (trace.synthetic()) return fmt::format("the trace's model, {}, is made up", name);
  Bytes weights = 0;
  try {
    weights = llm::FromTrace(trace.model()).WeightBytes();
  } catch (const Error& error) {
    return fmt::format("the trace does not tell its model: {}", error.problem());
  }
  if (weights >= kLeastWeights) return "";
  return fmt::format("the trace's model, {}, is a toy: {} MB of weights", name,
                     weights / 1'000'000);
}

void CheckModel(std::string_view name, std::string_view where) {
  if (llm::IsConfigJson(name)) {
    llm::ReadConfigJson(name);
  } else {
    CheckName("model", name, llm::ModelNames(), where);
  }
}

}  // namespace stallcast::sim
