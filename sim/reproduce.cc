#include "sim/reproduce.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "models/llm/model.h"
#include "models/methods/method.h"
#include "sim/cache_folder.h"
#include "sim/names.h"
#include "sim/predict.h"
#include "sim/quantile.h"
#include "sim/synth.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;
using papers::Metric;
using papers::Paper;
using papers::Row;
using papers::Run;

// Raised when a change of Synthesize() makes older traces differ from new ones.
constexpr int kTraceVersion = 1;
// Depth and length of the synthetic traces. Contexts are projected from them: what is selected and
// recalled depends on the queries, which a longer prompt would not change.
constexpr int32_t kTraceLayers = 2;
constexpr int64_t kTracePrompt = 8192;
constexpr int32_t kTraceSteps = 128;
constexpr int64_t kLongGenerationParts = 4;
constexpr double kOff = 0.25;

// As many as bear what is done seldom once: a run's first step never does it.
int32_t StepsOf(const Run& run, int32_t otherwise) {
  return run.interval > 0 ? static_cast<int32_t>(run.interval) + 1 : otherwise;
}

SynthSpec SpecOf(const papers::Condition& condition, const Run& run) {
  SynthSpec spec;
  spec.model = llm::FindModel(run.model);
  spec.layers = kTraceLayers;
  spec.prompt_tokens = kTracePrompt;
  spec.steps = std::max(kTraceSteps, StepsOf(run, 0));
  spec.similarity = condition.similarity;
  spec.segment_length = condition.segment_length;
  spec.head_correlation = condition.head_correlation;
  spec.spread = condition.spread;
  return spec;
}

// The trace of a spec, from the cache or made.
fs::path TraceOf(const SynthSpec& spec) {
  const traces::proto::TraceInfo info = SynthInfo(spec);
  std::string key = fmt::format("{}\n{}\n{}\n{}\n", kTraceVersion, info.model().SerializeAsString(),
                                info.prompt_tokens(), info.decode_steps());
  const std::map<std::string, std::string> parameters(info.parameters().begin(),
                                                      info.parameters().end());
  for (const auto& [name, value] : parameters) key += fmt::format("{}={}\n", name, value);
  const std::string name = fmt::format("synth-{}.kvt", HashOf(key));
  const std::vector<fs::path> folders = CacheFolders(papers::PaperFolder());
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  }
  for (const fs::path& folder : folders) {
    const bool written = WriteCached(folder, name, [&](const fs::path& part) {
      traces::TraceWriter writer(part, info);
      Synthesize(spec, writer);
      writer.Finish();
    });
    if (written) return folder / name;
  }
  throw Error("no folder to keep synthetic traces in", folders.front().string(),
              "make it writable, or set XDG_CACHE_HOME to a folder that is");
}

std::vector<std::string> MethodsOf(const Paper& paper, const Row& row) {
  std::vector<std::string> methods;
  for (const auto* names : {&row.runs, &row.against}) {
    for (const std::string& name : *names) methods.push_back(paper.FindRun(name).method);
  }
  return methods;
}

// Methods of a row that nobody has built, each once.
std::vector<std::string> NotBuilt(const Paper& paper, const Row& row) {
  static const std::vector<std::string> known = MethodNames();
  std::vector<std::string> missing;
  for (std::string& method : MethodsOf(paper, row)) {
    const auto holds = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), method) != names.end();
    };
    if (!holds(known) && !holds(missing)) missing.push_back(std::move(method));
  }
  return missing;
}

// Pair i of a row at one model and one batch.
struct Case {
  Run run;
  std::optional<Run> against;
};

std::vector<Case> CasesOf(const Paper& paper, const Row& row) {
  std::vector<Case> cases;
  const auto at = [&](const std::string& name, const std::string* model, const int32_t* batch) {
    Run run = paper.FindRun(name);
    if (model != nullptr) run.model = *model;
    if (batch != nullptr) run.batch = *batch;
    return run;
  };
  for (size_t i = 0; i < row.runs.size(); ++i) {
    for (size_t m = 0; m < std::max<size_t>(row.models.size(), 1); ++m) {
      for (size_t b = 0; b < std::max<size_t>(row.batches.size(), 1); ++b) {
        const std::string* model = row.models.empty() ? nullptr : &row.models[m];
        const int32_t* batch = row.batches.empty() ? nullptr : &row.batches[b];
        Case& added = cases.emplace_back(Case{at(row.runs[i], model, batch), {}});
        if (!row.against.empty()) added.against = at(row.against[i], model, batch);
      }
    }
  }
  return cases;
}

