#include "sim/advise_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "sim/sweep.h"
#include "traces/common/count.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

// Of a short replay. An estimate predicts them all.
constexpr int32_t kShortSteps = 8;
// How far an estimate may be off: of an objective, as a share, and of the mass. Once a selection of
// the method was predicted in full, its estimates are corrected by what that one was off.
constexpr double kEstimateOff = 0.15, kCorrectedOff = 0.03;
constexpr double kMassOff = 0.04, kCorrectedMassOff = 0.005;
// Methods that go on to their other selection parameters: at least so many, and all whose best is
// at most so many times as bad as the best of all.
constexpr size_t kLeastPromising = 3;
constexpr double kPromising = 1.5;
// Selections that are replayed in full for the best, and for each requirement that may bind.
constexpr int kMostConfirmed = 12, kMostRelaxed = 2;
// So many are, however good the best is: the runners-up are part of the answer.
constexpr int kLeastConfirmed = 4;
// Share of the mass required that still interests: far less mass is no advice.
constexpr double kLittleLess = 0.95;
// Points of a selection that are predicted in full: its best ones by their estimates.
constexpr size_t kMostOfSelection = 8;

// Parameters that say how much is kept, and whether more of it is more.
constexpr std::array<std::pair<std::string_view, bool>, 3> kSizes = {
    {{"budget", true}, {"topk", true}, {"sparsity", false}}};

using Params = std::map<std::string, std::string>;

std::string Joined(const Params& params) {
  std::string text;
  for (const auto& [name, value] : params) text += fmt::format("{}={} ", name, value);
  return text;
}

// A method as a request has it, with what its paper takes for such a trace.
methods::NamedMethod MethodOf(const Predictor& predictor, const PredictRequest& request) {
  methods::ParamValues params(request.params.begin(), request.params.end());
  methods::AddKindDefaults(*methods::MakeMethod(request.method, params).info,
                           methods::KindOf(predictor.info()), params);
  return methods::MakeMethod(request.method, params);
}

// What a method's parameters say, apart.
struct Parts {
  double size = 0;        // how much is kept; larger is more
  std::string selection;  // what else selects
  std::string plan;       // what changes the plan alone
};

Parts PartsOf(const methods::Method& method) {
  Params selection = method.Params(/*only_selection=*/true);
  Params plan = method.Params(/*only_selection=*/false);
  for (const auto& [name, value] : selection) plan.erase(name);
  Parts parts;
  for (const auto& [name, more] : kSizes) {
    const auto found = selection.find(std::string(name));
    if (found == selection.end()) continue;
    const std::optional<int64_t> count = ParseCount(found->second);
    const double size =
        count ? static_cast<double>(*count) : std::strtod(found->second.c_str(), nullptr);
    parts.size = more ? size : -size;
    selection.erase(found);
    break;
  }
  parts.selection = Joined(selection);
  parts.plan = Joined(plan);
  return parts;
}

// Less is better in all objectives, of which one is below 0.
double Optimistic(double objective, double share) {
  return objective - share * std::abs(objective);
}

class Searcher {
 public:
  Searcher(Predictor& predictor, const AdviseRequest& request, std::vector<AdvisePoint> points,
           const OnAdviseProgress& progress);
  SearchResult Run();

 private:
  // Points of one access log.
  struct Selection {
    size_t method = 0;
    std::vector<size_t> points = {};
    std::optional<double> mass = {};       // of the short replay
    std::optional<double> true_mass = {};  // of the whole trace
    bool failed = false;
  };
  // Selections that differ in size alone, by size.
  using Chain = std::vector<size_t>;
  struct Method {
    std::string name;
    std::string plan;  // of its defaults
    std::vector<Chain> chains = {};
    size_t usual = 0;  // the chain of its defaults
    // What its estimates are corrected by, once something of it was predicted in full.
    bool corrected = false;
    double ratio = 1, more_mass = 0;
  };
  struct Point {
    AdvisePoint known;
    size_t selection = 0;
    std::string plan, where;
    bool failed = false;
    std::optional<Candidate> estimate = {}, predicted = {};
  };
  using Key = std::pair<double, double>;  // how far from what is required, then the objective
  static constexpr Key kWorst = {std::numeric_limits<double>::infinity(), 0};

