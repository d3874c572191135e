// stallcast info
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "models/methods/method.h"
#include "sim/cli/commands.h"
#include "sim/cli/import_file.h"
#include "sim/cli/output.h"
#include "sim/cli/recording_info.h"
#include "sim/names.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

struct InfoCommand {
  std::string trace, parameters, machine;
  bool methods = false, models = false, machines = false, wide = false;
  ImportFlags flags;
  Format format = Format::kTable;

  void Run() const;
};

void PrintMethods(Format format, const Screen& screen) {
  Json rows = Json::array();
  for (const methods::MethodInfo& info : methods::Methods()) {
    rows.push_back({{"method", info.name},
                    {"title", info.title},
                    {"summary", info.summary},
                    {"source", info.source}});
    for (const auto& [preset, values] : info.presets) {
      rows.push_back({{"method", preset},
                      {"title", info.title},
                      {"summary", fmt::format("{} with {}", info.name, JoinPairs(values))},
                      {"source", info.source}});
    }
  }
  PrintRecords(
      rows, format,
      {.wrapped = {"summary", "source"}, .optional = {"title", "source"}, .screen = screen});
}

void PrintModels(Format format, const Screen& screen) {
  Json rows = Json::array();
  for (const std::string& name : llm::ModelNames()) {
    const llm::Model m = llm::FindModel(name);
    const Bytes kv = m.KvBytesPerToken();
    const Bytes weights = m.WeightBytes();
    Json row = {{"model", name},
                {"layers", m.layers},
                {"query_heads", m.query_heads},
                {"kv_heads", m.kv_heads},
                {"head_dim", m.head_dim},
                {"hidden", m.hidden},
                {"max_context", m.max_context},
                {"weight_bytes", weights},
                {"kv_bytes_per_token", kv},
                {"source", m.source}};
    rows.push_back(std::move(row));
  }
  PrintRecords(rows, format,
               {.wrapped = {"source"},
                .optional = {"weight_bytes", "max_context", "hidden", "head_dim",
                             "kv_bytes_per_token", "source"},
                .screen = screen});
}

// Where a machine's values come from.
std::string_view ValuesOf(const hardware::Profile& profile) {
  return profile.status == "measured" ? "measured"
         : profile.status == "tables" ? "kernel tables"
                                      : "public figures";
}

void PrintMachines(Format format, const Screen& screen) {
  Json rows = Json::array();
  for (const std::string& name : hardware::ProfileNames()) {
    const hardware::Profile p = hardware::FindProfile(name);
    rows.push_back({{"machine", name},
                    {"values", ValuesOf(p)},
                    {"rest_of", p.base},
                    {"title", p.title},
                    {"link_h2d_gb_per_s", p.link.h2d / 1e9},
                    {"link_d2h_gb_per_s", p.link.d2h / 1e9},
                    {"memory_gb_per_s", p.memory.bandwidth / 1e9},
                    {"memory_gib", p.memory.bytes / (1024.0 * 1024 * 1024)}});
  }
  PrintRecords(rows, format,
               {.wrapped = {"title"},
                .optional = {"title", "link_d2h_gb_per_s", "rest_of"},
                .screen = screen});
}

std::string RangeOf(const methods::ParamSpec& spec) {
  using Type = methods::ParamSpec::Type;
  if (spec.type == Type::kInteger || spec.type == Type::kReal) {
    return methods::WriteNumber(spec, spec.min) + " to " + methods::WriteNumber(spec, spec.max);
  }
  if (spec.type == Type::kText) return "text";
  return fmt::format("{}", fmt::join(spec.choices, ", "));
}

void PrintParameters(const std::string& method, Format format, const Screen& screen) {
  sim::CheckName("method", method, sim::MethodNames(), "--parameters");
  const methods::NamedMethod named = methods::MakeMethod(method, {});
  const auto values = named.method->Params(/*only_selection=*/false);
  Json rows = Json::array();
  for (const methods::ParamSpec& spec : named.info->params) {
    const auto value = values.find(spec.name);
    rows.push_back({{"parameter", spec.name},
                    {"default", value == values.end() ? spec.default_value : value->second},
                    {"unit", spec.unit},
                    {"range", RangeOf(spec)},
                    {"shapes", spec.affects == methods::Affects::kSelection ? "selection" : "plan"},
                    {"help", spec.help},
                    {"source", spec.source}});
  }
  PrintRecords(rows, format,
               {.wrapped = {"range", "help", "source"},
                .optional = {"range", "shapes", "source"},
                .screen = screen});
}

