#include "sim/cli/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "sim/cli/count_option.h"
#include "sim/names.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

constexpr const char* kTraceModel = "trace";  // given to --model

}  // namespace

void RunOptions::AddTo(CLI::App& command, const std::string& method) {
  method_ = method;
  constexpr const char* kMethod = "What to predict";
  command
      .add_option(
          "-m,--method", methods_,
          "Method or variant, several by commas, or all (info --methods; default: " + method + ")")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kMethod);
  command
      .add_option("-p,--param", params_,
                  "Parameter of the methods that have it (info --parameters METHOD)")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false)
      ->group(kMethod);
  command.add_option("--budget", budget_, "Short for -p budget=N")->type_name("N")->group(kMethod);
  AddCount(command, "--steps", request_.steps, "Decode steps (default: the trace's)", 1, 1'000'000)
      ->group(kMethod);
  AddCount(command, "--samples", request_.samples,
           "Repeat with device costs drawn from their spread, for P10/P50/P90", 1, 100'000)
      ->group(kMethod);
  command
      .add_option("--host", host_,
                  "Who issues it: cpp, pytorch (eager) or graph (CUDA graphs); default: cpp, or "
                  "pytorch with --as-run")
      ->type_name("HOST")
      ->group(kMethod);
  command.add_flag("--graph", graph_, "Short for --host graph")->group(kMethod);
  command
      .add_flag("--as-run", request_.as_run,
                "The method's public program as it is written, instead of our own")
      ->group(kMethod);
  command.add_flag("--no-prefill", no_prefill_, "Leave out the prefill")->group(kMethod);

  constexpr const char* kModel = "Model";
  command
      .add_option("--model", request_.model,
                  "Model (info --models), a config.json, or trace: the one that the trace was "
                  "captured from "
                  "(default, unless that is a toy or made up)")
      ->type_name("NAME")
      ->group(kModel);
  AddCount(command, "--tp", request_.tensor_parallel,
           "GPUs that share the model; one is predicted, with its all-reduces", 1, 1024)
      ->group(kModel);
  for (const llm::ModelOption& option : llm::ModelOptions()) {
    command
        .add_option_function<std::string>(
            "--" + std::string(option.name),
            [this, name = std::string(option.name)](const std::string& value) {
              request_.model_options[name] = value;
            },
            option.help)
        ->type_name(std::string(option.values))
        ->group(kModel);
  }
  command
      .add_option("--context", context_,
                  "Tokens before the first step, as 32768, 32K or 1M (default: the trace's)")
      ->type_name("TOKENS")
      ->group(kModel);
  command
      .add_flag("--repeat-heads", request_.repeat_heads,
                "KV heads that the trace lacks are its layer's again, not other layers'")
      ->group(kModel);
  AddCount(command, "--batch", request_.batch, "Sequences decoded together", 1, 1'000'000)
      ->group(kModel);

  constexpr const char* kMachine = "Machine";
  command
      .add_option("--machine", machines_,
                  "Machine or profile.toml, several by commas (info --machines; default: h200)")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kMachine);
  AddSet(command, overrides_, kMachine);

  constexpr const char* kTrace = "Trace";
  command.add_flag("--strict", strict_, "Refuse a damaged trace instead of using what is intact")
      ->group(kTrace);
  command.add_flag("--no-cache", no_cache_, "Replay afresh and store no access log")->group(kTrace);
}

std::vector<std::string> RunOptions::Methods() const {
  std::vector<std::string> asked = methods_;
  if (asked.empty()) asked.push_back(method_);
  std::vector<std::string> known = sim::MethodNames();
  if (std::find(asked.begin(), asked.end(), "all") != asked.end()) return known;
  known.emplace_back("all");
  std::vector<std::string> methods;
  for (const std::string& given : asked) {
    const std::string name = sim::InUsualCase(given, known);
    sim::CheckName("method", name, known, "--method");
    if (std::find(methods.begin(), methods.end(), name) == methods.end()) methods.push_back(name);
  }
  return methods;
}

std::vector<std::string> RunOptions::Machines() const {
  std::vector<std::string> machines;
  for (const std::string& given : machines_) {
    const std::string name = sim::InUsualCase(given, hardware::ProfileNames());
    if (std::find(machines.begin(), machines.end(), name) == machines.end()) {
      machines.push_back(name);
    }
  }
  return machines.empty() ? std::vector<std::string>{"h200"} : machines;
}

Assignments RunOptions::Params() const {
  Assignments params = Split(params_, "--param", "-p budget=2048");
  if (!budget_.empty()) params.emplace_back("budget", budget_);
  RefuseTwice(params, "--param");
  return params;
}