  void AddPoints(std::vector<AdvisePoint> points);
  bool Admissible(const Point& point, const Requirements& required) const;
  bool Hopeless(const Point& point) const;
  bool HasAdmissible(size_t selection, const Requirements& required) const;
  double MassOf(size_t selection);
  double CorrectedMass(size_t selection);
  size_t LeastThatMeets(const Chain& chain, const Requirements& required);
  template <class Wanted>
  void Estimate(size_t selection, const Requirements& required, const Wanted& wanted);
  Key KeyOf(const Point& point, const Requirements& required, bool optimistic) const;
  std::optional<size_t> BestOf(const Method& method, const Requirements& required) const;
  std::optional<size_t> BestPredicted(const Requirements& required) const;

  void Begin(Method& method, const Requirements& required);
  void Refine(Method& method, const Requirements& required);
  std::vector<size_t> Promising(const Requirements& required) const;
  void Widen(size_t point, const Requirements& required);
  void Predict(size_t selection, const Requirements& required);
  bool ConfirmNext(const Requirements& required, const Key& better_than);
  void Relax();
  void Tell(std::string what, double share);

  Predictor& predictor_;
  Predictor short_;
  const AdviseRequest& request_;
  const OnAdviseProgress& progress_;
  std::vector<Point> points_;
  std::vector<Selection> selections_;
  std::vector<Method> methods_;
  std::map<std::string, int64_t> failed_;
  std::optional<double> best_estimate_;  // objective of what meets all that is required
};

PredictorOptions ShortReplays(PredictorOptions options) {
  options.first_steps = kShortSteps;
  return options;
}

Searcher::Searcher(Predictor& predictor, const AdviseRequest& request,
                   std::vector<AdvisePoint> points, const OnAdviseProgress& progress)
    : predictor_(predictor),
      short_(predictor.path(), ShortReplays(predictor.options())),
      request_(request),
      progress_(progress) {
  AddPoints(std::move(points));
}

void Searcher::AddPoints(std::vector<AdvisePoint> points) {
  std::map<std::string, size_t> method_at, selection_at;
  std::map<std::string, Parts> usual;  // by method
  std::map<std::pair<size_t, std::string>, std::vector<std::pair<double, size_t>>> chains;
  for (AdvisePoint& known : points) {
    const PredictRequest& request = known.point.request;
    const Parts parts = PartsOf(*MethodOf(predictor_, request).method);
    const auto [method, new_method] = method_at.try_emplace(request.method, methods_.size());
    if (new_method) {
      PredictRequest defaults = request;
      defaults.params.clear();
      usual[request.method] = PartsOf(*MethodOf(predictor_, defaults).method);
      methods_.push_back({.name = request.method, .plan = usual[request.method].plan});
    }
    const auto [selection, new_selection] = selection_at.try_emplace(
        request.method + ' ' + SelectionKey(predictor_, request), selections_.size());
    if (new_selection) {
      selections_.push_back({.method = method->second});
      chains[{method->second, parts.selection}].emplace_back(parts.size, selection->second);
    }
    selections_[selection->second].points.push_back(points_.size());
    const std::string where = fmt::format("{} {}", request.machine, request.batch);
    points_.push_back({std::move(known), selection->second, parts.plan, where});
  }
  for (auto& [key, sized] : chains) {
    std::ranges::sort(sized);
    Method& method = methods_[key.first];
    if (key.second == usual[method.name].selection) method.usual = method.chains.size();
    Chain& chain = method.chains.emplace_back();
    for (const auto& [size, selection] : sized) chain.push_back(selection);
  }
}

bool Searcher::Admissible(const Point& point, const Requirements& required) const {
  const Needs& needs = point.known.needs;
  return !point.failed && needs.fits && static_cast<double>(needs.gpu) <= required.max_gpu_bytes &&
         Milliseconds(needs.least_step) <= required.max_step_ms;
}

