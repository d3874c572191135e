#include "sim/cli/prediction_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "sim/cli/prediction_record.h"
#include "sim/prediction_fields.h"

namespace stallcast::cli {
namespace {

using sim::Prediction;

constexpr size_t kTableWidth = 140;
constexpr double kMega = 1e6;
constexpr double kGibi = 1024.0 * 1024 * 1024;

// Milliseconds to about four digits.
std::string TimeCell(Picoseconds time) {
  const double value = Milliseconds(time);
  return Fixed(value, value < 100 ? 2 : 1);
}

std::string Gibibytes(Bytes bytes) { return Fixed(static_cast<double>(bytes) / kGibi, 1); }

std::string Heading(const MachinePredictions& machine, const std::string& trace) {
  const sim::PredictRequest& r = machine.rows.front().request;
  std::string text =
      fmt::format("{}{} on {} ({})", machine.rows.front().model.name,
                  r.tensor_parallel > 1 ? fmt::format(", one of {} GPUs", r.tensor_parallel) : "",
                  machine.profile.title, machine.profile.status);
  for (const auto& [path, value] : r.machine_overrides)
    text += fmt::format(", {} = {}", path, value);
  text += fmt::format("\ncontext {}, batch {}, {} steps{}, trace {}\n", Count(r.context), r.batch,
                      Count(r.steps), r.graph ? " as CUDA graphs" : "", trace);
  return text;
}

// Each note once; one that not all rows have says whose it is.
std::string Notes(const MachinePredictions& machine) {
  std::vector<std::pair<std::string, std::vector<std::string>>> notes;
  for (const Prediction& p : machine.rows) {
    for (const std::string& note : p.notes) {
      auto at =
          std::find_if(notes.begin(), notes.end(), [&](const auto& n) { return n.first == note; });
      if (at == notes.end()) at = notes.insert(at, {note, {}});
      if (at->second.empty() || at->second.back() != p.request.method) {
        at->second.push_back(p.request.method);
      }
    }
  }
  std::string text;
  for (const auto& [note, methods] : notes) {
    text += "- " + note;
    if (methods.size() < machine.rows.size())
      text += fmt::format(" ({})", fmt::join(methods, ", "));
    text += '\n';
  }
  for (const LeftOut& each : machine.left_out) {
    text += fmt::format("- left out: {}: {}\n", each.method, each.reason);
  }
  return text;
}

// The search for the largest that fits ends here: memory does not grow with it.
constexpr int64_t kAnyContext = int64_t{1} << 30;
constexpr int64_t kAnyBatch = int64_t{1} << 20;

std::string Largest(int64_t value, int64_t any) {
  return value >= any ? "any" : value > 0 ? Count(value) : "none";
}

}  // namespace

void SortBestFirst(std::vector<Prediction>& predictions) {
  std::stable_sort(predictions.begin(), predictions.end(),
                   [](const Prediction& a, const Prediction& b) {
                     return a.fits != b.fits ? a.fits : a.metrics.step_mean < b.metrics.step_mean;
                   });
}

std::string ComparisonTable(const MachinePredictions& machine, const std::string& trace,
                            bool wide) {
  std::vector<TextTable::Column> columns = {{"", "", true}, {"method", "", true}, {"mean", "ms"},
                                            {"P50", "ms"},  {"P95", "ms"},        {"tokens", "/s"}};
  const bool sampled = machine.rows.front().sampled.has_value();
  if (sampled) {
    columns.insert(columns.end(), {{"sampled", "P10 ms"}, {"", "P50 ms"}, {"", "P90 ms"}});
  }
  columns.insert(columns.end(), {{"exposed", "ms"},
                                 {"mostly", "", true, 2},
                                 {"recall", "MB", false, 1},
                                 {"hits", "%", false, 3},
                                 {"select", "now %", false, 4},
                                 {"mass", ""}});
  // Only traces with values know it.
  const bool error = std::any_of(machine.rows.begin(), machine.rows.end(),
                                 [](const Prediction& p) { return p.selection.output_error > 0; });
  if (error) columns.push_back({"error", "%"});
  columns.insert(columns.end(), {{"evicted", "/head", false, 9},
                                 {"GPU", "GiB"},
                                 {"host", "GiB", false, 5},
                                 {"largest", "context", false, 7},
                                 {"largest", "batch", false, 8},
                                 {"ceiling", "ms", false, 6},
                                 {"above", "%", false, 1},
                                 {"prefill", "s", false, 5}});
  TextTable table(columns);
  const bool fits = std::all_of(machine.rows.begin(), machine.rows.end(),
                                [](const Prediction& p) { return p.fits; });
  for (const Prediction& p : machine.rows) {
    const sim::Metrics& m = p.metrics;
    const bool best = p.fits && &p == &machine.rows.front();
    std::vector<std::string> cells = {best ? "*" : "", p.request.method};
    const auto time = [&](const std::string& text) { cells.push_back(p.fits ? text : ""); };
    cells.push_back(p.fits ? TimeCell(m.step_mean) : "does not fit");
    time(TimeCell(m.step_p50));
    time(TimeCell(m.step_p95));
    time(Short(m.tokens_per_second));
    if (sampled) {
      time(TimeCell(p.sampled->p10));
      time(TimeCell(p.sampled->p50));
      time(TimeCell(p.sampled->p90));
    }
    time(TimeCell(m.exposed));
    time(sim::MostExposedRole(m));
    cells.push_back(Short(static_cast<double>(m.recall_bytes) / kMega));
    cells.push_back(Percent(p.selection.hit_rate, 0));
    cells.push_back(Percent(p.selection.correction_rate, 0));
    cells.push_back(Fixed(p.selection.attention_mass, 3));
    if (error) cells.push_back(Percent(p.selection.output_error));
    cells.push_back(Short(p.selection.evictions));
    cells.push_back(Gibibytes(p.gpu_memory) + (p.gpu_memory > p.gpu_limit ? "!" : ""));
    cells.push_back(Gibibytes(p.footprint.host) + (p.footprint.host > p.host_limit ? "!" : ""));
    cells.push_back(Largest(p.largest_context, kAnyContext));
    cells.push_back(Largest(p.largest_batch, kAnyBatch));
    time(TimeCell(m.ceiling));
    time(Percent(sim::AboveCeiling(m), 0));
    time(p.prefill ? Short(Seconds(*p.prefill)) : "-");
    table.Add(std::move(cells));
  }
  return Heading(machine, trace) + "\n" + table.Render(wide ? 0 : kTableWidth) +
         "\n* fastest that fits; mean, P50, P95: of the time of a step; exposed: GPU idle a step, "
         "mostly\n"
         "  waiting for the role beside it; recall: moved a step; select now: layers that select "
         "before their\n"
         "  attention (FreeKV: corrections); mass: share of attention kept;\n  " +
         (error ? "error: of the attention output against full attention;\n  " : "") +
         "above: mean step over the ceiling, the least time for the same work" +
         (wide ? "; evicted: units that\n  leave the GPU, a layer and selection head"
               : "; --wide shows all columns") +
         (fits ? "" : ";\n  !: more memory than there is") + "\n" + Notes(machine);
}

std::string Report(const MachinePredictions& machine, const std::string& trace) {
  const Prediction& p = machine.rows.front();
  const sim::Metrics& m = p.metrics;
  std::string text = p.request.method + ": " + Heading(machine, trace) + "\n";
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12}{}\n", label, value);
  };
  line("step", fmt::format("{} ms P50, {} P95, {} mean: {} tokens/s",
                           Fixed(Milliseconds(m.step_p50), 3), Fixed(Milliseconds(m.step_p95), 3),
                           Fixed(Milliseconds(m.step_mean), 3), Short(m.tokens_per_second)));
  if (p.sampled) {
    line("sampled",
         fmt::format("{} ms P10, {} P50, {} P90 of the mean step over {} samples",
                     Fixed(Milliseconds(p.sampled->p10), 3), Fixed(Milliseconds(p.sampled->p50), 3),
                     Fixed(Milliseconds(p.sampled->p90), 3), p.request.samples));
  }
  line("ceiling", fmt::format("{} ms is the least time for the same work; the step is {} % above",
                              Fixed(Milliseconds(m.ceiling), 3), Percent(sim::AboveCeiling(m))));
  const std::string role = sim::MostExposedRole(m);
  line("exposed", fmt::format("{} ms of GPU idle time a step{}", Fixed(Milliseconds(m.exposed), 3),
                              role.empty() ? "" : ", most of it waiting for " + role));
  if (p.prefill) line("prefill", fmt::format("{} s to the first step", Short(Seconds(*p.prefill))));

  TextTable roles({{"role", "", true},
                   {"busy", "ms"},
                   {"exposed", "ms"},
                   {"overlapped", "%"},
                   {"moved", "MB"},
                   {"critical path", "ms"}});
  for (int r = 0; r < traces::kRoles; ++r) {
    const sim::RoleTime& time = m.roles[r];
    if (time.busy.count() == 0 && time.exposed.count() == 0 && m.critical[r].count() == 0) continue;
    roles.Add(
        {std::string(Name(static_cast<traces::Role>(r))), Fixed(Milliseconds(time.busy), 3),
         Fixed(Milliseconds(time.exposed), 3), time.busy.count() ? Percent(time.overlap()) : "-",
         Short(static_cast<double>(time.bytes) / kMega), Fixed(Milliseconds(m.critical[r]), 3)});
  }
  text += "\nA step by role\n" + roles.Render() + "\n";

  const sim::SelectionMetrics& s = p.selection;
  line("attention",
       fmt::format("mass {} of the true attention weight{}{}", Fixed(s.attention_mass, 4),
                   std::isnan(s.attention_mass) ? " (not known)" : "",
                   std::isnan(s.output_error) ? ""
                                              : fmt::format(", relative error of the output {} %",
                                                            Percent(s.output_error, 2))));
  if (!std::isnan(s.hit_rate)) {
    line("selection",
         fmt::format("{} % hits on the GPU, {} % of layers select before attention, similarity {}",
                     Percent(s.hit_rate), Percent(s.correction_rate), Fixed(s.similarity, 3)));
  }
  if (s.evictions > 0) {
    line("evicted", fmt::format("{} units a layer and selection head, a step", Short(s.evictions)));
  }
  if (!std::isnan(s.kept)) {
    line("cache", fmt::format("{} % of the context is kept, {} % of layers evict in a step",
                              Percent(s.kept), Percent(s.eviction_rate)));
  }
  if (m.recall_bytes > 0) {
    line("recall",
         fmt::format("{} MB a step in {} pieces at {}",
                     Short(static_cast<double>(m.recall_bytes) / kMega), Short(m.recall_pieces),
                     FormatQuantity(m.recall_rate, Dimension::kRate)));
  }
  const auto& f = p.footprint;
  const auto fits = [](Bytes need, Bytes limit) { return need > limit ? ": DOES NOT FIT" : ""; };
  line("GPU memory",
       fmt::format("{} GiB of {} ({} left free): weights {}, KV {}, index {}, buffers {}, "
                   "activations {}{}",
                   Gibibytes(p.gpu_memory), Gibibytes(p.gpu_limit), Gibibytes(sim::kGpuReserve),
                   Gibibytes(p.weights), Gibibytes(f.gpu_kv), Gibibytes(f.gpu_index),
                   Gibibytes(f.gpu_buffers), Gibibytes(f.gpu_activations),
                   fits(p.gpu_memory, p.gpu_limit)));
  line("host memory", fmt::format("{} GiB of {}{}", Gibibytes(f.host), Gibibytes(p.host_limit),
                                  fits(f.host, p.host_limit)));
  line("largest",
       fmt::format("context {} at this batch, batch {} at this context",
                   Largest(p.largest_context, kAnyContext), Largest(p.largest_batch, kAnyBatch)));
  if (!p.params.empty()) line("parameters", JoinPairs(p.params));
  const std::string notes = Notes(machine);
  return notes.empty() ? text : text + "\n" + notes;
}

Json Records(const std::vector<MachinePredictions>& machines,
             const sim::ResultStore::Trace& trace) {
  Json records = Json::array();
  for (const MachinePredictions& machine : machines) {
    for (const Prediction& p : machine.rows) {
      Json record = RecordOf(p, trace);
      record["best"] = p.fits && &p == &machine.rows.front();
      records.push_back(std::move(record));
    }
  }
  return records;
}

Json LeftOutRecords(const std::vector<MachinePredictions>& machines) {
  Json records = Json::array();
  for (const MachinePredictions& machine : machines) {
    for (const LeftOut& each : machine.left_out) {
      records.push_back(
          {{"machine", machine.profile.name}, {"method", each.method}, {"reason", each.reason}});
    }
  }
  return records;
}

}  // namespace stallcast::cli
