// stallcast reproduce
#include "sim/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <set>

#include "models/hardware/profile.h"
#include "sim/cli/assignments.h"
#include "sim/cli/commands.h"
#include "sim/cli/count_option.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/explanation.h"
#include "sim/names.h"

namespace stallcast::cli {
namespace {

using papers::Metric;
using sim::Reproduction;
using Status = Reproduction::Status;

constexpr double kMega = 1e6;

struct ReproduceCommand {
  std::vector<std::string> papers, rows, overrides;
  sim::ReproduceOptions options;
  bool no_cache = false, plain = false;
  Format format = Format::kTable;
  bool wide = false;

  std::vector<papers::Paper> Papers() const;
  void Run() const;
};

// The papers asked for, with the rows asked for.
std::vector<papers::Paper> ReproduceCommand::Papers() const {
  std::vector<papers::Paper> chosen;
  std::vector<papers::Paper> shipped = papers::ShippedPapers();
  std::vector<std::string> names;
  for (const papers::Paper& paper : shipped) names.push_back(paper.name);
  for (const std::string& name : papers) {
    if (name.ends_with(".toml")) {
      chosen.push_back(papers::LoadPaper(name));
      continue;
    }
    sim::CheckName("paper", name, names, "--paper");
    chosen.push_back(
        shipped[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())]);
  }
  if (papers.empty()) chosen = std::move(shipped);
  if (rows.empty()) return chosen;