// Whether no step could be short enough to be the best.
bool Searcher::Hopeless(const Point& point) const {
  if (!best_estimate_) return false;
  const Needs& needs = point.known.needs;
  sim::Prediction least;
  least.request = point.known.point.request;
  least.metrics.step_mean = needs.least_step;
  least.metrics.tokens_per_second = needs.most_tokens_per_second;
  const Candidate candidate = MakeCandidate(request_, point.known.point, std::move(least));
  const double bound = ObjectiveOf(candidate, request_.objective);
  return Optimistic(bound, kEstimateOff) > *best_estimate_;
}

bool Searcher::HasAdmissible(size_t selection, const Requirements& required) const {
  return !selections_[selection].failed &&
         std::ranges::any_of(selections_[selection].points,
                             [&](size_t i) { return Admissible(points_[i], required); });
}

// NaN where it cannot be replayed.
double Searcher::MassOf(size_t index) {
  Selection& selection = selections_[index];
  if (selection.failed) return std::numeric_limits<double>::quiet_NaN();
  if (selection.mass) return *selection.mass;
  try {
    const auto log = short_.Log(points_[selection.points.front()].known.point.request);
    selection.mass = log ? Summarize(*log).attention_mass : 1;
  } catch (const Error& error) {
    selection.failed = true;
    for (const size_t i : selection.points) points_[i].failed = true;
    failed_[error.what()] += std::ssize(selection.points);
    return std::numeric_limits<double>::quiet_NaN();
  }
  return *selection.mass;
}

double Searcher::CorrectedMass(size_t index) {
  const double mass = MassOf(index);
  const Selection& selection = selections_[index];
  if (selection.true_mass) return *selection.true_mass;
  return std::clamp(mass + methods_[selection.method].more_mass, 0.0, 1.0);
}

// Position in the chain of the smallest that keeps enough; the last where none does.
size_t Searcher::LeastThatMeets(const Chain& chain, const Requirements& required) {
  size_t low = 0, high = chain.size() - 1;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (required.min_mass <= 0 || CorrectedMass(chain[middle]) >= required.min_mass) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <class Wanted>
void Searcher::Estimate(size_t selection, const Requirements& required, const Wanted& wanted) {
  if (std::isnan(MassOf(selection))) return;
  std::vector<size_t> chosen;
  std::vector<GridPoint> shorter;
  for (const size_t i : selections_[selection].points) {
    const Point& point = points_[i];
    if (point.estimate || !Admissible(point, required) || !wanted(point) || Hopeless(point)) {
      continue;
    }
    chosen.push_back(i);
    PredictRequest& request = shorter.emplace_back(point.known.point).request;
    request.steps = kShortSteps;
    request.samples = 0;
  }
  PredictAll(short_, shorter, [&](PointResult&& result) {
    Point& point = points_[chosen[result.point]];
    if (result.prediction) {
      point.estimate = MakeCandidate(request_, point.known.point, std::move(*result.prediction));
      return;
    }
    point.failed = true;
    ++failed_[result.problem];
  });
  for (const size_t i : chosen) {
    if (!points_[i].estimate) continue;
    const auto [short_of, objective] = KeyOf(points_[i], request_.required, false);
    if (short_of == 0) best_estimate_ = std::min(best_estimate_.value_or(objective), objective);
  }
}

Searcher::Key Searcher::KeyOf(const Point& point, const Requirements& required,
                              bool optimistic) const {
  if (point.predicted) {
    return {required.Shortfall(FiguresOf(point.predicted->prediction)),
            ObjectiveOf(*point.predicted, request_.objective)};
  }
  const Selection& selection = selections_[point.selection];
  const Method& method = methods_[selection.method];
  Figures figures = FiguresOf(point.estimate->prediction);
  figures.fits = point.known.needs.fits;
  figures.gpu_bytes = static_cast<double>(point.known.needs.gpu);
  figures.step_ms *= method.ratio;
  figures.attention_mass = selection.true_mass.value_or(
      std::clamp(selection.mass.value_or(0) + method.more_mass, 0.0, 1.0));
  double objective = ObjectiveOf(*point.estimate, request_.objective);
  objective = request_.objective == Objective::kTokensPerSecond ? objective / method.ratio
                                                                : objective * method.ratio;
  if (optimistic) {
    const double share = method.corrected ? kCorrectedOff : kEstimateOff;
    figures.step_ms *= 1 - share;
    objective = Optimistic(objective, share);
    if (!selection.true_mass) {
      figures.attention_mass += method.corrected ? kCorrectedMassOff : kMassOff;
    }
  }
  return {required.Shortfall(figures), objective};
}

std::optional<size_t> Searcher::BestOf(const Method& method, const Requirements& required) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < points_.size(); ++i) {
    const Point& point = points_[i];
    if (&methods_[selections_[point.selection].method] != &method || !point.estimate ||
        !Admissible(point, required)) {
      continue;
    }
    if (!best || KeyOf(point, required, false) < KeyOf(points_[*best], required, false)) best = i;
  }
  return best;
}

