#include <fmt/format.h>

#include <string>

#include "traces/convert/export.h"
#include "traces/convert/layout.h"
#include "traces/convert/output_file.h"

namespace stallcast::traces {
namespace {

// As RFC 4180 has it.
std::string Field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string Known(int64_t value) { return value < 0 ? "" : std::to_string(value); }

}  // namespace

void ExportCsv(std::span<const Timeline> timelines, const std::filesystem::path& path) {
  for (const Timeline& timeline : timelines) RequireNoFault(timeline);
  OutputFile file(path);
  file.stream() << "timeline,lane,lane_kind,op,step,layer,role,name,start_ps,duration_ps,bytes\n";
  for (const Timeline& timeline : timelines) {
    const std::string group = Field(GroupName(timeline));
    for (size_t row = 0; row < timeline.start.size(); ++row) {
      const TimelineLane& lane = timeline.lanes[timeline.lane[row]];
      file.stream() << fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{}\n", group, Field(lane.name), Name(lane.kind),
          Known(timeline.op[row]), Known(timeline.step[row]), Known(timeline.layer[row]),
          Name(timeline.role[row]), Field(timeline.names[timeline.name[row]]),
          timeline.start[row].count(), timeline.duration[row].count(), timeline.bytes[row]);
    }
  }
  file.Close();
}

}  // namespace stallcast::traces
