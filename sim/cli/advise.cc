// stallcast advise
#include "sim/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "sim/cli/commands.h"
#include "sim/cli/count_option.h"
#include "sim/cli/notes.h"
#include "sim/cli/output.h"
#include "sim/cli/prediction_record.h"
#include "sim/cli/requirement_options.h"
#include "sim/cli/run_options.h"
#include "sim/names.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"
#include "traces/samples.h"

namespace stallcast::cli {
namespace {

using sim::Candidate;
using sim::Objective;

constexpr size_t kMostShown = 10;
constexpr double kGibi = 1024.0 * 1024 * 1024;

struct AdviseCommand {
  std::string trace, batch = "1", objective = "tokens/s";
  std::vector<std::string> grid, prices;
  bool exact = false;
  RunOptions run;
  sim::AdviseRequest request;
  Format format = Format::kTable;
  bool wide = false;

  void Run() const;
  sim::AdviseRequest Request() const;
  std::string Text(const sim::AdviseRequest& asked, const sim::Advice& advice) const;
};

Objective ObjectiveNamed(const std::string& name) {
  if (name == "tokens/s") return Objective::kTokensPerSecond;
  if (name == "step") return Objective::kStep;
  if (name == "cost") return Objective::kCost;
  throw UsageError("unknown objective '" + name + "'", "--objective",
                   "choose tokens/s, step or cost");
}

std::string_view Words(Objective objective) {
  switch (objective) {
    case Objective::kTokensPerSecond:
      return "most tokens a second";
    case Objective::kStep:
      return "shortest mean step";
    case Objective::kCost:
      return "least cost a million tokens";
  }
  return "";
}

// What the axes ask for, besides what the options themselves say.
sim::AdviseRequest AdviseCommand::Request() const {
  sim::AdviseRequest asked = request;
  asked.objective = ObjectiveNamed(objective);
  if (exact) asked.extent = sim::Extent::kAll;
  asked.methods = run.Methods();
  asked.machines = run.Machines();
  asked.batches = sim::ParseAxis("batch=" + batch).values;
  asked.base = run.RequestFor(asked.methods.front(), asked.machines.front());
  asked.base.params.clear();
  asked.base.prefill = false;
  for (sim::Axis& axis : run.Axes(grid)) {
    if (axis.name == "method") {
      asked.methods = axis.values;
    } else if (axis.name == "machine") {
      asked.machines = axis.values;
    } else if (axis.name == "batch") {
      asked.batches = axis.values;
    } else {
      asked.params.push_back(std::move(axis));
    }
  }
  for (const sim::Axis& axis : asked.params) {
    const bool known = std::any_of(
        asked.methods.begin(), asked.methods.end(),
        [&](const std::string& method) { return sim::HasParameter(method, axis.name); });
    if (known) continue;
    throw UsageError(
        "no method searched has a parameter " + axis.name, "--grid",
        "give a parameter, method, machine or batch; one context is advised at a time");
  }
  for (const auto& [machine, price] : Split(prices, "--price", "--price h200=3.50")) {
    const std::string name = sim::InUsualCase(machine, hardware::ProfileNames());
    asked.price_per_hour[name] = ParseQuantity(price, Dimension::kNumber, "--price");
  }
  return asked;
}

// The values of a candidate that were searched.
std::string ParamsOf(const Candidate& c) { return JoinPairs(c.point.request.params); }

std::string NameOf(const Candidate& c) {
  const std::string params = ParamsOf(c);
  return fmt::format("{}{}{} on {}, batch {}", c.prediction.request.method,
                     params.empty() ? "" : " ", params, c.prediction.request.machine,
                     c.prediction.request.batch);
}

std::string ValueText(const Candidate& c, Objective objective) {
  switch (objective) {
    case Objective::kTokensPerSecond:
      return Short(c.prediction.metrics.tokens_per_second) + " tokens/s";
    case Objective::kStep:
      return Fixed(Milliseconds(c.prediction.metrics.step_mean), 2) + " ms";
    case Objective::kCost:
      return Short(c.cost) + " a million tokens";
  }
  return "";
}

std::string TableOf(const sim::Advice& advice, const std::vector<size_t>& rows, size_t best,
                    const sim::AdviseRequest& asked, const Screen& screen) {
  const auto several = [&](auto value) {
    std::set<std::string> values;
    for (const size_t i : rows) values.insert(value(advice.candidates[i]));
    return values.size() > 1;
  };
  const bool machines = several([](const Candidate& c) { return c.prediction.request.machine; });
  const bool costs = std::any_of(rows.begin(), rows.end(),
                                 [&](size_t i) { return !std::isnan(advice.candidates[i].cost); });
  const bool by_tokens = asked.objective == Objective::kTokensPerSecond;
  std::vector<TextTable::Column> columns = {{.title = "", .left = true},
                                            {.title = "method", .left = true}};
  if (machines) columns.push_back({.title = "machine", .left = true});
  columns.insert(columns.end(), {{.title = "parameters", .left = true, .wraps = true},
                                 {.title = "batch"},
                                 {.title = "step", .unit = "ms"},
                                 {.title = "tokens", .unit = "/s", .rank = by_tokens ? 0 : 1},
                                 {.title = "mass"},
                                 {.title = "GPU", .unit = "GiB"},
                                 {.title = "host", .unit = "GiB", .rank = 2}});
  if (costs) columns.push_back({.title = "cost", .unit = "/M tokens"});
  TextTable table(columns);
  for (const size_t i : rows) {
    const Candidate& c = advice.candidates[i];
    const sim::Prediction& p = c.prediction;
    std::vector<std::string> cells = {i == best ? "*" : "", p.request.method};
    if (machines) cells.push_back(p.request.machine);
    const auto gibibytes = [](Bytes bytes) { return Fixed(static_cast<double>(bytes) / kGibi, 1); };
    cells.insert(
        cells.end(),
        {ParamsOf(c), Count(p.request.batch), Fixed(Milliseconds(p.metrics.step_mean), 2),
         Short(p.metrics.tokens_per_second), asked.required.MassText(p.selection.attention_mass),
         gibibytes(p.gpu_memory), gibibytes(p.footprint.host)});
    if (costs) cells.push_back(Short(c.cost));
    table.Add(std::move(cells), i == best ? Tone::kStrong : Tone::kPlain);
  }
  return table.Render(screen);
}

std::string OptionOf(sim::Relaxation::What what) {
  switch (what) {
    case sim::Relaxation::What::kMass:
      return "--min-mass";
    case sim::Relaxation::What::kGpu:
      return "--max-gpu";
    case sim::Relaxation::What::kStep:
      return "--max-step";
  }
  return "";
}

// Why the best is no better: what each requirement costs.
std::string Why(const sim::AdviseRequest& asked, const sim::Advice& advice, const Screen& screen) {
  std::string text;
  const auto line = [&](const std::string& words) {
    text += Wrap("- " + words, screen.width, 2) + "\n";
  };
  std::set<std::string> binding;
  for (const sim::Relaxation& r : advice.relaxations) {
    const std::string option = OptionOf(r.what);
    binding.insert(option);
    const auto described = [&](size_t i) {
      const Candidate& c = advice.candidates[i];
      return fmt::format("{} has {} ({})", NameOf(c), ValueText(c, asked.objective),
                         fmt::join(asked.required.Missed(sim::FiguresOf(c.prediction)), "; "));
    };
    std::string words = fmt::format("{} binds: {}.", option, described(r.best));
    if (r.nearest != r.best) words += fmt::format(" With least change: {}.", described(r.nearest));
    line(words);
  }
  const auto slack = [&](const char* option, bool asked_for) {
    if (asked_for && !binding.contains(option)) {
      line(fmt::format("{} does not bind: without it the best is the same.", option));
    }
  };
  if (!advice.good.empty()) {
    slack("--min-mass", asked.required.min_mass > 0);
    slack("--max-gpu", asked.required.max_gpu_bytes < sim::Requirements::kAny);
    slack("--max-step", asked.required.max_step_ms < sim::Requirements::kAny);
  }
  const auto counted = [](const std::map<std::string, int64_t>& numbers) {
    std::vector<std::string> parts;
    for (const auto& [what, number] : numbers) {
      parts.push_back(fmt::format("{} miss {}", Count(number), what));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  };
  if (!advice.rejected.empty()) {
    line(fmt::format("Of {} configurations {}: known without a prediction.", Count(advice.points),
                     counted(advice.rejected)));
  }
  if (!advice.missed.empty()) {
    line(fmt::format("Of {} predicted in full {} (one may miss several).",
                     Count(std::ssize(advice.candidates)), counted(advice.missed)));
  }
  return text;
}

// A command in as many lines as it takes, to be copied as it is.
std::string CommandText(const std::vector<std::string>& parts, const Screen& screen) {
  std::string text;
  size_t used = 0;
  for (const std::string& part : parts) {
    const size_t size = 2 + part.size();  // with the blank before it, or a line's backslash after
    if (text.empty()) {
      text = "  " + part;
      used = size;
    } else if (screen.width > 0 && used + size + 1 > screen.width) {
      text += " \\\n      " + part;
      used = 6 + part.size();
    } else {
      text += " " + part;
      used += size - 1;
    }
  }
  return text;
}

std::string Searched(const sim::AdviseRequest& asked, const sim::Advice& advice) {
  std::vector<std::string> axes;
  std::set<std::string> given;
  for (const sim::Axis& axis : asked.params) {
    given.insert(axis.name);
    axes.push_back(fmt::format("{} {}", axis.name, fmt::join(axis.values, ", ")));
  }
  for (const sim::Axis& axis : sim::SearchedParams()) {
    if (!given.contains(axis.name)) {
      axes.push_back(fmt::format("{} {}", axis.name, fmt::join(axis.values, ", ")));
    }
  }
  std::string text =
      fmt::format("Searched: {} methods; machine {}; batch {}; where a method has it, {}. ",
                  asked.methods.size(), fmt::join(asked.machines, ", "),
                  fmt::join(asked.batches, ", "), fmt::join(axes, "; "));
  text += "Budgets that hold the whole trace or context are left out. ";
  text += advice.exact
              ? fmt::format("Exact: of {} configurations all {} that fit were predicted in full.",
                            Count(advice.points), Count(advice.predicted))
              : fmt::format(
                    "A search: of {} configurations {} were estimated from 8 steps of one "
                    "layer, and {} predicted in full. --exact predicts all that fit.",
                    Count(advice.points), Count(advice.estimated), Count(advice.predicted));
  int64_t failed = 0;
  for (const auto& [problem, number] : advice.failed) failed += number;
  if (failed > 0) {
    text += fmt::format(" {} cannot run, as: {}.", Count(failed), advice.failed.begin()->first);
  }
  return text;
}

std::string AdviseCommand::Text(const sim::AdviseRequest& asked, const sim::Advice& advice) const {
  const Screen screen = ScreenFor(wide);
  const auto top = [](std::vector<size_t> rows) {
    rows.resize(std::min(rows.size(), kMostShown));
    return rows;
  };
  const size_t none = advice.candidates.size();
  const size_t best = advice.good.empty() ? none : advice.good.front();
  std::vector<sim::Figures> figures;
  for (const Candidate& c : advice.candidates) figures.push_back(sim::FiguresOf(c.prediction));
  const Candidate& shown =
      advice.candidates[best < none ? best : sim::Nearest(figures, asked.required)];
  const sim::PredictRequest& r = shown.prediction.request;
  std::string text = Wrap(fmt::format("{}, context {}, {} steps, trace {}: {} with {}",
                                      shown.prediction.model.name, Count(r.context), r.steps, trace,
                                      Words(asked.objective), asked.required.Describe()),
                          screen.width, 2) +
                     "\n\n";
  if (best == none) {
    text +=
        Wrap(fmt::format("None fits. The nearest is {}: {}; it has {}.", NameOf(shown),
                         fmt::join(asked.required.Missed(sim::FiguresOf(shown.prediction)), "; "),
                         ValueText(shown, asked.objective)),
             screen.width, 2) +
        "\n";
  } else {
    text += Paint(fmt::format("Best: {}, with", ValueText(shown, asked.objective)), Tone::kStrong,
                  screen) +
            "\n" + Wrap(NameOf(shown), screen.width, 2) + "\n\n" +
            TableOf(advice, top(advice.good), best, asked, screen);
    if (advice.good.size() > kMostShown) {
      text += Aside(fmt::format("The best {} of {} that are good enough.", kMostShown,
                                Count(std::ssize(advice.good))),
                    screen, 0);
    }
  }
  text += "\nWhy not better\n" + Why(asked, advice, screen);
  text += fmt::format("\nFront: {}, GPU memory and mass, of what fits\n", Words(asked.objective)) +
          TableOf(advice, top(advice.front), best, asked, screen);
  if (advice.front.size() > kMostShown) {
    text += Aside(fmt::format("The first {} of {}; --format json has all.", kMostShown,
                              Count(std::ssize(advice.front))),
                  screen, 0);
  }
  text += "\n" + Aside(Searched(asked, advice), screen);
  NoteList notes;
  std::set<std::string> rows = {NameOf(shown)};
  for (const std::string& note : shown.prediction.notes) notes.Add(note, NameOf(shown));
  text += notes.Render(rows, screen);
  std::vector<std::string> command = {"stallcast predict " + trace, "--method " + r.method};
  if (!r.model.empty()) command.push_back("--model " + r.model);
  command.push_back(fmt::format("--context {}", r.context));
  command.push_back(fmt::format("--batch {}", r.batch));
  command.push_back("--machine " + r.machine);
  for (const auto& [name, value] : shown.point.request.params) {
    command.push_back(fmt::format("-p {}={}", name, value));
  }
  for (const auto& [path, value] : r.machine_overrides) {
    command.push_back(fmt::format("--set {}={}", path, value));
  }
  return text + "\nWhere its step goes:\n" + CommandText(command, screen) + "\n";
}

// Tells on standard error how far the work is: a bar on a terminal, and after the first seconds a
// line now and then, wherever it goes.
class Reporter {
 public:
  explicit Reporter(Objective objective) : objective_(objective) {}
  Progress& bar() { return bar_; }

  void Stage(const sim::AdviseProgress& progress) {
    const std::lock_guard lock(mutex_);
    stage_ = progress.what;
    if (progress.best != nullptr) {
      best_ =
          fmt::format("; best so far: {}: {}{}", NameOf(*progress.best),
                      progress.estimated ? "about " : "", ValueText(*progress.best, objective_));
    }
    bar_.Update(stage_, progress.share);
    Line(stage_);
  }

  void Work(const std::string& what, double share) {
    const std::lock_guard lock(mutex_);
    Line(fmt::format("{}{}{}, {:.0f} %", stage_, stage_.empty() ? "" : ", ", what, share * 100));
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Line(const std::string& what) {
    const Clock::time_point now = Clock::now();
    if (now - start_ < std::chrono::seconds(3) || now - last_ < std::chrono::seconds(3)) return;
    last_ = now;
    bar_.Clear();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const std::string line = fmt::format("{:.0f} s: {}{}", seconds, what, best_);
    fmt::print(stderr, "{}\n", Wrap(line, ErrorWidth(), 2));
  }

  Objective objective_;
  Progress bar_;
  std::mutex mutex_;
  Clock::time_point start_ = Clock::now(), last_;
  std::string stage_, best_;
};

void AdviseCommand::Run() const {
  const sim::AdviseRequest asked = Request();
  Reporter reporter(asked.objective);
  sim::PredictorOptions options = run.PredictorOptions(reporter.bar());
  options.progress = [&](const std::string& what, double share) { reporter.Work(what, share); };
  sim::Predictor predictor(traces::TracePath(trace), options);
  run.RequireModel(predictor.info());
  sim::AdviseRequest filled = asked;
  if (filled.base.context == 0) filled.base.context = predictor.info().prompt_tokens();
  const sim::Advice advice = sim::Advise(
      predictor, filled, [&](const sim::AdviseProgress& progress) { reporter.Stage(progress); });
  reporter.bar().Clear();
  if (advice.candidates.empty()) {
    throw Error("no point can be predicted" +
                    (advice.failed.empty() ? std::string() : ": " + advice.failed.begin()->first),
                "advise", "change what was asked for");
  }
  if (format == Format::kTable) return Print(Text(filled, advice));
  const std::set<size_t> front(advice.front.begin(), advice.front.end());
  Json rows = Json::array();
  const sim::ResultStore::Trace traced{predictor.key(), predictor.path().string()};
  std::vector<size_t> order = advice.good;
  const std::set<size_t> good(order.begin(), order.end());
  for (size_t i = 0; i < advice.candidates.size(); ++i) {
    if (!good.contains(i)) order.push_back(i);
  }
  for (const size_t i : order) {
    const Candidate& c = advice.candidates[i];
    Json row = RecordOf(c.prediction, traced);
    row["cost_per_million_tokens"] = std::isnan(c.cost) ? Json(nullptr) : Json(c.cost);
    row["good_enough"] = good.contains(i);
    row["best"] = !advice.good.empty() && i == advice.good.front();
    row["pareto"] = front.contains(i);
    rows.push_back(std::move(row));
  }
  if (format == Format::kCsv) return Print(ToCsv(rows));
  Json relaxations = Json::array();
  for (const sim::Relaxation& r : advice.relaxations) {
    relaxations.push_back({{"option", OptionOf(r.what)},
                           {"best", NameOf(advice.candidates[r.best])},
                           {"least_change", NameOf(advice.candidates[r.nearest])}});
  }
  Print(ToJsonText({{"objective", objective},
                    {"exact", advice.exact},
                    {"points", advice.points},
                    {"estimated", advice.estimated},
                    {"predicted", advice.predicted},
                    {"rejected", advice.rejected},
                    {"binds", relaxations},
                    {"missed", advice.missed},
                    {"failed", advice.failed},
                    {"candidates", rows}}) +
        "\n");
}

}  // namespace

void AddAdvise(CLI::App& app) {
  auto command = std::make_shared<AdviseCommand>();
  CLI::App* sub = app.add_subcommand("advise", "Find the best configuration for a workload");
  sub->description(
      R"(Finds the best method, parameters, machine and batch for a model and context.

Examples:
  stallcast advise sample:32k --model llama-3.1-8b --context 128K \
      --machine a100-40gb --max-gpu 24GB
  stallcast advise sample:32k --model llama-3.1-8b --context 128K \
      --machine h200,a100-80gb --batch 1:64:x2 --max-step 30ms \
      --objective cost --price h200=3.50 --price a100-80gb=1.80

Of a small grid of methods, their parameters, machines and batches it predicts every configuration.
In a larger one it searches: a few steps of one layer are replayed for an estimate, and the most
promising configurations are predicted in full. The output says which of the two it was. It prints
the best ten, which requirement binds and what would be had without it, and the front of the
objective, GPU memory and attention mass. Work of more than three seconds tells on standard error
how far it is and what is best so far.)");
  sub->add_option("trace", command->trace, "Trace to replay (.kvt), or a shipped one: sample:32k")
      ->required()
      ->type_name("TRACE");
  command->run.AddTo(*sub, "all");
  sub->remove_option(sub->get_option("--batch"));
  sub->add_option("--batch", command->batch,
                  "Sequences decoded together: 4, or several as 1,4,16 or 1:64:x2 (default: 1)")
      ->type_name("AXIS")
      ->group("Model");
  AddRequirements(*sub, command->request.required);
  sub->add_option("--objective", command->objective,
                  "Most tokens/s (default), shortest step, or least cost")
      ->type_name("WHAT")
      ->group("Good enough");
  sub->add_option("--price", command->prices, "Price of a GPU hour of a machine, in any currency")
      ->type_name("MACHINE=PRICE")
      ->allow_extra_args(false)
      ->group("Good enough");
  constexpr const char* kSearch = "Search";
  sub->add_option("-g,--grid", command->grid,
                  "Values of a parameter to search instead of the usual ones, as budget=1K:32K:x2")
      ->type_name("AXIS")
      ->allow_extra_args(false)
      ->group(kSearch);
  sub->add_flag("--exact", command->exact,
                "Predict every configuration that fits, however long that takes")
      ->group(kSearch);
  AddFormat(*sub, command->format);
  AddWide(*sub, command->wide);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