std::optional<size_t> Searcher::BestPredicted(const Requirements& required) const {
  std::optional<size_t> best;
  for (size_t i = 0; i < points_.size(); ++i) {
    if (!points_[i].predicted) continue;
    if (!best || KeyOf(points_[i], required, false) < KeyOf(points_[*best], required, false)) {
      best = i;
    }
  }
  return best;
}

void Searcher::Tell(std::string what, double share) {
  if (!progress_) return;
  AdviseProgress progress{.what = std::move(what), .share = share};
  std::optional<size_t> best = BestPredicted(request_.required);
  if (best && KeyOf(points_[*best], request_.required, false).first == 0) {
    progress.best = &*points_[*best].predicted;
  } else {
    for (const Method& method : methods_) {
      const std::optional<size_t> of_method = BestOf(method, request_.required);
      if (!of_method || KeyOf(points_[*of_method], request_.required, false).first > 0) continue;
      if (progress.best == nullptr || KeyOf(points_[*of_method], request_.required, false) <
                                          KeyOf(points_[*best], request_.required, false)) {
        best = of_method;
        progress.best = &*points_[*best].estimate;
        progress.estimated = true;
      }
    }
  }
  progress_(progress);
}

// From a point that was estimated: all its machines and batches, then all its plans, each with what
// else it has.
void Searcher::Widen(size_t from, const Requirements& required) {
  const size_t selection = points_[from].selection;
  const Method& method = methods_[selections_[selection].method];
  Estimate(selection, required, [&](const Point& p) { return p.plan == points_[from].plan; });
  std::optional<size_t> best;
  for (const size_t i : selections_[selection].points) {
    if (!points_[i].estimate || !Admissible(points_[i], required)) continue;
    if (!best || KeyOf(points_[i], required, false) < KeyOf(points_[*best], required, false)) {
      best = i;
    }
  }
  if (!best) return;
  Estimate(selection, required, [&](const Point& p) { return p.where == points_[*best].where; });
  const std::optional<size_t> now = BestOf(method, required);
  if (now && points_[*now].selection == selection && points_[*now].plan != points_[from].plan) {
    Estimate(selection, required, [&](const Point& p) { return p.plan == points_[*now].plan; });
  }
}

// The usual chain: its smallest selection that keeps enough, with the usual plan first.
void Searcher::Begin(Method& method, const Requirements& required) {
  if (method.chains.empty()) return;
  Chain chain = method.chains[method.usual];
  std::erase_if(chain, [&](size_t selection) { return !HasAdmissible(selection, required); });
  if (chain.empty()) return;
  const size_t selection = chain[LeastThatMeets(chain, required)];
  Estimate(selection, required, [&](const Point& p) { return p.plan == method.plan; });
  for (const size_t i : selections_[selection].points) {
    if (points_[i].estimate) return Widen(i, required);
  }
  // The usual plan is not among those searched, or nothing with it can run.
  Estimate(selection, required, [](const Point&) { return true; });
}

