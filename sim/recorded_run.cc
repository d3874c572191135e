#include "sim/recorded_run.h"

#include <fmt/format.h>

#include <charconv>

#include "models/methods/method.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// Of what a run sets in a method, by name, and in a machine, numbered: a later value may build on
// an earlier one.
constexpr std::string_view kParam = "param.", kSet = "set.", kModelOption = "model.";

std::string SetKey(size_t index) { return fmt::format("{}{}", kSet, index); }

Error Silent(const std::string& file, const std::string& what) {
  return {fmt::format("the recording does not say {}", what), file,
          "open the trace that was run, and choose method and values among the what-ifs"};
}

}  // namespace

void SetRun(const RecordedRun& run, traces::proto::TraceInfo* info) {
  const PredictRequest& request = run.request;
  auto& out = *info->mutable_parameters();
  out["trace"] = run.trace;
  out["method"] = request.method;
  out["model"] = request.model;
  out["machine"] = request.machine;
  out["context"] = std::to_string(request.context);
  out["batch"] = std::to_string(request.batch);
  out["steps"] = std::to_string(request.steps);
  out["tensor_parallel"] = std::to_string(request.tensor_parallel);
  out["graph"] = fmt::format("{:d}", request.host == plan::Host::kGraph);
  out["repeat_heads"] = fmt::format("{:d}", request.repeat_heads);
  for (const auto& [name, value] : request.params) out[fmt::format("{}{}", kParam, name)] = value;
  for (const auto& [name, value] : request.model_options) {
    out[fmt::format("{}{}", kModelOption, name)] = value;
  }
  for (size_t i = 0; i < request.machine_overrides.size(); ++i) {
    const auto& [path, value] = request.machine_overrides[i];
    out[SetKey(i)] = fmt::format("{}={}", path, value);
  }
}

RecordedRun RunOf(const traces::proto::TraceInfo& info, const std::string& file) {
  const auto& said = info.parameters();
  const auto text = [&](const std::string& key) {
    const auto found = said.find(key);
    if (found == said.end())
      throw Silent(file, fmt::format("which run it is of: it holds no {}", key));
    return found->second;
  };
  const auto count = [&](const std::string& key, auto& value) {
    const std::string digits = text(key);
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end || value < 0) {
      throw Silent(file, fmt::format("{} as a count: '{}'", key, digits));
    }
  };
  RecordedRun run;
  run.request.method = text("method");
  run.trace = text("trace");
  run.request.model = text("model");
  run.request.machine = text("machine");
  count("context", run.request.context);
  count("batch", run.request.batch);
  count("steps", run.request.steps);
  count("tensor_parallel", run.request.tensor_parallel);
  // What a GPU ran is our own program, in C++.
  run.request.host = text("graph") == "1" ? plan::Host::kGraph : plan::Host::kCpp;
  for (const auto& [key, value] : said) {
    if (key.starts_with(kParam)) run.request.params[key.substr(kParam.size())] = value;
    if (key.starts_with(kModelOption)) {
      run.request.model_options[key.substr(kModelOption.size())] = value;
    }
  }
  // A recording that does not say had its layers' heads repeated, and the methods' own defaults.
  run.request.repeat_heads = !said.contains("repeat_heads") || said.at("repeat_heads") == "1";
  if (!said.contains("repeat_heads")) {
    const methods::NamedMethod method = methods::MakeMethod(run.request.method, {});
    for (const methods::KindDefault& by_kind : method.info->by_kind) {
      run.request.params.emplace(by_kind.name, method.method->Params(false).at(by_kind.name));
    }
  }
  for (size_t i = 0; said.contains(SetKey(i)); ++i) {
    const std::string pair = text(SetKey(i));
    const size_t equals = pair.find('=');
    if (equals == std::string::npos) throw Silent(file, fmt::format("which value is '{}'", pair));
    run.request.machine_overrides.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  return run;
}

}  // namespace stallcast::sim
