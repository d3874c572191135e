#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "traces/convert/export.h"
#include "traces/convert/layout.h"
#include "traces/convert/output_file.h"

namespace stallcast::traces {
namespace {

// A JSON string; bytes that are not UTF-8 are replaced.
std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds, exact; unsigned because starts may lie further apart than a signed difference
// holds.
std::string Microseconds(Picoseconds time, Picoseconds origin) {
  const uint64_t since =
      static_cast<uint64_t>(time.count()) - static_cast<uint64_t>(origin.count());
  return fmt::format("{}.{:06}", since / 1'000'000, since % 1'000'000);
}

class Events {
 public:
  explicit Events(std::ostream* stream) : stream_(*stream) {
    stream_ << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  }
  // The closing bracket.
  void End() { stream_ << "\n]}\n"; }

  void Add(const std::string& event) {
    stream_ << (first_ ? "\n" : ",\n") << event;
    first_ = false;
  }

 private:
  std::ostream& stream_;
  bool first_ = true;
};

std::string Metadata(std::string_view what, size_t pid, size_t tid, std::string_view value) {
  return fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{{}}}}})", what,
                     pid, tid, value);
}

std::string Arguments(const Timeline& timeline, size_t row) {
  std::string arguments;
  const auto add = [&](std::string_view name, int64_t value) {
    arguments += fmt::format("{}\"{}\": {}", arguments.empty() ? "" : ", ", name, value);
  };
  if (timeline.op[row] >= 0) add("op", timeline.op[row]);
  if (timeline.step[row] >= 0) add("step", timeline.step[row]);
  if (timeline.layer[row] >= 0) add("layer", timeline.layer[row]);
  if (timeline.bytes[row] != 0) add("bytes", timeline.bytes[row]);
  return arguments;
}

// What viewers show, and behind it what importing the file again needs.
std::string ProcessArguments(const Timeline& timeline) {
  std::string notes;
  for (const std::string& note : timeline.notes)
    notes += (notes.empty() ? "" : ", ") + Quoted(note);
  return fmt::format(R"("name": {}, "origin": "{}", "title": {}, "notes": [{}])",
                     Quoted(GroupName(timeline)), Name(timeline.origin), Quoted(timeline.title),
                     notes);
}

std::string ThreadArguments(const Timeline& timeline, const Track& track) {
  const TimelineLane& lane = timeline.lanes[track.lane];
  return fmt::format(R"("name": {}, "lane": {}, "kind": "{}", "compute": {})",
                     Quoted(TrackName(timeline, track)), track.lane, Name(lane.kind), lane.compute);
}

// Process `pid`; `flow_id` counts on over the file.
void WriteTimeline(const Timeline& timeline, size_t pid, uint64_t* flow_id, Events* events) {
  const Layout layout = LayOut(timeline);
  const Picoseconds origin = FirstStart(timeline);
  const auto place = [&](size_t row) {
    return fmt::format(R"("pid": {}, "tid": {}, "ts": {})", pid, layout.track_of_row[row] + 1,
                       Microseconds(timeline.start[row], origin));
  };
  events->Add(Metadata("process_name", pid, 0, ProcessArguments(timeline)));
  for (size_t track = 0; track < layout.tracks.size(); ++track) {
    events->Add(
        Metadata("thread_name", pid, track + 1, ThreadArguments(timeline, layout.tracks[track])));
    events->Add(
        Metadata("thread_sort_index", pid, track + 1, fmt::format("\"sort_index\": {}", track)));
  }
  std::vector<std::string> names;
  for (const std::string& name : timeline.names) names.push_back(Quoted(name));
  for (size_t row = 0; row < timeline.start.size(); ++row) {
    events->Add(fmt::format(
        R"({{"ph": "X", "name": {}, "cat": "{}", {}, "dur": {}, "args": {{{}}}}})",
        names[timeline.name[row]], Name(timeline.role[row]), place(row),
        Microseconds(timeline.duration[row], Picoseconds(0)), Arguments(timeline, row)));
  }
  const auto add_flow_end = [&](std::string_view phase, size_t row) {
    events->Add(fmt::format(
        R"({{"ph": {}, "name": "wait", "cat": "wait", "id": {}, {}, "args": {{"op": {}}}}})", phase,
        *flow_id, place(row), timeline.op[row]));
  };
  for (const RowFlow& flow : FlowsBetweenRows(timeline)) {
    ++*flow_id;
    add_flow_end(R"("s")", static_cast<size_t>(flow.from));
    add_flow_end(R"("f", "bp": "e")", static_cast<size_t>(flow.to));
  }
}

}  // namespace

void ExportChromeJson(std::span<const Timeline> timelines, const std::filesystem::path& path) {
  for (const Timeline& timeline : timelines) RequireNoFault(timeline);
  OutputFile file(path);
  Events events(&file.stream());
  uint64_t flow_id = 0;
  for (size_t i = 0; i < timelines.size(); ++i) {
    WriteTimeline(timelines[i], i + 1, &flow_id, &events);
  }
  events.End();
  file.Close();
}

}  // namespace stallcast::traces
