// stallcast-gpu run
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "capture/calibrate/host/host_drift.h"
#include "capture/calibrate/transfers/link_rates.h"
#include "capture/cli/commands.h"
#include "capture/gpu/measured_run.h"
#include "capture/run_info.h"
#include "kernels/executor/prefill_binder.h"
#include "models/llm/model.h"
#include "models/methods/decoder_plan.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/cli/run_options.h"
#include "sim/compare.h"
#include "sim/grid.h"
#include "sim/predict.h"
#include "sim/recorded_run.h"
#include "traces/common/error.h"
#include "traces/convert/timeline_file.h"
#include "traces/samples.h"

namespace stallcast::cli {
namespace {

using sim::Measured;
using sim::Predicted;

struct RunCommand {
  std::vector<std::string> traces;
  RunOptions run;
  std::vector<std::string> grid;
  int repetitions = 3;
  bool no_check = false;
  bool prefill = false;
  bool host_now = false;
  std::string timelines;
  Format format = Format::kTable;

  void Run() const;
};

constexpr const char* kOfTracedRun = "measured exposed recall is of the traced run";

// What the timelines of a run tell: means a step.
struct Traced {
  Measured<Picoseconds> step;
  std::optional<sim::TimePair> exposed_recall;
};

// One run of the grid, and its result.
struct Case {
  std::string trace;
  sim::PredictRequest request;
  Assignments others;  // values of the grid without a column of their own
  std::optional<sim::Prediction> prediction;
  hardware::Profile machine;  // with the overrides of the request
  capture::StepTimes times;
  Picoseconds host_now{0};  // the mean step, predicted with a host as it was around the run
  Picoseconds prefill{0};
  kernels::SelectionCheck check;
  std::optional<Traced> traced;
  std::string failed;  // why it could not be run
};

Assignments OthersOf(const sim::PredictRequest& point, const sim::PredictRequest& base) {
  Assignments others(point.machine_overrides.begin() + std::ssize(base.machine_overrides),
                     point.machine_overrides.end());
  if (point.machine != base.machine) others.emplace_back("machine", point.machine);
  if (point.tensor_parallel != base.tensor_parallel) {
    others.emplace_back("tp", std::to_string(point.tensor_parallel));
  }
  return others;
}

std::vector<Case> Cases(const RunCommand& command) {
  sim::PredictRequest base = command.run.GridBase();
  base.prefill = command.prefill;
  if (base.steps == 0) base.steps = 32;
  std::vector<sim::GridPoint> points = sim::ExpandGrid(base, command.run.Axes(command.grid));
  // The weights of one model after those of another, not by turns.
  std::ranges::stable_sort(points, {}, [](const auto& point) { return point.request.model; });
  std::vector<Case> cases;
  for (const std::string& trace : command.traces) {
    for (const sim::GridPoint& point : points) {
      Case& of = cases.emplace_back();
      of.trace = traces::TracePath(trace).string();
      of.request = point.request;
      of.others = OthersOf(point.request, base);
    }
  }
  return cases;
}

std::string Describe(const Case& of) {
  return fmt::format("{} {} b{} {} {}", of.request.method,
                     of.request.model.empty() ? "model" : of.request.model, of.request.batch,
                     JoinPairs(of.request.params), JoinPairs(of.others));
}

// What a run needs beside its request; lives as long as the run.
struct Loaded {
  std::string path;
  std::unique_ptr<sim::Predictor> predictor;
  traces::Trace trace;
};

capture::RunRequest RequestOf(const Case& of, const sim::PreparedRun& prepared,
                              const Loaded& loaded) {
  capture::RunRequest request;
  request.method = &prepared.method;
  request.input = prepared.input;
  request.trace = &loaded.trace;
  request.machine = &of.machine;
  request.title =
      fmt::format("{}, {}, measured, context {}, batch {}", of.request.method, prepared.whole.title,
                  prepared.input.prompt_tokens, prepared.input.batch);
  request.notes = prepared.notes;
  return request;
}

// What makes a prediction one of a recorded run, whose calls and copies are slower.
constexpr std::pair kRecorded{"host.recorded", "1"};

traces::Timeline RecordedPrefill(const Case& of, const sim::PreparedRun& prepared) {
  hardware::Profile machine = of.machine;
  hardware::Set(machine, kRecorded.first, kRecorded.second);
  const plan::Plan plan = methods::WritePrefill(*prepared.method.method, prepared.input);
  const sim::Simulation simulation(plan, hardware::CostModel(machine));
  traces::Timeline timeline = sim::ToTimeline(simulation, simulation.Run());
  timeline.title =
      fmt::format("{}, {}, prefill, context {}, batch {}", of.request.method, prepared.whole.title,
                  prepared.input.prompt_tokens, prepared.input.batch);
  return timeline;
}

// Predicts again with a host as fast as it was around the run; with `now`, that is the prediction.
void PredictAsHostWas(Case& of, sim::Predictor& predictor, bool now) {
  sim::PredictRequest request = of.request;
  std::string note = "predicted with";
  for (const auto& [path, value] : capture::OverridesForCurrentHost(of.times.host, of.machine)) {
    request.machine_overrides.emplace_back(path, value);
    note += fmt::format(" {}={}", path, value);
  }
  request.prefill = request.prefill && now;  // its steps do not depend on it
  sim::Prediction prediction = predictor.Predict(request);
  of.host_now = prediction.metrics.step_mean;
  if (now) {
    of.machine = sim::MachineOf(request);
    of.request = std::move(request);
    of.prediction = std::move(prediction);
    of.times.notes.push_back(std::move(note));
  } else if (std::string other = capture::HostDriftWarning(of.times.host, of.machine);
             !other.empty()) {
    of.times.notes.push_back(std::move(other));
  }
}

// Of the timelines' files of a run.
std::string BasePath(const std::string& folder, const Case& of) {
  std::string name = fmt::format("{}-{}-b{}", of.request.method,
                                 std::filesystem::path(of.trace).stem().string(), of.request.batch);
  if (of.prediction && !of.request.model.empty()) name += "-" + of.prediction->model.name;
  const auto add = [&](const auto& pairs) {
    for (const auto& [path, value] : pairs) name += fmt::format("-{}-{}", path, value);
  };
  add(of.request.params);
  add(of.others);
  std::ranges::replace(name, '/', '-');  // of rates and of files
  return std::filesystem::path(folder) / name;
}

void RecordPrefill(const Case& of, Json& row) {
  if (!of.failed.empty() || !of.prediction || !of.prediction->prefill) {
    for (const char* key :
         {"predicted_prefill_ms", "measured_prefill_ms", "prefill_error_percent"}) {
      row[key] = nullptr;
    }
    return;
  }
  const Predicted<double> predicted{Milliseconds(*of.prediction->prefill)};
  const Measured<double> measured{Milliseconds(of.prefill)};
  row["predicted_prefill_ms"] = predicted.value;
  row["measured_prefill_ms"] = measured.value;
  row["prefill_error_percent"] = (predicted.value - measured.value) / measured.value * 100;
}

Traced CompareTimelines(const traces::Timeline& predicted, const traces::Timeline& measured) {
  const sim::Comparison comparison = sim::Compare(Predicted<const traces::Timeline*>{&predicted},
                                                  Measured<const traces::Timeline*>{&measured});
  Traced traced;
  for (const sim::StepTime& step : comparison.steps) {
    traced.step.value += step.time.measured.value;
  }
  traced.step.value /= std::max<int64_t>(1, std::ssize(comparison.steps));
  if (comparison.exposed) traced.exposed_recall = comparison.exposed->role(traces::Role::kRecall);
  return traced;
}

void RecordTraced(const Case& of, Json& row) {
  row["measured_traced_ms"] = nullptr;
  row["predicted_exposed_recall_ms"] = nullptr;
  row["measured_exposed_recall_ms"] = nullptr;
  if (!of.traced) return;
  row["measured_traced_ms"] = Milliseconds(of.traced->step.value);
  if (!of.traced->exposed_recall) return;
  row["predicted_exposed_recall_ms"] = Milliseconds(of.traced->exposed_recall->predicted.value);
  row["measured_exposed_recall_ms"] = Milliseconds(of.traced->exposed_recall->measured.value);
}

// What files of a prompt say of it: of which model, and how long.
traces::proto::TraceInfo OfPrompt(const sim::PreparedRun& prepared, traces::proto::TraceInfo info) {
  *info.mutable_model() = llm::ToTrace(prepared.whole);
  info.set_prompt_tokens(prepared.input.prompt_tokens);
  info.set_decode_steps(prepared.input.steps);
  return info;
}

// What files of its steps say: by which request and from which trace too.
traces::proto::TraceInfo OfSteps(const Case& of, const sim::PreparedRun& prepared,
                                 traces::proto::TraceInfo info) {
  info = OfPrompt(prepared, std::move(info));
  sim::SetRun({of.request, of.trace}, &info);
  return info;
}

// Records the run, and its prompt if asked for, and writes their predictions too.
void WriteRecording(Case& of, capture::GpuRunner& gpu, const Loaded& loaded, int repetitions,
                    const std::string& folder) {
  const std::string base = BasePath(folder, of);
  const sim::PreparedRun prepared = loaded.predictor->Prepare(of.request);
  capture::RunRequest request = RequestOf(of, prepared, loaded);
  // What qualifies the times qualifies the recording: another host than the profile's, say.
  request.notes.insert(request.notes.end(), of.times.notes.begin(), of.times.notes.end());
  const capture::RecordedRun kept = gpu.Bind(request).Record(
      base + ".measured.kvt", OfSteps(of, prepared, capture::RunInfo()), repetitions);
  if (kept.disturbed > 0) {
    of.times.notes.push_back(
        fmt::format("in {} of {} recorded steps another program had a core of its threads', which "
                    "slows their calls",
                    kept.disturbed, of.times.steps.size()));
  }
  std::vector<traces::Timeline> predicted(1), as_recorded(1);
  loaded.predictor->Predict(of.request, predicted.data());
  const traces::proto::TraceInfo foretold = OfSteps(of, prepared, loaded.trace.info);
  traces::WriteTimelines(predicted, traces::TimelineFormat::kTrace, foretold,
                         base + ".predicted.kvt");
  sim::PredictRequest recorded_run = of.request;
  recorded_run.machine_overrides.emplace_back(kRecorded);
  loaded.predictor->Predict(recorded_run, as_recorded.data());
  traces::WriteTimelines(as_recorded, traces::TimelineFormat::kTrace, foretold,
                         base + ".recorded.kvt");
  try {
    const traces::Trace recorded = traces::ReadTrace(base + ".measured.kvt");
    if (!recorded.timelines.empty()) {
      of.traced = CompareTimelines(as_recorded.front(), recorded.timelines.front());
    }
  } catch (const Error& error) {
    of.times.notes.push_back(fmt::format("no exposed recall: {}", error.problem()));
  }
  if (!of.request.prefill) return;
  gpu.Bind(request).RecordPrefill(base + "-prefill.measured.kvt",
                                  OfPrompt(prepared, capture::RunInfo()));
  traces::WriteTimelines({RecordedPrefill(of, prepared)}, traces::TimelineFormat::kTrace,
                         OfPrompt(prepared, loaded.trace.info), base + "-prefill.recorded.kvt");
}

// The notes of a row, after the values of the grid.
std::string Noted(const Case& of, std::vector<std::string> notes) {
  if (!of.others.empty()) notes.insert(notes.begin(), "with " + JoinPairs(of.others));
  return fmt::format("{}", fmt::join(notes, "; "));
}

// With columns of the traced run if there was one.
Json Record(const Case& of, bool timelines) {
  Json row;
  row["method"] = of.request.method;
  row["params"] = JoinPairs(of.request.params);
  row["model"] = of.prediction ? of.prediction->model.name : of.request.model;
  row["context"] = of.prediction ? of.prediction->request.context : 0;
  row["batch"] = of.request.batch;
  row["graph"] = of.request.host == plan::Host::kGraph;
  row["steps"] = of.request.steps;
  if (of.request.prefill) RecordPrefill(of, row);
  if (!of.failed.empty() || !of.prediction) {
    for (const char* key :
         {"predicted_ms", "measured_ms", "error_percent", "host_now_ms", "host_now_error_percent",
          "predicted_p50_ms", "measured_p50_ms", "steps_disturbed", "launch_us", "copy_us",
          "gather_us", "link_gb_per_s", "units_compared", "units_equal_percent",
          "decisions_equal_percent", "keys_wrong"}) {
      row[key] = nullptr;
    }
    if (timelines) RecordTraced(of, row);
    row["note"] = Noted(of, {of.failed});
    return row;
  }
  const Predicted<double> predicted{Milliseconds(of.prediction->metrics.step_mean)};
  const Measured<double> measured{Milliseconds(of.times.Mean())};
  row["predicted_ms"] = predicted.value;
  row["measured_ms"] = measured.value;
  const auto error = [&](const Predicted<double>& of_prediction) {
    return (of_prediction.value - measured.value) / measured.value * 100;
  };
  const Predicted<double> host_now{Milliseconds(of.host_now)};
  row["error_percent"] = error(predicted);
  row["host_now_ms"] = host_now.value;
  row["host_now_error_percent"] = error(host_now);
  row["predicted_p50_ms"] = Milliseconds(of.prediction->metrics.step_p50);
  row["measured_p50_ms"] = Milliseconds(of.times.P50());
  row["steps_disturbed"] = of.times.disturbed;
  row["launch_us"] = of.times.host.launch * 1e6;
  row["copy_us"] = of.times.host.copy * 1e6;
  row["gather_us"] = of.times.host.gather * 1e6;  // 0: none
  row["link_gb_per_s"] = of.times.link_h2d * 1e-9;
  row["units_compared"] = of.check.selected;
  row["units_equal_percent"] = of.check.share_equal() * 100;
  row["decisions_equal_percent"] = of.check.decisions == 0
                                       ? 100.0
                                       : 100.0 * static_cast<double>(of.check.decided_alike) /
                                             static_cast<double>(of.check.decisions);
  row["keys_wrong"] = of.check.missing;
  if (timelines) RecordTraced(of, row);
  std::vector<std::string> notes = of.times.notes;
  if (of.traced) notes.emplace_back(kOfTracedRun);
  row["note"] = Noted(of, std::move(notes));
  return row;
}

void RunCommand::Run() const {
  std::vector<Case> cases = Cases(*this);
  if (!timelines.empty()) std::filesystem::create_directories(timelines);
  Progress progress;
  capture::GpuRunner gpu;
  Loaded loaded;
  const auto load = [&](const std::string& path) {
    if (loaded.path == path) return;
    loaded.predictor = std::make_unique<sim::Predictor>(path, run.PredictorOptions(progress));
    loaded.trace = traces::ReadTrace(path);
    loaded.path = path;
  };
  size_t failures = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& of = cases[i];
    progress.Update("running " + Describe(of),
                    static_cast<double>(i) / static_cast<double>(cases.size()));
    try {
      load(of.trace);
      of.machine = sim::MachineOf(of.request);
      of.prediction = loaded.predictor->Predict(of.request);
      const sim::PreparedRun prepared = loaded.predictor->Prepare(of.request);
      if (prefill) kernels::CheckPrefill(prepared.input.model);
      const capture::RunRequest request = RequestOf(of, prepared, loaded);
      const bool check = !no_check && prepared.log && of.request.host != plan::Host::kGraph;
      {
        capture::GpuRun steps = gpu.Bind(request);
        of.times = steps.Time(repetitions, host_now ? nullptr : &of.machine);
        PredictAsHostWas(of, *loaded.predictor, host_now);
        if (std::string note = capture::OtherLinkNote(of.times.link_h2d, of.machine);
            !note.empty()) {
          of.times.notes.push_back(std::move(note));
        }
        // Before anything is traced, which makes calls slower.
        if (!timelines.empty()) {
          traces::WriteTimelines({steps.TimeCalls(repetitions)}, traces::TimelineFormat::kTrace,
                                 OfSteps(of, prepared, capture::RunInfo()),
                                 BasePath(timelines, of) + ".calls.kvt");
        }
        if (check && !prefill) of.check = steps.CheckSelection();
      }
      if (prefill) {
        const capture::PrefillRun prompt = gpu.Bind(request).TimePrefill(repetitions, check);
        of.prefill = prompt.time;
        of.check = prompt.check;
      }
    } catch (const Error& error) {
      if (cases.size() == 1) throw;
      ++failures;
      of.failed = error.what();
    }
  }
  // Tracing slows CUDA for the rest of the process: timelines come last.
  if (!timelines.empty()) {
    for (size_t i = 0; i < cases.size(); ++i) {
      Case& of = cases[i];
      if (!of.failed.empty()) continue;
      progress.Update("recording " + Describe(of),
                      static_cast<double>(i) / static_cast<double>(cases.size()));
      // What was timed is kept whatever happens here.
      try {
        load(of.trace);
        WriteRecording(of, gpu, loaded, repetitions, timelines);
      } catch (const Error& error) {
        of.times.notes.push_back(
            fmt::format("not recorded: {}; {}", error.problem(), error.remedy()));
      }
    }
  }
  progress.Clear();
  Json rows = Json::array();
  for (const Case& of : cases) rows.push_back(Record(of, !timelines.empty()));
  PrintRecords(rows, format);
  if (failures == cases.size()) {
    throw Error(fmt::format("none of {} runs ran", failures), "run", "see the note of each");
  }
}

}  // namespace

