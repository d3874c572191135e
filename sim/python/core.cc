// The Python module stallcast._core: what the commands compute, by the commands' own options, so
// that numbers and errors are theirs. Records are the JSON texts that the commands print; columns
// of timelines are arrays. The package around it gives them the shapes that Python users know.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "sim/cli/compare.h"
#include "sim/cli/import_file.h"
#include "sim/cli/predict.h"
#include "sim/cli/prediction_output.h"
#include "sim/cli/program.h"
#include "sim/cli/replay.h"
#include "sim/cli/requirement_options.h"
#include "sim/cli/run_options.h"
#include "sim/cli/sweep.h"
#include "sim/names.h"
#include "sim/prediction_fields.h"
#include "sim/python/watched.h"
#include "traces/common/error.h"
#include "traces/common/shipped.h"
#include "traces/common/whole_file.h"
#include "traces/convert/timeline_file.h"
#include "traces/samples.h"

namespace nb = nanobind;

namespace stallcast::python {
namespace {

using Arguments = std::vector<std::string>;  // "--batch=4", as behind a command

// Text of a file or message, which may be anything: bytes that are no UTF-8 are replaced.
nb::str Text(std::string_view text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}
nb::typed<nb::list, nb::str> Texts(const auto& texts) {
  nb::list list;
  for (const auto& each : texts) list.append(Text(each));
  return list;
}

// What a function takes: a part of a command's options.
struct PredictOptions {
  cli::RunOptions run;
  sim::Requirements required;
  void AddTo(CLI::App& command) {
    run.AddTo(command, "freekv");
    cli::AddRequirements(command, required);
  }
};
struct SweepAndForm {
  cli::SweepOptions sweep;
  cli::SweepForm form;
  void AddTo(CLI::App& command) {
    sweep.AddTo(command);
    form.AddRecordOptions(command);
  }
};
struct FormOptions {
  cli::SweepForm form;
  void AddTo(CLI::App& command) { form.AddRecordOptions(command); }
};
struct ReadOptions {
  cli::ImportFlags flags;
  void AddTo(CLI::App& command) { cli::AddImportFlags(command, flags); }
};

template <class Options>
Options Parse(const std::string& command, Arguments arguments) {
  CLI::App app("", command);
  Options options;
  options.AddTo(app);
  cli::RefuseEmpty(arguments);
  std::ranges::reverse(arguments);  // CLI11 takes them from the end
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), "",
                     fmt::format("`stallcast {} --help` lists the options", command));
  }
  return options;
}

using OptionRow = std::tuple<std::string, std::string, std::string>;  // name, type, help

template <class Options>
std::vector<OptionRow> OptionsOf() {
  CLI::App app;
  app.set_help_flag();
  Options options;
  options.AddTo(app);
  std::vector<OptionRow> rows;
  for (const CLI::Option* option : app.get_options()) {
    rows.emplace_back(option->get_lnames().front(), option->get_type_name(),
                      option->get_description());
  }
  return rows;
}

// A timeline with all that its file says besides.
struct TimelineData {
  traces::Timeline timeline;
  traces::proto::TraceInfo info;
  std::string source;  // the file that it is from

  void Write(const std::string& path) const {
    RefuseToReplace(path, {source});
    const traces::TimelineFormat format = traces::TimelineFormatOf(path);
    traces::WriteTimelines({timeline}, format, info, path);
  }
};

// What a prediction needs, checked as far as that goes without the trace.
struct PredictCall {
  PredictOptions options;
  sim::PredictRequest request;
  std::filesystem::path file;
};

PredictCall PreparePredict(const std::string& trace, const Arguments& arguments) {
  PredictCall call{Parse<PredictOptions>("predict", arguments), {}, {}};
  const cli::RunOptions& run = call.options.run;
  const std::vector<std::string> methods = run.Methods(), machines = run.Machines();
  if (methods.size() != 1 || machines.size() != 1) {
    const bool by_method = methods.size() != 1;
    throw UsageError(fmt::format("{} {}s", by_method ? methods.size() : machines.size(),
                                 by_method ? "method" : "machine"),
                     by_method ? "--method" : "--machine",
                     "predict() takes one; sweep() gives a table of several");
  }
  run.CheckParams(methods);
  call.request = run.RequestFor(methods.front(), machines.front());
  call.file = cli::TraceToReplay(trace);
  return call;
}

// The record as JSON, and the report as text.
std::pair<std::string, std::string> Predict(const std::string& trace, const Arguments& arguments,
                                            const nb::object& listener) {
  const PredictCall call = PreparePredict(trace, arguments);
  return Watched(listener, [&](cli::Progress& progress, const std::stop_token& stop) {
    const cli::RunOptions& run = call.options.run;
    sim::Predictor predictor(call.file, run.PredictorOptions(progress));
    run.RequireModel(predictor.info());
    cli::MachinePredictions machine;
    machine.profile = hardware::FindProfile(call.request.machine);
    machine.rows.push_back(predictor.Predict(call.request, nullptr, stop));
    const sim::Requirements& required = call.options.required;
    const cli::Json records =
        cli::Records({machine}, {predictor.key(), call.file.string()}, required);
    return std::pair(cli::ToJsonText(records.front()),
                     cli::Report(machine, trace, {.required = required, .screen = {}}));
  });
}