  std::vector<std::string> known;
  for (papers::Paper& paper : chosen) {
    for (const papers::Row& row : paper.rows) known.push_back(row.id);
    std::erase_if(paper.rows, [&](const papers::Row& row) {
      return std::find(rows.begin(), rows.end(), row.id) == rows.end();
    });
  }
  for (const std::string& row : rows) sim::CheckName("row", row, known, "--row");
  return chosen;
}

std::string Figure(const Reproduction& r, double value) {
  if (std::isnan(value)) return "-";
  switch (*r.row->metric) {
    case Metric::kFits:
      return value > 0 ? "fits" : "does not fit";
    case Metric::kMemoryReduction:
    case Metric::kRoleShare:
      return Percent(value, 0) + " %";
    default:
      return Short(value) + " " + std::string(Unit(*r.row->metric));
  }
}

// As run, with its band where the host was not measured.
std::string AsRunFigure(const Reproduction& r) {
  if (!r.row->metric || std::isnan(r.as_run.predicted)) return "-";
  const std::string text = Figure(r, r.as_run.predicted);
  const double low = std::min(r.as_run.least, r.as_run.most);
  const double high = std::max(r.as_run.least, r.as_run.most);
  if (Short(low) == Short(high)) return text;
  const bool share =
      r.row->metric == Metric::kRoleShare || r.row->metric == Metric::kMemoryReduction;
  return fmt::format("{} ({}-{})", text, share ? Percent(low, 0) : Short(low),
                     share ? Percent(high, 0) : Short(high));
}

// The run that decided, where the row leaves a choice.
std::string CaseOf(const Reproduction& r) {
  if (r.runs.empty()) return r.reason;
  const papers::Run& run = r.runs.front().run;
  std::string text = fmt::format("{}, {} + {}, batch {}", run.model, Count(run.prompt),
                                 Count(run.generated), run.batch);
  if (r.runs.size() > 1 && r.runs.back().run.batch != run.batch) {
    text += fmt::format(" against {}", r.runs.back().run.batch);
  }
  return text;
}

std::string Verdict(const Reproduction& r) {
  if (r.status != Status::kPredicted) return std::string(Name(r.status));
  return r.off() ? "off" : "";
}

std::string Bullets(const std::vector<std::string>& lines, const Screen& screen) {
  std::string text;
  for (const std::string& line : lines) text += Aside("- " + line, screen);
  return text;
}

// How the runs of a row spend a step.
std::string Breakdown(const Reproduction& r, const Screen& screen) {
  std::string text;
  for (const sim::ReproducedRun& run : r.runs) {
    text += fmt::format("\n{}: {}, {} + {} tokens, batch {}\n", run.run.name, run.run.model,
                        Count(run.run.prompt), Count(run.run.generated), run.run.batch);
    const std::string totals = fmt::format(
        "step {} ms, prefill {} s, end to end {} s; recall {} MB a step, {} % hits, {} % of layers "
        "select before attention; {} GB on the GPU",
        Fixed(Milliseconds(run.step), 3), Short(Seconds(run.prefill)),
        Short(Seconds(run.EndToEnd())), Short(run.recall_bytes / kMega), Percent(run.hit_rate, 0),
        Percent(run.correction_rate, 0), Short(static_cast<double>(run.gpu_memory) / 1e9));
    text += Wrap(totals, screen.width) + "\n";
    TextTable roles(
        {{"role", "", true}, {"busy", "ms"}, {"exposed", "ms"}, {"critical path", "ms"}});
    for (size_t i = 0; i < traces::kRoles; ++i) {
      if (run.busy[i].count() == 0 && run.critical[i].count() == 0) continue;
      roles.Add({std::string(Name(static_cast<traces::Role>(i))),
                 Fixed(Milliseconds(run.busy[i]), 3), Fixed(Milliseconds(run.exposed[i]), 3),
                 Fixed(Milliseconds(run.critical[i]), 3)});
    }
    text += roles.Render(screen);
  }
  return text;
}

std::string SummaryText(const std::vector<Reproduction>& rows) {
  const sim::RatioSummary summary = sim::Summarize(rows);
  const auto count = [&](Status status) {
    return std::count_if(rows.begin(), rows.end(),
                         [&](const Reproduction& r) { return r.status == status; });
  };
  const auto near = std::count_if(rows.begin(), rows.end(), [](const Reproduction& r) {
    return !std::isnan(r.as_run.ratio) && !r.as_run.off();
  });
  const bool as_run = std::any_of(rows.begin(), rows.end(), [](const Reproduction& r) {
    return !std::isnan(r.as_run.predicted);
  });
  return fmt::format(
      "{} rows: {} predicted, {} not built, {} inputs, {} without room.\n"
      "Our own program over published, {} rows: P10 {}, P50 {}, P90 {}; {} within 25 %.{}\n",
      rows.size(), count(Status::kPredicted), count(Status::kNotBuilt), count(Status::kInput),
      count(Status::kNoRoom), summary.rows, Fixed(summary.p10, 2), Fixed(summary.p50, 2),
      Fixed(summary.p90, 2), summary.within,
      as_run ? fmt::format(" As run: {}. A method's public program is taken where it is written "
                           "down, else our kernels called from PyTorch; the band is 6 to 17 us for "
                           "each operator of a host that was not measured.",
                           near)
             : std::string());
}

std::string Report(const std::vector<papers::Paper>& papers, const std::vector<Reproduction>& rows,
                   bool details, const Screen& screen) {
  TextTable table({{.title = "row", .left = true},
                   {.title = "what", .left = true, .rank = 2, .wraps = true},
                   {.title = "published"},
                   {.title = "our own", .unit = "program"},
                   {.title = "ratio"},
                   {.title = "", .left = true},
                   {.title = "as run", .unit = "(host band)"},
                   {.title = "ratio"},
                   {.title = "for", .left = true, .rank = 1, .wraps = true}});
  for (const Reproduction& r : rows) {
    table.Add({r.row->id, r.row->what, r.row->published_as,
               r.row->metric ? Figure(r, r.predicted) : "-", Fixed(r.ratio, 2), Verdict(r),
               AsRunFigure(r), Fixed(r.as_run.ratio, 2), CaseOf(r)});
  }
  std::string text =
      table.Render(screen) + "\n" + Reflow(SummaryText(rows), screen.width) +
      Wrap(
          "All from short synthetic traces, projected to the model, context and batch; derived: "
          "a machine known from published figures alone.",
          screen.width) +
      "\n";
  for (const papers::Paper& paper : papers) {
    if (paper.rows.empty()) continue;
    const hardware::Profile profile = hardware::FindProfile(paper.machine);
    text += fmt::format("\n{} on {} ({})\n{}\n", paper.title, profile.title, profile.status,
                        Wrap(paper.source, screen.width));
    text += Bullets(paper.assumptions, screen);
    for (const papers::Condition& condition : paper.conditions) {
      text += Aside(
          fmt::format("- synthetic trace '{}': similarity {}, segments of {}, {} of jumps common "
                      "to all heads, {} units attended ({})",
                      condition.name, condition.similarity, condition.segment_length,
                      condition.head_correlation, condition.spread, condition.source),
          screen);
    }
    std::set<std::string> notes;
    for (const Reproduction& r : rows) {
      if (r.paper != &paper) continue;
      for (const std::string& assumption : r.row->assumptions) {
        text += Aside(fmt::format("- {}: {}", r.row->id, assumption), screen);
      }
      const bool without_room = r.status == Status::kNoRoom;
      if ((r.off() || without_room) && !r.row->explanation.empty()) {
        text += Aside(fmt::format("- {} {}: {}", r.row->id,
                                  without_room ? "does not fit" : "is off", sim::Explanation(r)),
                      screen);
      }
      // Projections are the same for all; a row by itself tells which contexts.
      std::copy_if(r.notes.begin(), r.notes.end(), std::inserter(notes, notes.end()),
                   [&](const std::string& note) {
                     return details || note.starts_with("extrapolated") ||
                            note.starts_with("overridden");
                   });
    }
    text += Bullets({notes.begin(), notes.end()}, screen);
  }
  if (details) {
    for (const Reproduction& r : rows) text += Breakdown(r, screen);
  }
  return text;
}

Json NumberOrNull(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }

Json Records(const std::vector<Reproduction>& rows) {
  Json records = Json::array();
  for (const Reproduction& r : rows) {
    Json record;
    record["row"] = r.row->id;
    record["paper"] = r.paper->name;
    record["what"] = r.row->what;
    record["where"] = r.row->where;
    record["status"] = Name(r.status);
    record["reason"] = r.reason;
    record["metric"] = r.row->metric ? Name(*r.row->metric) : "";
    record["unit"] = r.row->metric ? Unit(*r.row->metric) : "";
    record["predicted"] = NumberOrNull(r.predicted);
    record["published"] = r.row->metric ? Json(r.row->published) : Json(nullptr);
    record["published_as"] = r.row->published_as;
    record["ratio"] = NumberOrNull(r.ratio);
    record["as_run"] = NumberOrNull(r.as_run.predicted);
    record["as_run_least"] = NumberOrNull(r.as_run.least);
    record["as_run_most"] = NumberOrNull(r.as_run.most);
    record["as_run_ratio"] = NumberOrNull(r.as_run.ratio);
    record["off"] = r.off();
    record["machine"] = r.paper->machine;
    record["for"] = r.runs.empty() ? "" : CaseOf(r);
    record["assumptions"] = r.paper->assumptions;
    for (const std::string& each : r.row->assumptions) record["assumptions"].push_back(each);
    record["explanation"] = r.off() ? sim::Explanation(r) : "";
    record["notes"] = r.notes;
    records.push_back(std::move(record));
  }
  return records;
}

void ReproduceCommand::Run() const {
  std::vector<papers::Paper> chosen = Papers();
  Progress progress;
  sim::ReproduceOptions run = options;
  run.cache = !no_cache;
  run.as_run = !plain;
  for (papers::Paper& paper : chosen) {
    run.machine_overrides = OverridesOf(overrides, paper.machine);
    if (overrides.empty()) continue;
    // Explanations are of the machines as their profiles have them.
    for (papers::Row& row : paper.rows) row.explanation.clear();
  }
  run.progress = [&](const std::string& what, double share) { progress.Update(what, share); };
  const std::vector<Reproduction> results = sim::Reproduce(chosen, run);
  progress.Clear();
  switch (format) {
    case Format::kJson: {
      const sim::RatioSummary s = sim::Summarize(results);
      const Json summary = {{"rows", s.rows},
                            {"within_25_percent", s.within},
                            {"ratio_p10", NumberOrNull(s.p10)},
                            {"ratio_p50", NumberOrNull(s.p50)},
                            {"ratio_p90", NumberOrNull(s.p90)}};
      return Print(ToJsonText({{"summary", summary}, {"rows", Records(results)}}) + "\n");
    }
    case Format::kCsv:
      return Print(ToCsv(Records(results)));
    case Format::kTable:
      return Print(Report(chosen, results, !rows.empty(), ScreenFor(wide)));
  }
}

}  // namespace

