#include "sim/cli/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include "traces/common/error.h"
#include "traces/convert/export.h"
#include "traces/format/trace_file.h"

namespace stallcast::cli {

namespace fs = std::filesystem;

void WriteWhole(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) {
    throw Error("is a folder", path.string(), "give a file name");
  }
  const bool direct = fs::exists(status) && !fs::is_regular_file(status);
  // Through a link, what it points to is replaced.
  const fs::path target = direct || !fs::exists(status) ? path : fs::canonical(path, ignored);
  fs::path part = target;
  if (!direct) {
    part.replace_filename(fmt::format(".{}.part-{}", target.filename().string(), ::getpid()));
  }
  try {
    write(part);
    if (!direct) fs::rename(part, target);
  } catch (const Error& error) {
    if (!direct) fs::remove(part, ignored);
    throw Error(error.problem(), path.string(), error.remedy(),
                error.usage() ? Error::Kind::kUsage : Error::Kind::kFailure);
  } catch (const fs::filesystem_error& error) {
    if (!direct) fs::remove(part, ignored);
    throw Error(error.code().message(), path.string(), "choose another place");
  } catch (...) {
    if (!direct) fs::remove(part, ignored);
    throw;
  }
}

void RefuseToReplace(const fs::path& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (fs::is_regular_file(input, ignored) && fs::equivalent(output, input, ignored)) {
      throw UsageError("is read here and would be lost", output.string(),
                       "write to a file of another name");
    }
  }
}

TimelineFormat TimelineFormatOf(const fs::path& path, const std::string& name) {
  std::string wanted = name.empty() ? path.extension().string() : "." + name;
  if (wanted == ".pftrace" || wanted == ".perfetto-trace") return TimelineFormat::kPerfetto;
  if (wanted == ".json") return TimelineFormat::kChromeJson;
  if (wanted == ".csv") return TimelineFormat::kCsv;
  if (wanted == ".kvt") return TimelineFormat::kTrace;
  throw UsageError(fmt::format("no timeline format for '{}'", wanted), path.string(),
                   "end the name in .pftrace (Perfetto), .json (Chrome), .csv or .kvt");
}

void WriteTimelines(const std::vector<traces::Timeline>& timelines, TimelineFormat format,
                    const traces::proto::TraceInfo& info, const fs::path& path) {
  WriteWhole(path, [&](const fs::path& part) {
    switch (format) {
      case TimelineFormat::kPerfetto:
        return traces::ExportPerfetto(timelines, part);
      case TimelineFormat::kChromeJson:
        return traces::ExportChromeJson(timelines, part);
      case TimelineFormat::kCsv:
        return traces::ExportCsv(timelines, part);
      case TimelineFormat::kTrace: {
        traces::TraceWriter writer(part, info);
        for (const traces::Timeline& timeline : timelines) writer.Write(timeline);
        return writer.Finish();
      }
    }
  });
}

}  // namespace stallcast::cli