// Every run of all rows, predicted once.
class Runs {
 public:
  explicit Runs(const ReproduceOptions& options) : options_(options) {}

  void Add(const Paper& paper, const Run& run) {
    for (const bool as_run : {false, true}) {
      if (as_run && !options_.as_run) continue;
      auto [entry, added] = entries_.try_emplace(Key(paper, run, as_run));
      if (!added) continue;
      entry->second.paper = &paper;
      entry->second.result.run = run;
      entry->second.as_run = as_run;
    }
  }

  void PredictAll() {
    OpenTraces();
    std::vector<Entry*> entries;
    for (auto& [key, entry] : entries_) entries.push_back(&entry);
    // Replays use all cores themselves.
    for (size_t i = 0; i < entries.size(); ++i) {
      Report("replaying", i, entries.size());
      Named(*entries[i], [&](Entry& entry) { entry.predictor->Log(RequestOf(entry)); });
    }
    std::atomic<size_t> done = 0;
    tbb::parallel_for(size_t{0}, entries.size(), [&](size_t i) {
      Named(*entries[i], [&](Entry& entry) { PredictOne(entry); });
      Report("predicting", ++done, entries.size());
    });
  }

  const ReproducedRun& Of(const Paper& paper, const Run& run, bool as_run) const {
    return entries_.at(Key(paper, run, as_run)).result;
  }
  const std::vector<std::string>& NotesOf(const Paper& paper, const Run& run) const {
    return entries_.at(Key(paper, run, /*as_run=*/false)).notes;
  }

 private:
  struct Entry {
    const Paper* paper = nullptr;
    Predictor* predictor = nullptr;
    bool as_run = false;
    ReproducedRun result;
    std::vector<std::string> notes;
  };

  static std::string Key(const Paper& paper, const Run& run, bool as_run) {
    return fmt::format("{}\n{}\n{}\n{}\n{}", paper.name, run.name, run.model, run.batch, as_run);
  }

  void Report(const char* what, size_t done, size_t all) const {
    if (options_.progress) {
      options_.progress(what, static_cast<double>(done) / static_cast<double>(all));
    }
  }

  // Errors say whose run it was.
  template <typename F>
  static void Named(Entry& entry, F body) {
    try {
      body(entry);
    } catch (const Error& error) {
      throw Error(error.problem(),
                  fmt::format("paper {}, run {}", entry.paper->name, entry.result.run.name),
                  error.remedy());
    }
  }

  void OpenTraces() {
    for (auto& [key, entry] : entries_) {
      const Run& run = entry.result.run;
      const SynthSpec spec = SpecOf(entry.paper->FindCondition(run.condition), run);
      const std::string trace = TraceOf(spec).string();
      auto& predictor = predictors_[trace];
      if (!predictor) {
        PredictorOptions options;
        options.cache = options_.cache;
        predictor = std::make_unique<Predictor>(trace, options);
      }
      entry.predictor = predictor.get();
    }
  }

  PredictRequest RequestOf(const Entry& entry) const {
    const Run& run = entry.result.run;
    PredictRequest request;
    request.method = run.method;
    request.params = run.params;
    request.model = run.model;
    request.machine = entry.paper->machine;
    request.machine_overrides = options_.machine_overrides;
    request.batch = run.batch;
    request.prefill = false;
    if (entry.as_run) {
      request.host = plan::Host::kPyTorch;
      request.as_run = HasPublicProgram(run);
    }
    return request;
  }

  // Of the papers' methods; their full cache is each paper's own engine, not transformers'.
  static bool HasPublicProgram(const Run& run) {
    return run.method != "full" &&
           !methods::MakeMethod(run.method, run.params).method->AsRun().empty();
  }

