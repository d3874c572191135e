#include "sim/cli/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "models/hardware/profile.h"
#include "sim/cli/assignments.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/names.h"
#include "sim/sweep.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"
#include "traces/samples.h"

namespace stallcast::cli {
namespace {

// One flat object a point.
Json RowsOf(const std::vector<sim::Prediction>& predictions) {
  Json rows = Json::array();
  for (const sim::Prediction& p : predictions) {
    rows.push_back({{"model", p.model.name},
                    {"machine", p.request.machine},
                    {"method", p.request.method},
                    {"context_tokens", p.request.context},
                    {"batch", p.request.batch},
                    {"step_ms", Milliseconds(p.metrics.step_mean)},
                    {"step_p95_ms", Milliseconds(p.metrics.step_p95)},
                    {"fits", p.fits},
                    {"gpu_bytes", p.gpu_memory},
                    {"host_bytes", p.footprint.host}});
  }
  return rows;
}

}  // namespace

void StepTableCommand::AddTo(CLI::App& command) {
  constexpr const char* kGroup = "Step table";
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help)->type_name(type)->group(kGroup);
  };
  command
      .add_flag("--step-table", asked,
                "Predict step time by batch and context from a trace instead, into .csv or .json")
      ->group(kGroup);
  add("--method", method, "Method or variant", "NAME")->capture_default_str();
  add("--model", model, "Model, or a config.json", "NAME");
  add("--machine", machine, "Machine or profile.toml", "NAME")->capture_default_str();
  add("--context", contexts, "Contexts, as 8K,32K or a range", "AXIS")->capture_default_str();
  add("--batch", batches, "Batches, as 1,8 or a range", "AXIS")->capture_default_str();
  add("-p,--param", params, "Parameter of the method", "NAME=VALUE")->allow_extra_args(false);
  AddSet(command, overrides, kGroup);
}

void StepTableCommand::Write(const std::string& trace, const std::string& out) const {
  const std::filesystem::path file = traces::TracePath(trace);
  const bool json = out.ends_with(".json");
  if (!json && !out.ends_with(".csv")) {
    throw UsageError("a step table is .csv or .json", out, "give --out such a name");
  }
  if (model.empty()) {
    throw UsageError("a step table is of a model", "--model", "give one, as --model llama-3.1-8b");
  }
  RefuseToReplace(out, {file.string(), model, machine});
  sim::PredictRequest base;
  base.method = sim::InUsualCase(method, sim::MethodNames());
  sim::CheckName("method", base.method, sim::MethodNames(), "--method");
  base.model = sim::InUsualCase(model, llm::ModelNames());
  sim::CheckModel(base.model, "--model");
  base.machine = sim::InUsualCase(machine, hardware::ProfileNames());
  base.machine_overrides = OverridesOf(overrides, base.machine);
  base.prefill = false;
  for (const auto& [name, value] : Split(params, "--param", "-p budget=2048")) {
    if (!sim::HasParameter(base.method, name)) {
      throw UsageError(fmt::format("{} has no parameter {}", base.method, name), "--param",
                       "info --parameters " + base.method);
    }
    base.params[name] = value;
  }
  const std::vector<sim::GridPoint> points = sim::ExpandGrid(
      base, {sim::ParseAxis("context=" + contexts), sim::ParseAxis("batch=" + batches)});
  Progress progress;
  sim::Predictor predictor(file, {.progress = [&](const std::string& what, double share) {
                             progress.Update(what, share);
                           }});
  std::vector<sim::Prediction> predictions;
  std::string problem;
  int64_t failed = 0;
  sim::PredictAll(predictor, points, [&](sim::PointResult&& result) {
    if (result.prediction) {
      predictions.push_back(std::move(*result.prediction));
    } else {
      ++failed;
      problem = result.problem;
    }
    progress.Update("predicting", static_cast<double>(std::ssize(predictions) + failed) /
                                      static_cast<double>(points.size()));
  });
  progress.Clear();
  if (predictions.empty()) throw Error("no point can be predicted: " + problem, out, "change it");
  std::sort(predictions.begin(), predictions.end(), [](const auto& a, const auto& b) {
    return std::pair(a.request.context, a.request.batch) <
           std::pair(b.request.context, b.request.batch);
  });
  const Json rows = RowsOf(predictions);
  Json whole = {{"trace", file.string()},
                {"params", predictions.front().params},
                {"overrides", JoinPairs(base.machine_overrides)},
                {"rows", rows}};
  std::set<std::string> notes;
  for (const sim::Prediction& p : predictions) notes.insert(p.notes.begin(), p.notes.end());
  whole["notes"] = notes;
  WriteWhole(out, [&](const std::filesystem::path& part) {
    std::ofstream stream(part, std::ios::binary);
    stream << (json ? ToJsonText(whole) + "\n" : ToCsv(rows));
    if (!stream.flush()) throw Error("cannot be written", out, "give it room");
  });
  const auto unfit = std::count_if(predictions.begin(), predictions.end(),
                                   [](const sim::Prediction& p) { return !p.fits; });
  Print(fmt::format("{}: {} points, {} do not fit the machine, {} cannot run{}\n", out,
                    predictions.size(), unfit, failed, failed > 0 ? " (" + problem + ")" : ""));
}

}  // namespace stallcast::cli
