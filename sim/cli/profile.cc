// stallcast profile
#include "models/hardware/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/hardware/own_machine.h"
#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

namespace fs = std::filesystem;
using hardware::Profile;

struct NewCommand {
  hardware::OwnMachine machine;
  std::string out;

  void Run() const;
};

// Where the values of a machine come from.
struct Origins {
  Json given = Json::array();
  std::vector<std::string> scaled;         ///< those of the base that go with what was given
  std::map<std::string, int64_t> of_base;  ///< values by section
};

Origins OriginsOf(const Profile& made, const Profile& base, const std::string& base_name) {
  Origins origins;
  const auto add = [&](std::string_view path, bool same) {
    const auto source = made.sources.find(path);
    const bool inherited = source == made.sources.end() || source->second.starts_with("none: ") ||
                           source->second.starts_with(base_name + ": ");
    if (!inherited) return false;
    if (same) {
      ++origins.of_base[std::string(path.substr(0, path.find('.')))];
    } else {
      origins.scaled.emplace_back(path);
    }
    return true;
  };
  const auto give = [&](const std::string& path, double now, double before, Dimension dimension) {
    origins.given.push_back({{"value", path},
                             {made.name, FormatQuantity(now, dimension)},
                             {base_name, FormatQuantity(before, dimension)}});
  };
  for (const hardware::ProfileField& field : hardware::ProfileFields()) {
    const double now = field.In(made), before = field.In(base);
    if (!field.in_file() || (field.optional() && now == 0 && before == 0)) continue;
    if (!add(field.path, now == before)) {
      give(std::string(field.path), now, before, field.dimension);
    }
  }
  for (const hardware::CurveField& curve : hardware::CurveFields()) {
    if (!curve.In(base).empty()) add(curve.path, curve.In(made).y() == curve.In(base).y());
  }
  for (const hardware::SurfaceField& surface : hardware::SurfaceFields()) {
    add(surface.path, surface.In(made).values() == surface.In(base).values());
  }
  for (const auto& [kind, fit] : made.kernels) {
    const hardware::KernelFit& of_base = base.kernels.at(kind);
    for (const hardware::KernelField& field : hardware::KernelFields()) {
      const double now = fit.*field.member, before = of_base.*field.member;
      const std::string path = fmt::format("kernel.{}.{}", kind, field.path);
      if (field.path == "flops" && now != before) {
        give(path, now, before, field.dimension);
      } else if (now != before) {
        const std::string all = fmt::format("kernel.*.{}", field.path);
        if (origins.scaled.empty() || origins.scaled.back() != all) origins.scaled.push_back(all);
      } else if (now != 0) {
        ++origins.of_base["kernel"];
      }
    }
  }
  return origins;
}

void NewCommand::Run() const {
  const fs::path file = out.empty() ? fs::path(machine.name + ".toml") : fs::path(out);
  const std::string text = hardware::OwnProfile(machine, fs::absolute(file).parent_path());
  if (file.extension() != ".toml") {
    throw UsageError("a profile's name ends in .toml", file.string(), "give --out such a name");
  }
  if (fs::exists(file)) {
    throw UsageError("is there already", file.string(), "choose another name, or remove it");
  }
  const Profile base = hardware::FindProfile(machine.base);
  std::optional<Profile> made;
  WriteWhole(file, [&](const fs::path& part) {
    std::ofstream stream(part, std::ios::binary);
    stream << text;
    if (!stream.flush()) throw Error("cannot be written", file.string(), "give it room");
    made = hardware::LoadProfile(part);
  });
  Origins origins = OriginsOf(*made, base, made->base);
  std::string from;
  for (const auto& [section, values] : origins.of_base) {
    from += fmt::format("{}{} ({})", from.empty() ? "" : ", ", section, values);
  }
  const Screen screen = OutputScreen();
  Print(
      fmt::format("{}: {}, over {}\n\n{}\n", file.string(), made->title, base.title,
                  TableOf(origins.given)) +
      Wrap(fmt::format("Of {}, changed with these: {}.", machine.base,
                       fmt::join(origins.scaled, ", ")),
           screen.width, 2) +
      "\n" +
      Wrap(fmt::format("Of {} as they are, by section: {}.", machine.base, from), screen.width, 2) +
      "\n" +
      Wrap(fmt::format("`stallcast info --machine {0}` tells the source of each value; `--machine "
                       "{0}` predicts with them.",
                       file.has_parent_path() ? file.string() : "./" + file.string()),
           screen.width, 2) +
      "\n");
}

}  // namespace

void AddProfile(CLI::App& app) {
  CLI::App* profile = app.add_subcommand("profile", "Write a machine of one's own");
  profile->description(R"(Writes a profile of a machine of one's own.

Examples:
  stallcast profile new my-5090 --base rtx-pro-6000 --memory 32607MiB \
      --bandwidth 1792GB/s --sms 170 --link pcie5x16 --flops 209.5TFLOPS
  stallcast predict )" STALLCAST_SAMPLE R"( --model llama-3.1-8b --machine my-5090.toml)");
  profile->require_subcommand(1);
  auto command = std::make_shared<NewCommand>();
  CLI::App* sub = profile->add_subcommand("new", "Write one from a data sheet and another profile");
  sub->description(
      R"(Writes a profile from figures of a data sheet, over the profile of another machine.

Example:
  stallcast profile new my-5090 --base rtx-pro-6000 --memory 32607MiB \
      --bandwidth 1792GB/s --sms 170 --link pcie5x16 --flops 209.5TFLOPS

What a data sheet does not say (calls, copies, waits, the kernels of methods) comes from the base. A
value that is given changes those that go with it, as --set does. `stallcast-gpu calibrate` measures
all instead.)");
  sub->add_option("name", command->machine.name, "Name of the machine")
      ->required()
      ->type_name("NAME");
  for (const hardware::OwnFigure& figure : hardware::OwnFigures()) {
    sub->add_option(std::string(figure.option), command->machine.*figure.member,
                    fmt::format("{}, as {}", figure.help, figure.example))
        ->type_name(std::string(figure.unit))
        ->group(figure.optional ? "May be given" : "Needed");
  }
  const auto share = [&](const char* name, double& value, const char* help) {
    sub->add_option(name, value, help)
        ->type_name("SHARE")
        ->capture_default_str()
        ->group("May be given");
  };
  share("--read-share", command->machine.read_share,
        "What reads get of --bandwidth; public kernel tables have 0.83 to 0.85 of L40S and RTX PRO "
        "6000");
  share("--gemm-share", command->machine.gemm_share, "What large GEMMs reach of --flops");
  share("--prefill-share", command->machine.prefill_share,
        "What attention over a prompt reaches of --flops");
  sub->add_option("--title", command->machine.title, "What lists call it")
      ->type_name("TEXT")
      ->group("May be given");
  sub->add_option("-o,--out", command->out, "File to write (default: NAME.toml)")
      ->type_name("FILE")
      ->group("Output");
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
