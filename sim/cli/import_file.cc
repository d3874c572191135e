#include "sim/cli/import_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "traces/common/error.h"
#include "traces/samples.h"

namespace stallcast::cli {

void AddImportFlags(CLI::App& command, ImportFlags& flags) {
  command.add_flag("--strict", flags.strict, "Refuse a damaged file")->group("Trace");
  command
      .add_option("--step-range", flags.step_range,
                  "In files of other programs: the NVTX or profiler range that is a step")
      ->type_name("NAME")
      ->group("Trace");
}

traces::ImportedTrace ImportFile(const std::string& path, const ImportFlags& flags,
                                 Progress& progress, bool check) {
  traces::ImportOptions options;
  options.strict = flags.strict;
  options.tensors = false;
  options.check = check;
  options.step_range = flags.step_range;
  options.progress = [&](double share) { progress.Update("reading " + path, share); };
  traces::ImportedTrace imported = traces::Import(traces::TracePath(path), options);
  progress.Clear();
  return imported;
}

traces::Trace ImportTimelines(const std::string& path, const ImportFlags& flags, Progress& progress,
                              std::vector<std::string>* notes) {
  traces::ImportedTrace imported = ImportFile(path, flags, progress, /*check=*/false);
  const std::vector<std::string>& problems = imported.report.problems;
  if (imported.trace.timelines.empty() && !problems.empty()) {
    throw Error(fmt::format("holds no intact timeline ({})", problems.front()), path,
                "give a whole file, or one with a timeline that is not damaged");
  }
  const auto tell = [&](std::string_view kind, const std::string& text) {
    if (notes != nullptr) {
      notes->push_back(text);
    } else {
      fmt::print(stderr, "{}: {}{}\n", path, kind, text);
    }
  };
  for (const std::string& problem : problems) tell("", problem);
  if (imported.format != traces::FileFormat::kTrace) {
    // What the format has and a timeline does not; problems are among the notes.
    for (const traces::Timeline& t : imported.trace.timelines) {
      for (const std::string& note : t.notes) {
        if (std::ranges::count(problems, note) == 0) tell("note: ", note);
      }
    }
  }
  return std::move(imported.trace);
}

traces::Trace ImportTitled(const std::string& path, const ImportFlags& flags, Progress& progress,
                           std::vector<std::string>* notes) {
  traces::Trace file = ImportTimelines(path, flags, progress, notes);
  for (traces::Timeline& timeline : file.timelines) {
    if (timeline.title.empty()) timeline.title = std::filesystem::path(path).filename().string();
  }
  return file;
}

}  // namespace stallcast::cli