std::string_view BaseUnit(Dimension dimension) {
  switch (dimension) {
    case Dimension::kNumber:
      return "";
    case Dimension::kTime:
      return "s";
    case Dimension::kBytes:
      return "B";
    case Dimension::kRate:
      return "B/s";
    case Dimension::kFlops:
      return "FLOP/s";
  }
  return "";
}

// Where a value comes from: its own source, or that of the table it stands in.
std::string SourceOf(const hardware::Profile& profile, const std::string& path) {
  const auto source = profile.sources.find(path);
  return source == profile.sources.end() ? "" : source->second;
}

void PrintMachine(const std::string& given, Format format, const Screen& screen) {
  const std::string name = sim::InUsualCase(given, hardware::ProfileNames());
  const hardware::Profile p = hardware::FindProfile(name);
  Json rows = Json::array();
  const auto add = [&](const std::string& path, double value, Dimension dimension,
                       std::string_view help, const std::string& source) {
    if (format == Format::kTable) {
      rows.push_back({{"path", path},
                      {"value", FormatQuantity(value, dimension)},
                      {"meaning", help},
                      {"source", source}});
    } else {
      rows.push_back({{"path", path},
                      {"value", value},
                      {"unit", BaseUnit(dimension)},
                      {"meaning", help},
                      {"source", source}});
    }
  };
  for (const hardware::ProfileField& field : hardware::ProfileFields()) {
    const std::string path(field.path);
    add(path, field.In(p), field.dimension, field.help, SourceOf(p, path));
  }
  for (const auto& [kind, fit] : p.kernels) {
    for (const hardware::KernelField& field : hardware::KernelFields()) {
      add(fmt::format("kernel.{}.{}", kind, field.path), fit.*field.member, field.dimension,
          field.help, fit.source);
    }
  }
  if (format == Format::kTable) {
    std::string text = fmt::format("{} ({}{})\n{}\n", p.title, ValuesOf(p),
                                   p.base.empty() ? "" : ", the rest of " + p.base,
                                   Wrap(p.provenance, screen.width));
    for (const std::string& note : p.notes) text += Aside("- " + note, screen);
    Print(text + "\n");
  }
  PrintRecords(rows, format,
               {.wrapped = {"meaning", "source"}, .optional = {"source"}, .screen = screen});
}

std::string Headline(const traces::proto::Model& m) {
  return fmt::format("{}: {} layers, {} query and {} KV heads of {}", m.name(), m.layers(),
                     m.query_heads(), m.kv_heads(), m.head_dim());
}

Json TensorRows(const traces::Trace& trace) {
  std::vector<traces::TensorSpec> specs;
  for (const traces::Tensor& tensor : trace.tensors) specs.push_back(tensor.spec);
  std::stable_sort(specs.begin(), specs.end(),
                   [](const auto& a, const auto& b) { return a.layer < b.layer; });
  Json rows = Json::array();
  for (const traces::TensorSpec& s : specs) {
    rows.push_back({{"layer", s.layer},
                    {"kind", Name(s.kind)},
                    {"dtype", Name(s.dtype)},
                    {"heads", s.heads},
                    {"head_dim", s.head_dim},
                    {"first_token", s.first_token},
                    {"tokens", s.tokens},
                    {"bytes", s.bytes()}});
  }
  return rows;
}

Json TimelineRows(const traces::Trace& trace) {
  Json rows = Json::array();
  for (size_t i = 0; i < trace.timelines.size(); ++i) {
    const traces::Timeline& t = trace.timelines[i];
    std::set<int32_t> steps(t.step.begin(), t.step.end());
    steps.erase(-1);
    Picoseconds first{0}, last{0};
    for (size_t row = 0; row < t.start.size(); ++row) {
      first = row == 0 ? t.start[row] : std::min(first, t.start[row]);
      last = std::max(last, t.start[row] + t.duration[row]);
    }
    rows.push_back({{"timeline", i + 1},
                    {"origin", Name(t.origin)},
                    {"rows", t.rows()},
                    {"lanes", t.lanes.size()},
                    {"steps", steps.size()},
                    {"waits", t.flows.size()},
                    {"span_ms", Milliseconds(last - first)},
                    {"title", t.title}});
  }
  return rows;
}

