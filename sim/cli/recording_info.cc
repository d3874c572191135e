#include "sim/cli/recording_info.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "models/hardware/profile.h"
#include "sim/cli/replay.h"
#include "sim/replay.h"
#include "sim/timeline_summary.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

using sim::KindTotals;

// Largest busy or exposed time first.
std::vector<std::pair<std::string, KindTotals>> ByTime(
    const std::map<std::string, KindTotals>& kinds) {
  std::vector<std::pair<std::string, KindTotals>> sorted(kinds.begin(), kinds.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) {
    return std::max(a.second.busy, a.second.exposed) > std::max(b.second.busy, b.second.exposed);
  });
  return sorted;
}

Json KindRows(const std::map<std::string, KindTotals>& kinds, const char* name) {
  Json rows = Json::array();
  for (const auto& [kind, of] : ByTime(kinds)) {
    rows.push_back({{name, kind},
                    {"ops", of.ops},
                    {"busy_ms", Milliseconds(of.busy)},
                    {"exposed_ms", Milliseconds(of.exposed)},
                    {"bytes", of.bytes},
                    {"gb_per_s", of.Rate() / 1e9}});
  }
  return rows;
}

std::string StepsText(const sim::TimelineSummary& summary) {
  constexpr size_t kMostShown = 8;
  std::string text =
      fmt::format("{} {}, median {:.3f} ms:", summary.steps.size(),
                  summary.steps.size() == 1 ? "step" : "steps", Milliseconds(summary.step));
  for (size_t i = 0; i < std::min(kMostShown, summary.steps.size()); ++i) {
    text += fmt::format("{} {:.3f}", i == 0 ? "" : ",", Milliseconds(summary.steps[i].second));
  }
  return text + (summary.steps.size() > kMostShown ? ", ...\n" : "\n");
}

// More take seconds: each op's gain is a replay.
constexpr int64_t kMostRows = 200'000;

std::vector<sim::ReplayTop> TopOf(const traces::Timeline& timeline, const std::string& machine) {
  constexpr size_t kTop = 10;
  if (timeline.rows() > kMostRows) return {};
  try {
    const sim::Replay replay(
        timeline, sim::MakeReplayMachine(hardware::FindProfile(sim::MachineOfRecording(machine))));
    return replay.Top(kTop, replay.Run());
  } catch (const Error&) {  // without steps or work of a GPU
    return {};
  }
}

}  // namespace

Json SummaryJson(const traces::Timeline& timeline, const std::string& machine) {
  const sim::TimelineSummary summary = sim::Summarize(timeline);
  Json steps = Json::array();
  for (const auto& [step, time] : summary.steps) {
    steps.push_back({{"step", step}, {"ms", Milliseconds(time)}});
  }
  return {{"step_median_ms", Milliseconds(summary.step)},
          {"computing_ms", Milliseconds(summary.computing)},
          {"exposed_ms", Milliseconds(summary.exposed)},
          {"nothing_runs_ms", Milliseconds(summary.nothing)},
          {"launch_interval_us", Milliseconds(summary.launch_interval) * 1e3},
          {"step_times", steps},
          {"kinds", KindRows(summary.kinds, "kind")},
          {"copies", KindRows(summary.copies, "copy")},
          {"top", TopRows(TopOf(timeline, machine))},
          {"notes", timeline.notes}};
}

std::string SummaryText(const traces::Timeline& timeline, const std::string& machine) {
  const sim::TimelineSummary summary = sim::Summarize(timeline);
  std::string text;
  if (summary.steps.empty()) {
    text += "No steps: name the range that is one with --step-range.\n";
  } else {
    text += StepsText(summary);
    if (summary.launch_interval.count() > 0) {
      text += fmt::format("The host starts a kernel or copy every {:.1f} us (median).\n",
                          Milliseconds(summary.launch_interval) * 1e3);
    }
    TextTable kinds({{"a step, by kind", "", true},
                     {"ops", ""},
                     {"busy", "ms"},
                     {"exposed", "ms"},
                     {"moved", "MB"}});
    const auto ms = [](Picoseconds time) { return Fixed(Milliseconds(time), 3); };
    const auto exposed = [&](Picoseconds time) {
      return summary.has_compute ? ms(time) : std::string("-");
    };
    for (const auto& [kind, of] : ByTime(summary.kinds)) {
      kinds.Add({kind, of.ops == 0 ? "-" : Short(of.ops), ms(of.busy), exposed(of.exposed),
                 of.bytes == 0 ? "-" : Short(of.bytes / 1e6)});
    }
    kinds.Add({"nothing runs", "", "", exposed(summary.nothing), ""});
    if (summary.has_compute) {
      kinds.Add({"computing, exposed", "", ms(summary.computing), ms(summary.exposed), ""});
    }
    text += "\n" + kinds.Render();
    if (!summary.copies.empty()) {
      TextTable copies({{"copies, a step", "", true},
                        {"", "copies"},
                        {"bytes", "MB"},
                        {"time", "ms"},
                        {"rate", "GB/s"}});
      for (const auto& [copy, of] : ByTime(summary.copies)) {
        copies.Add(
            {copy, Short(of.ops), Short(of.bytes / 1e6), ms(of.busy), Fixed(of.Rate() / 1e9, 2)});
      }
      text += "\n" + copies.Render();
    }
    const std::vector<sim::ReplayTop> tops = TopOf(timeline, machine);
    if (!tops.empty()) text += "\n" + TopText(tops);
    if (timeline.rows() > kMostRows) {
      text += "\n`stallcast replay FILE --top` lists the ops with the largest exposed time.\n";
    }
  }
  for (const std::string& note : timeline.notes) text += "note: " + note + '\n';
  return text;
}

}  // namespace stallcast::cli
