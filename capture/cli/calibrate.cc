// stallcast-gpu calibrate
#include "capture/calibrate/calibrate.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "capture/cli/commands.h"
#include "capture/run_info.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

using hardware::How;
using hardware::Site;

struct CalibrateCommand {
  std::string name, out;
  std::string host;  // the profile of which the host's part is measured anew

  void Run() const {
    const auto begin = std::chrono::steady_clock::now();
    hardware::Profile former;
    if (!host.empty()) former = hardware::FindProfile(host);
    capture::CalibrateOptions options;
    options.name = !name.empty() ? name : host.empty() ? "this-machine" : former.name;
    const std::string path = out.empty() ? options.name + ".toml" : out;
    // Measuring takes minutes: whether the result can be written is found out before.
    WriteWholeIf(path, [](const std::filesystem::path& file) {
      hardware::SaveProfile({}, file);
      return false;
    });
    Progress progress;
    options.command = capture::CommandLine();
    options.progress = [&](const std::string& what, double share) { progress.Update(what, share); };
    const hardware::Profile profile = host.empty()
                                          ? capture::Calibrate(options)
                                          : capture::CalibrateHost(std::move(former), options);
    WriteWhole(path,
               [&](const std::filesystem::path& file) { hardware::SaveProfile(profile, file); });
    progress.Clear();
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
    std::string text = fmt::format("{}: {} in {:.0f} s\n\n", path, profile.title, seconds.count());
    if (host.empty()) text += Kernels(profile) + "\n" + Rates(profile) + "\n";
    std::string notes;
    for (const std::string& note : profile.notes) notes += "\n" + note;
    if (!notes.empty()) notes += "\n";
    text += fmt::format(
        "launch {:.2f} us, copy call {:.2f} us, synchronisation {:.2f} us, gap {:.2f} us\n"
        "{}\nUse it: stallcast predict TRACE --machine {}\n",
        profile.host.launch * 1e6, profile.host.copy_call * 1e6,
        profile.handoff(Site::kKernel, Site::kHost, How::kEvent) * 1e6,
        profile.handoff(Site::kKernel, Site::kKernel, How::kStream) * 1e6, notes, path);
    Print(text);
  }

 private:
  static std::string Kernels(const hardware::Profile& profile) {
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
    return table.Render();
  }
  static std::string Rates(const hardware::Profile& profile) {
    return fmt::format(
        "link {:.1f} GB/s down, {:.1f} up, {:.1f} + {:.1f} at once; device memory {:.0f} GB/s",
        profile.link.h2d / 1e9, profile.link.d2h / 1e9, profile.link.both_h2d / 1e9,
        profile.link.both_d2h / 1e9, profile.memory.bandwidth / 1e9);
  }
};

}  // namespace

void AddCalibrate(CLI::App& app) {
  auto command = std::make_shared<CalibrateCommand>();
  CLI::App* sub = app.add_subcommand("calibrate", "Measure this machine for predictions");
  sub->description(
      R"(Measures links, memory, host calls and every kernel on this machine, and writes a hardware profile.

With --host only host calls and threads are measured anew, which is far quicker. Use it
for a profile of the same kind of machine: a shared host is faster at one time than at
another.

Examples:
  stallcast-gpu calibrate --name my-h100
  stallcast-gpu calibrate --host my-h100.toml
  stallcast predict trace.kvt --machine my-h100.toml)");
  sub->add_option("--host", command->host,
                  "Measure the host's part of this profile anew, a file or a name")
      ->type_name("PROFILE");
  sub->add_option("--name", command->name,
                  "Name of the profile (default: this-machine, with --host the profile's)")
      ->type_name("NAME");
  sub->add_option("-o,--out", command->out, "File to write (default: NAME.toml)")
      ->type_name("FILE");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
