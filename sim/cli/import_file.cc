#include "sim/cli/import_file.h"

#include "sim/cli/progress.h"

namespace stallcast::cli {

void AddImportFlags(CLI::App& command, ImportFlags& flags) {
  command.add_flag("--strict", flags.strict, "Refuse a damaged file")->group("Trace");
  command
      .add_option("--step-range", flags.step_range,
                  "In files of other programs: the NVTX or profiler range that is a step")
      ->type_name("NAME")
      ->group("Trace");
}

traces::ImportedTrace ImportFile(const std::string& path, const ImportFlags& flags, bool tensors) {
  Progress progress;
  traces::ImportOptions options;
  options.strict = flags.strict;
  options.tensors = tensors;
  options.step_range = flags.step_range;
  options.progress = [&](double share) { progress.Update("reading " + path, share); };
  return traces::Import(path, options);
}

}  // namespace stallcast::cli
