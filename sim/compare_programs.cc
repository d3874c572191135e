#include "sim/compare_programs.h"

#include <algorithm>
#include <tuple>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

using traces::Timeline;

using Place = std::tuple<int64_t, int16_t, std::string>;  // step by order, layer, kind

std::map<Place, int64_t> CountPlaces(const Timeline& t, const TimelineSummary& summary,
                                     int64_t steps, bool by_layer) {
  std::map<int32_t, int64_t> order;
  for (int64_t i = 0; i < steps; ++i) order[summary.steps[static_cast<size_t>(i)].first] = i;
  std::map<std::pair<uint32_t, traces::Role>, std::string> kind_of;
  std::map<Place, int64_t> count;
  for (int64_t row = 0; row < t.rows(); ++row) {
    const auto i = static_cast<size_t>(row);
    const auto step = order.find(t.step[i]);
    if (step == order.end() || !IsWork(t, row)) continue;
    std::string& kind = kind_of[{t.name[i], t.role[i]}];
    if (kind.empty()) kind = KindOfRow(t, row);
    ++count[{step->second, by_layer ? t.layer[i] : int16_t{-1}, kind}];
  }
  return count;
}

bool KnowsLayers(const Timeline& t) {
  int64_t work = 0, known = 0;
  for (int64_t row = 0; row < t.rows(); ++row) {
    if (!IsWork(t, row) || t.step[static_cast<size_t>(row)] < 0) continue;
    ++work;
    known += t.layer[static_cast<size_t>(row)] >= 0 ? 1 : 0;
  }
  return 2 * known > work;
}

}  // namespace

ProgramComparison ComparePrograms(const Timeline& a, const Timeline& b) {
  ProgramComparison result;
  result.a = Summarize(a);
  result.b = Summarize(b);
  for (const auto& [side, timeline] : {std::pair(&result.a, &a), std::pair(&result.b, &b)}) {
    if (side->steps.empty()) {
      throw Error("the timeline has no step", timeline->title,
                  "name the range that is one with --step-range; `stallcast info` tells them");
    }
  }
  result.steps = std::min(std::ssize(result.a.steps), std::ssize(result.b.steps));
  result.by_layer = KnowsLayers(a) && KnowsLayers(b);
  for (const auto& [kind, of] : result.a.kinds) result.kinds[kind].a = of;
  for (const auto& [kind, of] : result.b.kinds) result.kinds[kind].b = of;

  std::map<Place, std::pair<int64_t, int64_t>> places;
  for (const auto& [place, count] : CountPlaces(a, result.a, result.steps, result.by_layer)) {
    places[place].first = count;
  }
  for (const auto& [place, count] : CountPlaces(b, result.b, result.steps, result.by_layer)) {
    places[place].second = count;
  }
  for (const auto& [place, count] : places) {
    ProgramComparison::Kind& kind = result.kinds[std::get<2>(place)];
    const int64_t both = std::min(count.first, count.second);
    kind.matched += both;
    kind.only_a += count.first - both;
    kind.only_b += count.second - both;
  }

  const auto consider = [&](const std::string& kind, Picoseconds longer) {
    if (std::chrono::abs(longer) <= std::chrono::abs(result.cause_longer)) return;
    result.cause = kind;
    result.cause_longer = longer;
  };
  for (const auto& [kind, of] : result.kinds) consider(kind, of.b.exposed - of.a.exposed);
  consider("nothing runs", result.b.nothing - result.a.nothing);
  consider("computing", result.b.computing - result.a.computing);
  return result;
}

}  // namespace stallcast::sim