Json LaneRows(const traces::Trace& trace) {
  Json rows = Json::array();
  for (size_t i = 0; i < trace.timelines.size(); ++i) {
    const traces::Timeline& t = trace.timelines[i];
    std::vector<int64_t> count(t.lanes.size()), bytes(t.lanes.size());
    std::vector<double> milliseconds(t.lanes.size());
    for (size_t row = 0; row < t.start.size(); ++row) {
      ++count[t.lane[row]];
      bytes[t.lane[row]] += t.bytes[row];
      milliseconds[t.lane[row]] += Milliseconds(t.duration[row]);
    }
    for (size_t lane = 0; lane < t.lanes.size(); ++lane) {
      rows.push_back({{"timeline", i + 1},
                      {"lane", t.lanes[lane].name},
                      {"kind", Name(t.lanes[lane].kind)},
                      {"compute", t.lanes[lane].compute},
                      {"rows", count[lane]},
                      {"durations_ms", milliseconds[lane]},
                      {"bytes", bytes[lane]}});
    }
  }
  return rows;
}

Json LogRows(const traces::Trace& trace) {
  Json rows = Json::array();
  for (const traces::AccessLog& log : trace.access_logs) {
    rows.push_back({{"method", log.method},
                    {"unit", log.unit},
                    {"layers", log.layers.size()},
                    {"steps", log.steps},
                    {"params", log.params}});
  }
  return rows;
}