void AddRun(CLI::App& app) {
  auto command = std::make_shared<RunCommand>();
  CLI::App* sub = app.add_subcommand("run", "Run decode steps on the GPU, beside their prediction");
  sub->description(
      R"(Runs the plans that `stallcast predict` times, with real kernels, copies and host threads.
Step times come from CUDA events without tracing. The units that the device selects are
compared with the access log.

A step's time is the median of its repetitions. Calls take a third longer while another
program uses a core of the run's threads; such repetitions do not count, and are repeated
for up to 5 s. steps_disturbed counts the steps without any other repetition. If the
host's launches or gathers differ from the profile by more than 15 %, all is timed once
more. The second result counts if they then agree.

host_now_ms is a prediction for the host as it was during the run: launch_us, copy_us and
gather_us. With --host-now it is the only prediction, and nothing is timed twice.

With --timelines each plan runs again with tracing, which slows CUDA calls. Of these runs
the one with the fewest disturbed steps is kept, and of several the fastest.
measured_traced_ms is its mean step. Its exposed recall stands beside that of a prediction
with tracing (host.recorded=1). Files to compare with `stallcast compare`:
  NAME.recorded.kvt, NAME.measured.kvt    predicted and measured, both with tracing
  NAME.predicted.kvt, NAME.calls.kvt      predicted and measured calls, without tracing
With --prefill there are NAME-prefill.recorded.kvt and NAME-prefill.measured.kvt too.

Examples:
  stallcast-gpu run sample:32k --method freekv --model llama-3.1-8b
  stallcast-gpu run sample:8k --method all --model llama-3.1-8b -g batch=1,4
  stallcast-gpu run sample:32k --method freekv --model llama-3.1-8b \
    -g recall=per-page,staged,zero-copy -g budget=1024,2048
  stallcast-gpu run sample:8k --method full,offload --prefill
  stallcast-gpu run sample:8k --method quest --timelines runs/)");
  sub->add_option("traces", command->traces,
                  "Traces to run (.kvt), or shipped ones: sample:8k; each at its own context")
      ->required()
      ->type_name("TRACE");
  command->run.AddTo(*sub, "full");
  RunOptions::AddGrid(*sub, command->grid);
  sub->add_option("--repeat", command->repetitions,
                  "Timed runs, whose median counts for each step, and traced runs")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->group("Measurement");
  sub->add_flag("--prefill", command->prefill,
                "Run the prefill too, and check the selections of the steps after it")
      ->group("Measurement");
  sub->add_flag("--no-check", command->no_check, "Do not compare the selections")
      ->group("Measurement");
  sub->add_flag("--host-now", command->host_now,
                "Predict with the host as fast as launches, copies and gathers were during the run "
                "(host.slower, copy_call, copy_back_call, gather_thread)")
      ->group("Measurement");
  sub->add_option("--timelines", command->timelines,
                  "Folder for measured and predicted timelines (.kvt), for `stallcast compare`")
      ->type_name("FOLDER")
      ->group("Output");
  AddFormat(*sub, command->format);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
