// stallcast-gpu calibrate
#include "capture/calibrate/calibrate.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "capture/cli/commands.h"
#include "capture/run_info.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

struct CalibrateCommand {
  std::string name = "this-machine";
  std::string out;

  void Run() const {
    const auto begin = std::chrono::steady_clock::now();
    Progress progress;
    capture::CalibrateOptions options;
    options.name = name;
    options.command = capture::CommandLine();
    options.progress = [&](const std::string& what, double share) { progress.Update(what, share); };
    const hardware::Profile profile = capture::Calibrate(options);
    const std::string path = out.empty() ? name + ".toml" : out;
    WriteWhole(path,
               [&](const std::filesystem::path& file) { hardware::SaveProfile(profile, file); });
    progress.Clear();
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
    std::string text = fmt::format("{}: {} in {:.0f} s\n\n", path, profile.title, seconds.count());
    TextTable table({{.title = "kernel", .unit = "", .left = true},
                     {.title = "fixed", .unit = "us"},
                     {.title = "bandwidth", .unit = "GB/s"},
                     {.title = "shapes", .unit = ""},
                     {.title = "spread", .unit = "%"}});
    for (const auto& [kind, fit] : profile.kernels) {
      table.Add({kind, Fixed(fit.fixed_s * 1e6, 2),
                 Count(static_cast<int64_t>(fit.bandwidth / 1e9)),
                 Count(static_cast<int64_t>(fit.points.size())), Fixed(fit.spread * 100, 1)});
    }
    text += table.Render();
    std::string notes;
    for (const std::string& note : profile.notes) notes += "\n" + note;
    if (!notes.empty()) notes += "\n";
    text += fmt::format(
        "\nlink {:.1f} GB/s down, {:.1f} up, {:.1f} + {:.1f} at once; device memory {:.0f} GB/s\n"
        "launch {:.2f} us, copy call {:.2f} us, synchronisation {:.2f} us, gap {:.2f} us\n"
        "{}\nUse it: stallcast predict TRACE --machine {}\n",
        profile.link_h2d / 1e9, profile.link_d2h / 1e9, profile.link_both_h2d / 1e9,
        profile.link_both_d2h / 1e9, profile.memory_bandwidth / 1e9, profile.host_launch * 1e6,
        profile.host_copy_call * 1e6, profile.host_sync * 1e6, profile.device_gap * 1e6, notes,
        path);
    Print(text);
  }
};

}  // namespace

void AddCalibrate(CLI::App& app) {
  auto command = std::make_shared<CalibrateCommand>();
  CLI::App* sub = app.add_subcommand("calibrate", "Measure this machine for predictions");
  sub->description(
      R"(Measures links, memory, host calls and every kernel on this machine, and writes a hardware profile.

Examples:
  stallcast-gpu calibrate --name my-h100
  stallcast predict trace.kvt --machine my-h100.toml)");
  sub->add_option("--name", command->name, "Name of the profile (default: this-machine)")
      ->type_name("NAME");
  sub->add_option("-o,--out", command->out, "File to write (default: NAME.toml)")
      ->type_name("FILE");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