void RunOptions::CheckParams(const std::vector<std::string>& methods) const {
  std::vector<std::string> known;
  for (const std::string& method : methods) {
    for (const methods::ParamSpec& spec : methods::MakeMethod(method, {}).info->params) {
      if (std::find(known.begin(), known.end(), spec.name) == known.end())
        known.push_back(spec.name);
    }
  }
  for (const auto& [name, value] : Params()) {
    // Of several methods one may take what another does not: each says so when it is predicted.
    std::optional<Error> refused;
    bool taken = false;
    if (known.empty()) {
      throw UsageError(fmt::format("there are no parameters of {}", fmt::join(methods, ", ")),
                       "--param",
                       fmt::format("leave out {}={}, or name another --method", name, value));
    }
    sim::CheckName("parameter", name, known, "--param");
    for (const std::string& method : methods) {
      if (!sim::HasParameter(method, name)) continue;
      try {
        sim::CheckParameter(method, name, value);
        taken = true;
      } catch (const Error& error) {
        if (!AllMethods()) throw;
        refused = error;
      }
    }
    if (!taken && refused) throw *refused;
  }
}

bool RunOptions::AllMethods() const { return Methods() == sim::MethodNames(); }

std::vector<std::string> RunOptions::NotApplied(const std::vector<std::string>& methods) const {
  std::vector<std::string> remarks;
  for (const auto& [name, value] : Params()) {
    std::vector<std::string> without;
    for (const std::string& method : methods) {
      if (!sim::HasParameter(method, name)) without.push_back(method);
    }
    if (without.empty()) continue;
    remarks.push_back(
        fmt::format("{}={} is no parameter of {}", name, value, fmt::join(without, ", ")));
  }
  return remarks;
}

void RunOptions::RequireModel(const traces::proto::TraceInfo& trace,
                              const std::vector<sim::Axis>& axes) const {
  const bool swept = std::any_of(axes.begin(), axes.end(),
                                 [](const sim::Axis& axis) { return axis.name == "model"; });
  if (!request_.model.empty() || swept) return;
  const std::string problem = sim::WhyNotItsModel(trace);
  if (problem.empty()) return;
  throw UsageError(problem, "--model",
                   "name the model to predict, as --model llama-3.1-8b (info --models lists them), "
                   "or give --model trace");
}

sim::PredictRequest RunOptions::RequestFor(const std::string& method,
                                           const std::string& machine) const {
  sim::PredictRequest request = request_;
  request.method = method;
  request.machine = machine;
  request.prefill = !no_prefill_;
  if (graph_ && !host_.empty() && host_ != plan::Name(plan::Host::kGraph)) {
    throw UsageError(fmt::format("--graph is --host graph, and --host is {}", host_), "--host",
                     "give one of the two");
  }
  if (graph_) request.host = plan::Host::kGraph;
  if (!host_.empty()) request.host = plan::HostNamed(host_, "--host");
  request.model = sim::InUsualCase(request.model, llm::ModelNames());
  if (request.model == kTraceModel) request.model.clear();
  if (!request.model.empty()) sim::CheckModel(request.model, "--model");
  if (!context_.empty()) request.context = sim::ParseTokens(context_, "--context");
  for (const auto& [name, value] : Params()) {
    if (sim::HasParameter(method, name)) request.params[name] = value;
  }
  request.machine_overrides = OverridesOf(overrides_, machine);
  return request;
}

sim::PredictRequest RunOptions::GridBase() const {
  sim::PredictRequest base = RequestFor(Methods().front(), Machines().front());
  base.params.clear();
  return base;
}

std::vector<sim::Axis> RunOptions::Axes(const std::vector<std::string>& grid) const {
  std::vector<sim::Axis> axes;
  for (const std::string& text : grid) {
    sim::Axis& axis = axes.emplace_back(sim::ParseAxis(text));
    if (axis.name == "method" && axis.values == std::vector<std::string>{"all"}) {
      axis.values = sim::MethodNames();
    }
    for (std::string& value : axis.values) {
      if (axis.name == "machine") value = sim::InUsualCase(value, hardware::ProfileNames());
      if (axis.name == "model") value = sim::InUsualCase(value, llm::ModelNames());
    }
  }
  const auto has_axis = [&](std::string_view name) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const sim::Axis& a) { return a.name == name; });
  };
  const std::vector<std::string> methods = Methods(), machines = Machines();
  if (!has_axis("method")) {
    CheckParams(methods);
    if (methods.size() > 1) axes.push_back({"method", methods});
  }
  if (machines.size() > 1 && !has_axis("machine")) axes.push_back({"machine", machines});
  for (const auto& [name, value] : Params()) {
    if (!has_axis(name)) axes.push_back({name, {value}});
  }
  return axes;
}

void RunOptions::AddGrid(CLI::App& command, std::vector<std::string>& grid) {
  command
      .add_option(
          "-g,--grid", grid,
          "Axis: name=v1,v2 or name=low:high:step or name=low:high:xfactor; a name is a "
          "method parameter, method, machine, model, context, batch, tp, host, as_run or a machine "
          "path")
      ->type_name("AXIS")
      ->allow_extra_args(false)
      ->group("Grid");
}

std::vector<std::string> RunOptions::Inputs() const {
  std::vector<std::string> names = machines_;
  names.push_back(request_.model);
  for (const auto& [param, value] : Params()) names.push_back(value);
  return names;
}

sim::Predictor::Options RunOptions::PredictorOptions(Progress& progress) const {
  sim::Predictor::Options options;
  options.strict = strict_;
  options.cache = !no_cache_;
  options.progress = [&progress](const std::string& what, double share) {
    progress.Update(what, share);
  };
  return options;
}

}  // namespace stallcast::cli