  void PredictOne(Entry& entry) const {
    ReproducedRun& result = entry.result;
    const Run& run = result.run;
    std::set<std::string> notes;
    const auto predict = [&](int64_t context, int32_t steps, bool prefill) {
      PredictRequest request = RequestOf(entry);
      request.context = context;
      request.steps = steps;
      request.prefill = prefill;
      Prediction prediction = entry.predictor->Predict(request);
      notes.insert(prediction.notes.begin(), prediction.notes.end());
      return prediction;
    };
    result.prefill = *predict(run.prompt, 1, /*prefill=*/true).prefill;
    const Prediction last = predict(run.prompt + run.generated - 1, 1, /*prefill=*/false);
    result.fits = last.fits;
    result.gpu_memory = last.gpu_memory;
    const int64_t parts = run.generated > run.prompt ? kLongGenerationParts : 1;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t context = run.prompt + run.generated * (2 * part + 1) / (2 * parts);
      const Prediction during = predict(context, StepsOf(run, options_.steps), /*prefill=*/false);
      const Metrics& metrics = during.metrics;
      result.hit_rate = during.selection.hit_rate;
      result.correction_rate = during.selection.correction_rate;
      result.step += metrics.step_mean / parts;
      const auto band =
          during.host_band.value_or(Prediction::Band{metrics.step_mean, metrics.step_mean});
      result.step_least += band.least / parts;
      result.step_most += band.most / parts;
      for (size_t role = 0; role < traces::kRoles; ++role) {
        result.busy[role] += metrics.roles[role].busy / parts;
        result.exposed[role] += metrics.roles[role].exposed / parts;
        result.critical[role] += metrics.critical[role] / parts;
      }
      result.recall_bytes += static_cast<double>(metrics.recall_bytes) / static_cast<double>(parts);
    }
    entry.notes.assign(notes.begin(), notes.end());
  }

  const ReproduceOptions& options_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::unique_ptr<Predictor>> predictors_;  // by trace
};

double Value(const Row& row, const ReproducedRun& run, const ReproducedRun* against) {
  switch (*row.metric) {
    case Metric::kStep:
      return Seconds(run.step) * 1e3;
    case Metric::kStepRatio:
      return Seconds(against->step) / Seconds(run.step);
    case Metric::kEndToEndRatio:
      return Seconds(against->EndToEnd()) / Seconds(run.EndToEnd());
    case Metric::kPrefillRatio:
      return Seconds(against->prefill) / Seconds(run.prefill);
    case Metric::kThroughputRatio:
      return run.TokensPerSecond() / against->TokensPerSecond();
    case Metric::kLayerPrefill:
      return Seconds(run.prefill - against->prefill) * 1e3 / llm::FindModel(run.run.model).layers;
    case Metric::kMemoryReduction:
      return 1 - static_cast<double>(run.gpu_memory) / static_cast<double>(against->gpu_memory);
    case Metric::kRoleShare: {
      Picoseconds sum{0};
      for (const traces::Role role : row.roles) sum += run.critical[static_cast<size_t>(role)];
      return Seconds(sum) / Seconds(run.step);
    }
    case Metric::kFits:
      return run.fits ? 1 : 0;
  }
  return std::nan("");
}

// The runs that decide a row: of the pair with the largest value, or, where throughputs at their
// best batch are compared, of each side for itself. Empty: none fits.
std::vector<ReproducedRun> Decisive(const Runs& runs, const Paper& paper, const Row& row,
                                    bool as_run) {
  const std::vector<Case> cases = CasesOf(paper, row);
  const auto fits = [&](const ReproducedRun& run) {
    return run.fits || row.metric == Metric::kFits;
  };
  const ReproducedRun *best = nullptr, *best_against = nullptr;
  for (const Case& each : cases) {
    const ReproducedRun* run = &runs.Of(paper, each.run, as_run);
    const ReproducedRun* against = each.against ? &runs.Of(paper, *each.against, as_run) : nullptr;
    if (row.metric == Metric::kThroughputRatio) {
      const auto take = [&](const ReproducedRun*& most, const ReproducedRun* candidate) {
        if (!fits(*candidate)) return;
        if (most == nullptr || candidate->TokensPerSecond() > most->TokensPerSecond()) {
          most = candidate;
        }
      };
      take(best, run);
      take(best_against, against);
    } else if (fits(*run) && (against == nullptr || fits(*against)) &&
               (best == nullptr || Value(row, *run, against) > Value(row, *best, best_against))) {
      best = run;
      best_against = against;
    }
  }
  if (best == nullptr || (!row.against.empty() && best_against == nullptr)) return {};
  std::vector<ReproducedRun> decisive{*best};
  if (best_against != nullptr) decisive.push_back(*best_against);
  return decisive;
}