// The other chains, near the size that the usual one takes, as the best point has them.
void Searcher::Refine(Method& method, const Requirements& required) {
  const std::optional<size_t> from = BestOf(method, required);
  if (!from) return;
  for (size_t c = 0; c < method.chains.size(); ++c) {
    Chain chain = method.chains[c];
    std::erase_if(chain, [&](size_t selection) { return !HasAdmissible(selection, required); });
    if (chain.empty() || c == method.usual) continue;
    const size_t selection = chain[LeastThatMeets(chain, required)];
    const std::string plan = points_[*from].plan, where = points_[*from].where;
    Estimate(selection, required,
             [&](const Point& p) { return p.plan == plan && p.where == where; });
  }
  if (const std::optional<size_t> best = BestOf(method, required)) Widen(*best, required);
}

std::vector<size_t> Searcher::Promising(const Requirements& required) const {
  std::vector<std::pair<Key, size_t>> ranked;
  for (size_t m = 0; m < methods_.size(); ++m) {
    const std::optional<size_t> best = BestOf(methods_[m], required);
    if (best) ranked.emplace_back(KeyOf(points_[*best], required, true), m);
  }
  std::ranges::sort(ranked);
  std::vector<size_t> promising;
  for (const auto& [key, m] : ranked) {
    const Key& first = ranked.front().first;
    const double worst = first.second < 0 ? first.second / kPromising : first.second * kPromising;
    const bool near = key.first <= first.first && key.second <= worst;
    if (near || promising.size() < kLeastPromising) promising.push_back(m);
  }
  return promising;
}

// The selection's best points by their estimates, and what those of its method are off.
void Searcher::Predict(size_t index, const Requirements& required) {
  Selection& selection = selections_[index];
  std::vector<size_t> chosen;
  for (const size_t i : selection.points) {
    if (points_[i].estimate && !points_[i].predicted && Admissible(points_[i], required)) {
      chosen.push_back(i);
    }
  }
  std::ranges::sort(chosen, {}, [&](size_t i) { return KeyOf(points_[i], required, false); });
  chosen.resize(std::min(chosen.size(), kMostOfSelection));
  std::vector<GridPoint> wanted;
  for (const size_t i : chosen) wanted.push_back(points_[i].known.point);
  PredictAll(predictor_, wanted, [&](PointResult&& result) {
    Point& point = points_[chosen[result.point]];
    if (result.prediction) {
      point.predicted = MakeCandidate(request_, point.known.point, std::move(*result.prediction));
      return;
    }
    point.failed = true;
    ++failed_[result.problem];
  });
  for (const size_t i : chosen) {
    const Point& point = points_[i];
    if (!point.predicted) continue;
    Method& method = methods_[selection.method];
    const sim::Prediction& whole = point.predicted->prediction;
    const sim::Prediction& part = point.estimate->prediction;
    selection.true_mass = whole.selection.attention_mass;
    method.more_mass = *selection.true_mass - selection.mass.value_or(*selection.true_mass);
    if (part.metrics.step_mean.count() > 0) {
      method.ratio = Milliseconds(whole.metrics.step_mean) / Milliseconds(part.metrics.step_mean);
    }
    method.corrected = true;
    break;
  }
}

// Predicts the selection that promises most, unless none promises more than what there is.
bool Searcher::ConfirmNext(const Requirements& required, const Key& better_than) {
  std::optional<size_t> next;
  Key of_next;
  for (size_t i = 0; i < points_.size(); ++i) {
    const Point& point = points_[i];
    if (!point.estimate || point.predicted || !Admissible(point, required)) continue;
    const Key key = KeyOf(point, required, true);
    if (!next || key < of_next) {
      next = i;
      of_next = key;
    }
  }
  if (!next || !(of_next < better_than)) return false;
  const size_t index = points_[*next].selection;
  const std::string plan = points_[*next].plan, where = points_[*next].where;
  Predict(index, required);
  if (!points_[*next].predicted && !points_[*next].failed) return false;
  // What the whole trace says of the mass may call for another size.
  const Method& method = methods_[selections_[index].method];
  for (const Chain& chain : method.chains) {
    const auto at = std::ranges::find(chain, index);
    if (at == chain.end()) continue;
    const auto as_this = [&](const Point& p) { return p.plan == plan && p.where == where; };
    const bool enough = CorrectedMass(index) >= required.min_mass;
    if (!enough && at + 1 != chain.end()) Estimate(*(at + 1), required, as_this);
    if (enough && at != chain.begin() && selections_[*(at - 1)].mass &&
        CorrectedMass(*(at - 1)) + kCorrectedMassOff >= required.min_mass) {
      Estimate(*(at - 1), required, as_this);
    }
  }
  return true;
}