// `key`: of the trace as it was predicted.
TimelineData PredictedTimeline(const std::string& trace, const Arguments& arguments,
                               const std::string& key, const nb::object& listener) {
  const PredictCall call = PreparePredict(trace, arguments);
  return Watched(listener, [&](cli::Progress& progress, const std::stop_token& stop) {
    sim::Predictor predictor(call.file, call.options.run.PredictorOptions(progress));
    if (predictor.key() != key) {
      throw Error("the trace has changed since the prediction", trace, "predict it again");
    }
    TimelineData data;
    const sim::Prediction prediction = predictor.Predict(call.request, &data.timeline, stop);
    data.info = cli::InfoOf(prediction, hardware::FindProfile(call.request.machine).title,
                            predictor.info(), trace);
    data.source = call.file.string();
    return data;
  });
}

// Points, those without a result, and the reasons with how many have each.
std::tuple<int64_t, int64_t, std::vector<std::pair<std::string, int64_t>>> Sweep(
    const std::string& trace, const Arguments& arguments, const nb::object& listener) {
  SweepAndForm options = Parse<SweepAndForm>("sweep", arguments);
  options.sweep.trace = trace;
  const cli::Swept swept =
      Watched(listener, [&](cli::Progress& progress, const std::stop_token& stop) {
        return cli::RunSweep(options.sweep, progress, stop);
      });
  int64_t failed = 0;
  std::vector<std::pair<std::string, int64_t>> problems;
  for (const auto& [problem, number] : swept.counts.problems) {
    failed += number;
    problems.emplace_back(problem, number);
  }
  return {swept.points, failed, std::move(problems)};
}

// Calls `use` with each point's record.
void SweepRecords(const std::string& file, const Arguments& arguments, const nb::object& use) {
  cli::SweepForm form = Parse<FormOptions>("sweep", arguments).form;
  form.file = file;
  cli::ForEachRecord(form, [&](const cli::Json& record, const cli::RecordWriter::Names&) {
    use(cli::ToJsonText(record));
  });
}

// The timelines of a file, and what is damaged or lost.
std::pair<std::vector<TimelineData>, std::vector<std::string>> ReadTimelines(
    const std::string& path, const Arguments& arguments, const nb::object& listener) {
  const cli::ImportFlags flags = Parse<ReadOptions>("info", arguments).flags;
  return Watched(listener, [&](cli::Progress& progress, const std::stop_token&) {
    std::vector<std::string> notes;
    traces::Trace file = cli::ImportTitled(path, flags, progress, &notes);
    std::vector<TimelineData> timelines;
    for (traces::Timeline& timeline : file.timelines) {
      timelines.push_back({std::move(timeline), file.info, path});
    }
    return std::pair(std::move(timelines), std::move(notes));
  });
}

std::pair<std::string, TimelineData> Replay(const std::string& recording,
                                            const Arguments& arguments,
                                            const nb::object& listener) {
  cli::ReplayOptions options = Parse<cli::ReplayOptions>("replay", arguments);
  options.recording = recording;
  return Watched(listener, [&](cli::Progress& progress, const std::stop_token&) {
    cli::ReplayRun run = cli::RunReplay(options, progress);
    std::string record = cli::ToJsonText(cli::RecordOf(run));
    return std::pair(std::move(record), TimelineData{run.Last(), std::move(run.info), recording});
  });
}

std::string Compare(const std::vector<const TimelineData*>& sides, const std::string& where,
                    const Arguments& arguments) {
  const cli::CompareOptions options = Parse<cli::CompareOptions>("compare", arguments);
  std::vector<traces::Timeline> timelines;
  timelines.reserve(sides.size());
  for (const TimelineData* side : sides) timelines.push_back(side->timeline);
  const nb::gil_scoped_release released;
  return cli::ToJsonText(cli::RecordOf(cli::RunCompare(std::move(timelines), where, options)));
}

// A column of a timeline as an array of plain numbers, which keeps the timeline alive. What
// Stored adds to Number is its meaning alone.
template <class Number, class Stored>
auto Column(const TimelineData& data, const std::vector<Stored>& values) {
  static_assert(sizeof(Number) == sizeof(Stored) && std::is_trivially_copyable_v<Stored>);
  return nb::ndarray<nb::numpy, const Number, nb::ndim<1>>(values.data(), {values.size()},
                                                           nb::find(data));
}