Json RecordingRows(const traces::Trace& trace) {
  Json rows = Json::array();
  for (size_t i = 0; i < trace.timelines.size(); ++i) {
    const traces::Timeline& t = trace.timelines[i];
    if (t.origin == traces::Timeline::Origin::kPredicted) continue;
    Json row = {{"timeline", i + 1}};
    row.update(SummaryJson(t, trace.info.machine()));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string Section(const std::string& title, const Json& rows) {
  if (rows.empty()) return "";
  return "\n" + title + "\n" + TableOf(rows, {.wrapped = {"title", "lane", "params"}});
}

void PrintTrace(const std::string& path, const ImportFlags& flags, Format format) {
  if (format == Format::kCsv) {
    throw UsageError("a trace is no single table", "--format csv", "choose table or json");
  }
  Progress progress;
  const traces::ImportedTrace imported = ImportFile(path, flags, progress, /*check=*/true);
  const traces::Trace& trace = imported.trace;
  const traces::ReadReport& report = imported.report;
  const traces::proto::TraceInfo& info = trace.info;
  const std::map<std::string, std::string> software(info.software().begin(), info.software().end());
  const std::map<std::string, std::string> parameters(info.parameters().begin(),
                                                      info.parameters().end());
  const std::vector<std::string> notes(info.notes().begin(), info.notes().end());
  if (format == Format::kJson) {
    const auto& m = info.model();
    return Print(ToJsonText({{"trace", path},
                             {"format", Name(imported.format)},
                             {"content_hash", report.content_hash},
                             {"synthetic", info.synthetic()},
                             {"model",
                              {{"name", m.name()},
                               {"layers", m.layers()},
                               {"query_heads", m.query_heads()},
                               {"kv_heads", m.kv_heads()},
                               {"head_dim", m.head_dim()}}},
                             {"prompt_tokens", info.prompt_tokens()},
                             {"decode_steps", info.decode_steps()},
                             {"machine", info.machine()},
                             {"provenance", info.provenance()},
                             {"created", info.created()},
                             {"software", software},
                             {"parameters", parameters},
                             {"notes", notes},
                             {"tensors", TensorRows(trace)},
                             {"timelines", TimelineRows(trace)},
                             {"lanes", LaneRows(trace)},
                             {"recordings", RecordingRows(trace)},
                             {"access_logs", LogRows(trace)},
                             {"chunks", report.chunks},
                             {"records_dropped", report.dropped},
                             {"zero_stamps", report.zero_stamps},
                             {"problems", report.problems}}) +
                 "\n");
  }
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    constexpr size_t kLabel = 12;
    if (value.empty()) return;
    // The first line begins where the others are indented to.
    const size_t width = OutputScreen().width;
    std::string lines = Wrap(std::string(kLabel, '.') + value, width, kLabel);
    text += fmt::format("{:<{}}{}\n", label, kLabel, lines.substr(kLabel));
  };
  line("trace", path + (info.synthetic() ? " (synthetic)" : ""));
  line("format", std::string(Name(imported.format)));
  if (imported.format == traces::FileFormat::kTrace) {
    line("model", Headline(info.model()));
    line("tokens", fmt::format("{} of the prompt, {} decoded", Count(info.prompt_tokens()),
                               Count(info.decode_steps())));
  }
  line("machine", info.machine());
  line("provenance", info.provenance());
  line("created", info.created());
  line("software", JoinPairs(software));
  line("parameters", JoinPairs(parameters));
  line("content", report.content_hash);
  for (const std::string& note : notes) line("note", note);
  text += Section("Tensors", TensorRows(trace));
  text += Section("Timelines", TimelineRows(trace));
  text += Section("Lanes", LaneRows(trace));
  for (size_t i = 0; i < trace.timelines.size(); ++i) {
    const traces::Timeline& t = trace.timelines[i];
    if (t.origin == traces::Timeline::Origin::kPredicted) continue;
    text += fmt::format("\nRecording (timeline {})\n{}", i + 1, SummaryText(t, info.machine()));
  }
  text += Section("Access logs", LogRows(trace));
  if (report.dropped > 0 || report.zero_stamps > 0) {
    text += fmt::format("\nThe writer lost {} records and saw {} without a time.\n",
                        Count(report.dropped), Count(report.zero_stamps));
  }
  text += report.problems.empty() ? "\nNo problems found.\n" : "\nProblems\n";
  for (const std::string& problem : report.problems) text += "- " + problem + '\n';
  Print(text);
}

void InfoCommand::Run() const {
  const int asked =
      !trace.empty() + methods + models + machines + !parameters.empty() + !machine.empty();
  if (asked != 1) {
    throw UsageError("one thing at a time", "info",
                     "give exactly one of FILE, --methods, --models, --machines, --parameters and "
                     "--machine");
  }
  if (!trace.empty()) PrintTrace(trace, flags, format);
  const Screen screen = ScreenFor(wide);
  if (methods) PrintMethods(format, screen);
  if (models) PrintModels(format, screen);
  if (machines) PrintMachines(format, screen);
  if (!parameters.empty()) PrintParameters(parameters, format, screen);
  if (!machine.empty()) PrintMachine(machine, format, screen);
}

}  // namespace

void AddInfo(CLI::App& app) {
  auto command = std::make_shared<InfoCommand>();
  CLI::App* sub = app.add_subcommand("info", "Show a trace, or the methods, models and machines");
  sub->description(
      R"(Shows what a file holds, or what stallcast knows. Files are .kvt, Perfetto, Chrome or Kineto
JSON (gzip too), or SQLite exports of Nsight Systems.

Examples:
  stallcast info )" STALLCAST_SAMPLE R"(
  stallcast info --methods
  stallcast info --parameters freekv
  stallcast info --machine h200)");
  sub->add_option("trace", command->trace, "File to show")->type_name("FILE");
  constexpr const char* kKnown = "What stallcast knows";
  sub->add_flag("--methods", command->methods, "Methods and their variants")->group(kKnown);
  sub->add_option("--parameters", command->parameters,
                  "Parameters of a method: default, range, source")
      ->type_name("METHOD")
      ->group(kKnown);
  sub->add_flag("--models", command->models, "Models")->group(kKnown);
  sub->add_flag("--machines", command->machines, "Machines, measured and derived")->group(kKnown);
  sub->add_option("--machine", command->machine, "Every value of a machine, with its source")
      ->type_name("NAME")
      ->group(kKnown);
  AddFormat(*sub, command->format);
  AddWide(*sub, command->wide);
  AddImportFlags(*sub, command->flags);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