void AddReproduce(CLI::App& app) {
  auto command = std::make_shared<ReproduceCommand>();
  CLI::App* sub = app.add_subcommand("reproduce", "Predict what papers published");
  sub->description(
      R"(Predicts the experiments that papers published, beside their figures, with what they leave open.

Examples:
  stallcast reproduce
  stallcast reproduce --paper freekv
  stallcast reproduce --row freekv-hl
  stallcast reproduce --paper pariskv --set host.op=50us

One profile a machine serves all papers; queries and keys are synthetic, with the statistics that
the papers state. A row by name is shown with its runs, role by role.)");
  constexpr const char* kWhat = "What to predict";
  sub->add_option("--paper", command->papers, "Shipped paper or file.toml, several by commas")
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kWhat);
  sub->add_option("--row", command->rows, "Rows, several by commas")
      ->type_name("ID")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kWhat);
  AddCount(*sub, "--steps", command->options.steps,
           fmt::format("Decode steps at each point of a generation (default {})",
                       command->options.steps),
           1, 100'000)
      ->group(kWhat);
  sub->add_flag("--plain", command->plain, "Our own program alone, not the papers' as run")
      ->group(kWhat);
  sub->add_flag("--no-cache", command->no_cache, "Replay afresh and store no access log")
      ->group(kWhat);
  AddSet(*sub, command->overrides, kWhat);
  AddFormat(*sub, command->format);
  AddWide(*sub, command->wide);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