// Of the runs that decide a row, with each step as `step` has it.
double ValueWith(const Row& row, std::vector<ReproducedRun> runs,
                 Picoseconds ReproducedRun::*step) {
  for (ReproducedRun& run : runs) run.step = run.*step;
  return Value(row, runs.front(), runs.size() > 1 ? &runs.back() : nullptr);
}

void EvaluateAsRun(const Runs& runs, Reproduction& result) {
  const Row& row = *result.row;
  const std::vector<ReproducedRun> decisive = Decisive(runs, *result.paper, row, /*as_run=*/true);
  if (decisive.empty()) return;
  Reproduction::AsRun& as_run = result.as_run;
  as_run.predicted = ValueWith(row, decisive, &ReproducedRun::step);
  as_run.least = ValueWith(row, decisive, &ReproducedRun::step_least);
  as_run.most = ValueWith(row, decisive, &ReproducedRun::step_most);
  if (row.metric != Metric::kFits) as_run.ratio = as_run.predicted / row.published;
}

void Evaluate(const Runs& runs, Reproduction& result) {
  const Paper& paper = *result.paper;
  const Row& row = *result.row;
  result.runs = Decisive(runs, paper, row, /*as_run=*/false);
  if (result.runs.empty()) {
    result.status = Reproduction::Status::kNoRoom;
    return;
  }
  result.predicted =
      Value(row, result.runs.front(), result.runs.size() > 1 ? &result.runs.back() : nullptr);
  if (row.metric != Metric::kFits) result.ratio = result.predicted / row.published;
  std::set<std::string> notes;
  for (const ReproducedRun& run : result.runs) {
    const std::vector<std::string>& each = runs.NotesOf(paper, run.run);
    notes.insert(each.begin(), each.end());
  }
  result.notes.assign(notes.begin(), notes.end());
}

}  // namespace

bool Reproduction::off() const {
  if (status != Status::kPredicted) return false;
  if (row->metric == Metric::kFits) return predicted != row->published;
  return !IsNear(ratio);
}

bool Reproduction::IsNear(double ratio) { return std::abs(ratio - 1) <= kOff; }

std::string_view Name(Reproduction::Status status) {
  constexpr std::array<std::string_view, 4> kNames = {"predicted", "input", "not built",
                                                      "does not fit"};
  return kNames[static_cast<size_t>(status)];
}

std::vector<Reproduction> Reproduce(std::span<const Paper> papers,
                                    const ReproduceOptions& options) {
  std::vector<Reproduction> results;
  Runs runs(options);
  for (const Paper& paper : papers) {
    for (const Row& row : paper.rows) {
      Reproduction& result = results.emplace_back();
      result.paper = &paper;
      result.row = &row;
      if (!row.metric) {
        result.status = Reproduction::Status::kInput;
        result.reason = row.input;
      } else if (const auto missing = NotBuilt(paper, row); !missing.empty()) {
        result.status = Reproduction::Status::kNotBuilt;
        result.reason = fmt::format("{}", fmt::join(missing, ", "));
      } else {
        for (const Case& each : CasesOf(paper, row)) {
          runs.Add(paper, each.run);
          if (each.against) runs.Add(paper, *each.against);
        }
      }
    }
  }
  runs.PredictAll();
  for (Reproduction& result : results) {
    if (result.status != Reproduction::Status::kPredicted) continue;
    Evaluate(runs, result);
    if (options.as_run && result.status == Reproduction::Status::kPredicted) {
      EvaluateAsRun(runs, result);
    }
  }
  return results;
}

RatioSummary Summarize(std::span<const Reproduction> rows) {
  std::vector<double> ratios;
  RatioSummary summary;
  for (const Reproduction& row : rows) {
    if (std::isnan(row.ratio)) continue;
    ratios.push_back(row.ratio);
    ++summary.rows;
    summary.within += !row.off();
  }
  const auto at = [&](double q) { return ratios.empty() ? std::nan("") : Quantile(ratios, q); };
  summary.p10 = at(0.1);
  summary.p50 = at(0.5);
  summary.p90 = at(0.9);
  return summary;
}

}  // namespace stallcast::sim