// What would be had without each requirement, where that is more.
void Searcher::Relax() {
  const std::optional<size_t> best = BestPredicted(request_.required);
  const Key now = best ? KeyOf(points_[*best], request_.required, false) : kWorst;
  const double value = now.first > 0 ? kWorst.first : now.second;
  const std::vector<size_t> promising = Promising(request_.required);
  const auto without = [&](const Requirements& others, bool all, const std::string& option,
                           int most) {
    for (size_t m = 0; m < methods_.size(); ++m) {
      Tell("without " + option + ": " + methods_[m].name, 0.8);
      if (all || std::ranges::find(promising, m) != promising.end()) Begin(methods_[m], others);
    }
    for (int i = 0; i < most; ++i) {
      Tell("without " + option, 0.9);
      if (!ConfirmNext(others, {0, value})) return;
    }
  };
  const Requirements& required = request_.required;
  if (required.max_gpu_bytes < Requirements::kAny) {
    Requirements others = required;
    others.max_gpu_bytes = Requirements::kAny;
    without(others, /*all=*/true, "--max-gpu", kMostRelaxed);
  }
  if (required.min_mass > 0) {
    Requirements others = required;
    others.min_mass = kLittleLess * required.min_mass;
    without(others, /*all=*/false, "--min-mass", kMostRelaxed);
  }
  if (required.max_step_ms < Requirements::kAny) {
    Requirements others = required;
    others.max_step_ms = Requirements::kAny;
    without(others, /*all=*/true, "--max-step", kMostRelaxed);
  }
  if (BestPredicted(required)) return;
  // Nothing meets all but one: what comes nearest.
  Requirements others = required;
  others.max_gpu_bytes = others.max_step_ms = Requirements::kAny;
  for (Method& method : methods_) Begin(method, others);
  for (int i = 0; i < kMostRelaxed; ++i) ConfirmNext(others, kWorst);
}

SearchResult Searcher::Run() {
  const Requirements& required = request_.required;
  const auto of_methods = static_cast<double>(methods_.size());
  for (size_t m = 0; m < methods_.size(); ++m) {
    Tell(fmt::format("method {} of {}: {}", m + 1, methods_.size(), methods_[m].name),
         0.4 * static_cast<double>(m) / of_methods);
    Begin(methods_[m], required);
  }
  const std::vector<size_t> promising = Promising(required);
  for (size_t i = 0; i < promising.size(); ++i) {
    Tell("other parameters of " + methods_[promising[i]].name,
         0.4 + 0.1 * static_cast<double>(i) / static_cast<double>(promising.size()));
    Refine(methods_[promising[i]], required);
  }
  for (int i = 0; i < kMostConfirmed; ++i) {
    Tell("predicting in full", 0.5 + 0.3 * i / kMostConfirmed);
    const std::optional<size_t> best = BestPredicted(required);
    const bool enough = best && i >= kLeastConfirmed;
    const Key now = enough ? KeyOf(points_[*best], required, false) : kWorst;
    if (!ConfirmNext(required, now)) break;
  }
  Relax();
  SearchResult result{.failed = std::move(failed_)};
  for (Point& point : points_) {
    result.estimated += point.estimate ? 1 : 0;
    if (point.predicted) result.predicted.push_back(std::move(*point.predicted));
  }
  return result;
}

}  // namespace

std::string SelectionKey(const Predictor& predictor, const PredictRequest& request) {
  const methods::NamedMethod method = MethodOf(predictor, request);
  return fmt::format("{} {}", method.info->name,
                     Joined(method.method->Params(/*only_selection=*/true)));
}

SearchResult Search(Predictor& predictor, const AdviseRequest& request,
                    std::vector<AdvisePoint> points, const OnAdviseProgress& progress) {
  return Searcher(predictor, request, std::move(points), progress).Run();
}

}  // namespace stallcast::sim
