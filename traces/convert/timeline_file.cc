#include "traces/convert/timeline_file.h"

#include <fmt/format.h>

#include "traces/common/error.h"
#include "traces/common/whole_file.h"
#include "traces/convert/export.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {

namespace fs = std::filesystem;

TimelineFormat TimelineFormatOf(const fs::path& path, const std::string& name) {
  std::string wanted = name.empty() ? path.extension().string() : "." + name;
  if (wanted == ".pftrace" || wanted == ".perfetto-trace") return TimelineFormat::kPerfetto;
  if (wanted == ".json") return TimelineFormat::kChromeJson;
  if (wanted == ".csv") return TimelineFormat::kCsv;
  if (wanted == ".kvt") return TimelineFormat::kTrace;
  throw UsageError(fmt::format("no timeline format for '{}'", wanted), path.string(),
                   "end the name in .pftrace (Perfetto), .json (Chrome), .csv or .kvt");
}

void WriteTimelines(const std::vector<Timeline>& timelines, TimelineFormat format,
                    const proto::TraceInfo& info, const fs::path& path) {
  WriteWhole(path, [&](const fs::path& part) {
    switch (format) {
      case TimelineFormat::kPerfetto:
        return ExportPerfetto(timelines, part);
      case TimelineFormat::kChromeJson:
        return ExportChromeJson(timelines, part);
      case TimelineFormat::kCsv:
        return ExportCsv(timelines, part);
      case TimelineFormat::kTrace: {
        TraceWriter writer(part, info);
        for (const Timeline& timeline : timelines) writer.Write(timeline);
        return writer.Finish();
      }
    }
  });
}

}  // namespace stallcast::traces