void BindTimeline(nb::module_& module) {
  using Data = TimelineData;
  nb::class_<Data>(module, "Timeline", "A timeline's columns and names.")
      .def_prop_ro("title", [](const Data& d) { return Text(d.timeline.title); })
      .def_prop_ro("origin", [](const Data& d) { return std::string(Name(d.timeline.origin)); })
      .def_prop_ro("notes", [](const Data& d) { return Texts(d.timeline.notes); })
      .def_prop_ro("names", [](const Data& d) { return Texts(d.timeline.names); })
      .def_prop_ro(
          "lanes",
          [](const Data& d) {
            nb::list lanes;
            for (const traces::TimelineLane& lane : d.timeline.lanes) {
              lanes.append(nb::make_tuple(Text(lane.name), Text(Name(lane.kind)), lane.compute));
            }
            return lanes;
          })
      .def_prop_ro("lane", [](const Data& d) { return Column<uint16_t>(d, d.timeline.lane); })
      .def_prop_ro("op", [](const Data& d) { return Column<int64_t>(d, d.timeline.op); })
      .def_prop_ro("step", [](const Data& d) { return Column<int32_t>(d, d.timeline.step); })
      .def_prop_ro("layer", [](const Data& d) { return Column<int16_t>(d, d.timeline.layer); })
      .def_prop_ro("role", [](const Data& d) { return Column<uint8_t>(d, d.timeline.role); })
      .def_prop_ro("name", [](const Data& d) { return Column<uint32_t>(d, d.timeline.name); })
      .def_prop_ro("start_ps", [](const Data& d) { return Column<int64_t>(d, d.timeline.start); })
      .def_prop_ro("duration_ps",
                   [](const Data& d) { return Column<int64_t>(d, d.timeline.duration); })
      .def_prop_ro("bytes", [](const Data& d) { return Column<int64_t>(d, d.timeline.bytes); })
      .def_prop_ro("graph_node",
                   [](const Data& d) { return Column<int64_t>(d, d.timeline.graph_node); })
      .def_prop_ro("flows",
                   [](const Data& d) {
                     static_assert(sizeof(traces::TimelineFlow) == 2 * sizeof(int64_t));
                     return nb::ndarray<nb::numpy, const int64_t, nb::shape<-1, 2>>(
                         d.timeline.flows.data(), {d.timeline.flows.size(), 2}, nb::find(d));
                   })
      .def("write", &Data::Write, nb::arg("path"));
}

// Errors are the package's, with the parts of their text.
void RaiseErrors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object type = nb::module_::import_("stallcast._error").attr("Error");
      const nb::object exception = type(Text(error.what()), Text(error.problem()),
                                        Text(error.where()), Text(error.remedy()), error.usage());
      PyErr_SetObject(type.ptr(), exception.ptr());
    }
  });
}

// From here on shipped files are those installed with the package, where there are any.
void UsePackage(const std::string& folder) {
  const std::filesystem::path shipped =
      (std::filesystem::path(folder) / STALLCAST_DATA_FROM_PACKAGE).lexically_normal();
  std::error_code error;
  if (std::filesystem::is_directory(shipped, error)) ShipFrom(shipped);
}

}  // namespace

NB_MODULE(_core, module) {
  using namespace nb::literals;
  RaiseErrors();
  BindTimeline(module);
  module.attr("version") = STALLCAST_VERSION;
  module.def("use_package", &UsePackage, "folder"_a);

  module.def("machines", [] { return hardware::ProfileNames(); });
  module.def("methods", [] { return sim::MethodNames(); });
  module.def("models", [] { return llm::ModelNames(); });
  module.def("samples", [] {
    std::vector<std::string> names;
    for (const traces::Sample& each : traces::Samples()) {
      names.push_back(fmt::format("sample:{}", each.name));
    }
    return names;
  });
  module.def("roles", [] {
    std::vector<std::string> names;
    for (int role = 0; role < traces::kRoles; ++role) {
      names.emplace_back(Name(static_cast<traces::Role>(role)));
    }
    return names;
  });
  module.def("fields", [] {
    std::vector<std::pair<std::string, std::string>> fields;
    for (const sim::PredictionField& field : sim::PredictionFields()) {
      fields.emplace_back(field.name, field.help);
    }
    return fields;
  });
  module.def("predict_options", &OptionsOf<PredictOptions>);
  module.def("sweep_options", &OptionsOf<SweepAndForm>);
  module.def("read_sweep_options", &OptionsOf<FormOptions>);
  module.def("read_options", &OptionsOf<ReadOptions>);
  module.def("replay_options", &OptionsOf<cli::ReplayOptions>);
  module.def("compare_options", &OptionsOf<cli::CompareOptions>);

  module.def("predict", &Predict, "trace"_a, "arguments"_a, "listener"_a.none());
  module.def("predicted_timeline", &PredictedTimeline, "trace"_a, "arguments"_a, "key"_a,
             "listener"_a.none());
  module.def("sweep", &Sweep, "trace"_a, "arguments"_a, "listener"_a.none());
  module.def("sweep_records", &SweepRecords, "file"_a, "arguments"_a, "use"_a);
  module.def("read_timelines", &ReadTimelines, "path"_a, "arguments"_a, "listener"_a.none());
  module.def("replay", &Replay, "recording"_a, "arguments"_a, "listener"_a.none());
  module.def("compare", &Compare, "sides"_a, "where"_a, "arguments"_a);
}

}  // namespace stallcast::python
