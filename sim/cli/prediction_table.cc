// Predictions of several methods as a table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/cli/notes.h"
#include "sim/cli/prediction_output.h"
#include "sim/prediction_fields.h"

namespace stallcast::cli {
namespace {

using sim::Prediction;

constexpr double kMega = 1e6;
constexpr double kGibi = 1024.0 * 1024 * 1024;

// Milliseconds to about four digits.
std::string TimeCell(Picoseconds time) {
  const double value = Milliseconds(time);
  return Fixed(value, value < 100 ? 2 : 1);
}

std::string Gibibytes(Bytes bytes) { return Fixed(static_cast<double>(bytes) / kGibi, 1); }

// The search for the largest that fits ends here: memory does not grow with it.
constexpr int64_t kAnyContext = int64_t{1} << 30;
constexpr int64_t kAnyBatch = int64_t{1} << 20;

std::string Largest(int64_t value, int64_t any) {
  return value >= any ? "any" : value > 0 ? Count(value) : "none";
}

// A column of the table and its cell for a prediction.
struct PredictionColumn {
  TextTable::Column column;
  std::string (*cell)(const Prediction&, const sim::Requirements&);
  bool of_time = false;  // blank where it does not fit
};

std::string Marked(const std::string& text, bool good) { return good ? text : text + "!"; }

// The columns that some of the rows need.
struct Needed {
  bool band = false, sampled = false, error = false;
};

std::vector<PredictionColumn> Columns(const Needed& needed) {
  using P = const Prediction&;
  using R = const sim::Requirements&;
  std::vector<PredictionColumn> columns = {
      {{.title = "method", .left = true}, [](P p, R) { return p.request.method; }},
      {{.title = "mean", .unit = "ms", .help = "time of a step"},
       [](P p, R r) {
         return p.fits ? Marked(TimeCell(p.metrics.step_mean), r.StepEnough(sim::FiguresOf(p)))
                       : std::string("does not fit");
       }},
      {{.title = "P50", .unit = "ms", .rank = 6},
       [](P p, R) { return TimeCell(p.metrics.step_p50); },
       true},
      {{.title = "P95", .unit = "ms", .rank = 4},
       [](P p, R) { return TimeCell(p.metrics.step_p95); },
       true},
      {{.title = "tokens", .unit = "/s", .rank = 1},
       [](P p, R) { return Short(p.metrics.tokens_per_second); },
       true}};
  if (needed.band) {
    columns.insert(columns.begin() + 2,
                   {{.title = "host", .unit = "band ms", .help = "with the host's least and most"},
                    [](P p, R) {
                      if (!p.host_band) return std::string("-");
                      return fmt::format("{}-{}", TimeCell(p.host_band->least),
                                         TimeCell(p.host_band->most));
                    },
                    true});
  }
  if (needed.sampled) {
    columns.insert(
        columns.end(),
        {{{.title = "sampled", .unit = "P10 ms", .rank = 3, .help = "the mean step over samples"},
          [](P p, R) { return TimeCell(p.sampled->p10); },
          true},
         {{.title = "", .unit = "P50 ms", .rank = 3},
          [](P p, R) { return TimeCell(p.sampled->p50); },
          true},
         {{.title = "", .unit = "P90 ms", .rank = 3},
          [](P p, R) { return TimeCell(p.sampled->p90); },
          true}});
  }
  columns.insert(
      columns.end(),
      {{{.title = "exposed", .unit = "ms", .rank = 2, .help = "GPU idle in a step"},
        [](P p, R) { return TimeCell(p.metrics.exposed); },
        true},
       {{.title = "mostly", .left = true, .rank = 3, .help = "the role most waited for"},
        [](P p, R) { return sim::MostExposedRole(p.metrics); },
        true},
       {{.title = "recall", .unit = "MB", .rank = 5, .help = "moved to the GPU in a step"},
        [](P p, R) { return Short(static_cast<double>(p.metrics.recall_bytes) / kMega); }},
       {{.title = "hits", .unit = "%", .rank = 8, .help = "selected units that were on the GPU"},
        [](P p, R) { return Percent(p.selection.hit_rate, 0); }},
       {{.title = "select",
         .unit = "now %",
         .rank = 12,
         .help = "layers that select before their attention (FreeKV: corrections)"},
        [](P p, R) { return Percent(p.selection.correction_rate, 0); }},
       {{.title = "mass", .help = "share of the attention weight kept"}, [](P p, R r) {
          return Marked(r.MassText(p.selection.attention_mass), r.MassEnough(sim::FiguresOf(p)));
        }}});
  if (needed.error) {
    columns.push_back({{.title = "error",
                        .unit = "%",
                        .rank = 2,
                        .help = "of the attention output against full attention"},
                       [](P p, R) { return Percent(p.selection.output_error); }});
  }
  columns.insert(
      columns.end(),
      {{{.title = "evicted",
         .unit = "/head",
         .rank = 15,
         .help = "units that leave the GPU in a step, a layer and selection head"},
        [](P p, R) { return Short(p.selection.evictions); }},
       {{.title = "GPU", .unit = "GiB"},
        [](P p, R r) {
          return Marked(Gibibytes(p.gpu_memory),
                        p.gpu_memory <= p.gpu_limit && r.GpuEnough(sim::FiguresOf(p)));
        }},
       {{.title = "host", .unit = "GiB", .rank = 7},
        [](P p, R) {
          return Marked(Gibibytes(p.footprint.host), p.footprint.host <= p.host_limit);
        }},
       {{.title = "largest", .unit = "context", .rank = 13},
        [](P p, R) { return LargestContext(p); }},
       {{.title = "largest", .unit = "batch", .rank = 14}, [](P p, R) { return LargestBatch(p); }},
       {{.title = "ceiling",
         .unit = "ms",
         .rank = 11,
         .help = "the least time that any schedule of the same work takes"},
        [](P p, R) { return TimeCell(p.metrics.ceiling); },
        true},
       {{.title = "over", .unit = "ceiling", .rank = 9, .help = "mean over the ceiling"},
        [](P p, R) {
          const double above = sim::AboveCeiling(p.metrics);
          return std::isnan(above) ? std::string("-") : Fixed(1 + above, 2) + "x";
        },
        true},
       {{.title = "prefill", .unit = "s", .rank = 10},
        [](P p, R) { return p.prefill ? Short(Seconds(*p.prefill)) : std::string("-"); },
        true}});
  return columns;
}

// What the star stands for, or why there is none.
std::string StarLine(const std::vector<Prediction>& rows, const sim::Requirements& required) {
  const std::string flags = "(--min-mass, --max-gpu, --max-step)";
  if (BestRow(rows, required) < rows.size()) {
    return fmt::format("* the fastest that fits with {} {}", required.Describe(), flags);
  }
  const Prediction& nearest = rows[ChosenRow(rows, required)];
  return fmt::format("None fits with {} {}. The nearest is {}: {}.", required.Describe(), flags,
                     nearest.request.method,
                     fmt::join(required.Missed(sim::FiguresOf(nearest)), "; "));
}

}  // namespace

std::string LargestContext(const Prediction& p) { return Largest(p.largest_context, kAnyContext); }
std::string LargestBatch(const Prediction& p) { return Largest(p.largest_batch, kAnyBatch); }

void Sort(std::vector<Prediction>& predictions, const SortOrder& order) {
  std::stable_sort(predictions.begin(), predictions.end(),
                   [&](const Prediction& a, const Prediction& b) {
                     if (a.fits != b.fits) return a.fits;
                     return order.Before(order.field().Of(a), order.field().Of(b));
                   });
}

size_t BestRow(const std::vector<Prediction>& rows, const sim::Requirements& required) {
  std::vector<sim::Figures> figures;
  for (const Prediction& p : rows) figures.push_back(sim::FiguresOf(p));
  return sim::FastestThatMeets(figures, required);
}

size_t ChosenRow(const std::vector<Prediction>& rows, const sim::Requirements& required) {
  const size_t best = BestRow(rows, required);
  if (best < rows.size()) return best;
  std::vector<sim::Figures> figures;
  for (const Prediction& p : rows) figures.push_back(sim::FiguresOf(p));
  return sim::Nearest(figures, required);
}

std::string Heading(const MachinePredictions& machine, const std::string& trace,
                    const Screen& screen) {
  const Prediction& first = machine.rows.front();
  const sim::PredictRequest& r = first.request;
  std::string what =
      fmt::format("{}{} on {} ({})", first.model.name,
                  r.tensor_parallel > 1 ? fmt::format(", one of {} GPUs", r.tensor_parallel) : "",
                  machine.profile.title, machine.profile.status);
  for (const auto& [path, value] : r.machine_overrides)
    what += fmt::format(", {} = {}", path, value);
  const std::string run =
      fmt::format("context {}, batch {}, {} steps of {}, trace {}", Count(r.context), r.batch,
                  Count(r.steps), sim::ProgramOf(r), trace);
  return Wrap(what, screen.width, 2) + "\n" + Wrap(run, screen.width, 2) + "\n";
}

std::string Notes(const MachinePredictions& machine, const Screen& screen) {
  NoteList notes;
  std::set<std::string> everyone;
  for (const Prediction& p : machine.rows) {
    everyone.insert(p.request.method);
    for (const std::string& note : p.notes) notes.Add(note, p.request.method);
  }
  std::string text = notes.Render(everyone, screen);
  for (const std::string& each : machine.remarks) text += Aside("- " + each, screen);
  for (const LeftOut& each : machine.left_out) {
    text += Aside(fmt::format("- left out: {}: {}", each.method, each.reason), screen);
  }
  return text;
}

std::string ComparisonTable(const MachinePredictions& machine, const std::string& trace,
                            const TableForm& form) {
  const auto any = [&](auto has) {
    return std::any_of(machine.rows.begin(), machine.rows.end(), has);
  };
  const std::vector<PredictionColumn> columns =
      Columns({.band = any([](const Prediction& p) { return p.host_band.has_value(); }),
               .sampled = machine.rows.front().sampled.has_value(),
               // Only traces with values know it.
               .error = any([](const Prediction& p) { return p.selection.output_error > 0; })});
  std::vector<TextTable::Column> shown = {{.title = "", .left = true}};
  for (const PredictionColumn& each : columns) shown.push_back(each.column);
  TextTable table(shown);
  const size_t best = BestRow(machine.rows, form.required);
  bool misses = false;
  for (size_t i = 0; i < machine.rows.size(); ++i) {
    const Prediction& p = machine.rows[i];
    std::vector<std::string> cells = {i == best ? "*" : ""};
    for (const PredictionColumn& each : columns) {
      cells.push_back(each.of_time && !p.fits ? "" : each.cell(p, form.required));
      misses |= cells.back().ends_with('!');
    }
    table.Add(std::move(cells), !p.fits ? Tone::kBad : i == best ? Tone::kStrong : Tone::kPlain);
  }
  return Heading(machine, trace, form.screen) + "\n" + table.Render(form.screen) + "\n" +
         Wrap(StarLine(machine.rows, form.required), form.screen.width, 2) + "\n" +
         Aside(table.Legend(form.screen) +
                   (misses ? fmt::format("; !: misses what is asked for ({}), or needs more memory "
                                         "than there is",
                                         form.required.Describe())
                           : ""),
               form.screen) +
         Notes(machine, form.screen);
}

}  // namespace stallcast::cli
