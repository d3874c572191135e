#include "models/hardware/own_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <cmath>
#include <functional>
#include <sstream>
#include <vector>

#include "models/hardware/links.h"
#include "models/hardware/profile.h"
#include "models/hardware/profile_check.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"

namespace stallcast::hardware {
namespace {

namespace fs = std::filesystem;

constexpr OwnFigure kFigures[] = {
    {"--base", &OwnMachine::base, "NAME", "h100",
     "Profile that all other values come from: a card of the same generation"},
    {"--memory", &OwnMachine::memory, "BYTES", "32GiB",
     "Memory of the GPU; nvidia-smi reports what is usable"},
    {"--bandwidth", &OwnMachine::bandwidth, "RATE", "1792GB/s",
     "Bandwidth of its memory, of the data sheet"},
    {"--sms", &OwnMachine::sms, "N", "170", "Multiprocessors"},
    {"--link", &OwnMachine::link, "LINK", "pcie5x16",
     "Link to the host: pcie3x1 to pcie6x16, c2c, or a rate that copies reach"},
    {"--flops", &OwnMachine::flops, "RATE", "209.5TFLOPS",
     "Dense BF16 with FP32 sums, of the data sheet"},
    {"--host-memory", &OwnMachine::host_memory, "BYTES", "64GiB", "Memory of the host", true},
};

std::string Quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

// Collects what is wrong instead of ending at the first.
class Problems {
 public:
  void Add(std::string problem) { all_.push_back(std::move(problem)); }
  /// NaN where `parse` fails.
  double Try(const std::function<double()>& parse) {
    try {
      return parse();
    } catch (const Error& error) {
      Add(fmt::format("{}: {} ({})", error.where(), error.problem(), error.remedy()));
      return std::nan("");
    }
  }
  void Refuse() const {
    if (all_.empty()) return;
    throw UsageError(fmt::format("{}", fmt::join(all_, "; ")), "profile new",
                     "`stallcast profile new --help` has an example");
  }

 private:
  std::vector<std::string> all_;
};

std::string Value(double value, Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes:
      return fmt::format("{:.0f} B", value);
    case Dimension::kRate:
      return fmt::format("{:.5g} GB/s", value / 1e9);
    case Dimension::kFlops:
      return fmt::format("{:.5g} TFLOPS", value / 1e12);
    default:
      return fmt::format("{:.0f}", value);
  }
}

}  // namespace

std::span<const OwnFigure> OwnFigures() { return kFigures; }

std::string OwnProfile(const OwnMachine& machine, const fs::path& folder) {
  Problems problems;
  std::vector<std::string> missing;
  for (const OwnFigure& figure : kFigures) {
    if (!figure.optional && (machine.*figure.member).empty()) {
      missing.push_back(fmt::format("{} (as {})", figure.option, figure.example));
    }
  }
  if (!missing.empty()) {
    problems.Add(
        fmt::format("{} {} missing", fmt::join(missing, ", "), missing.size() == 1 ? "is" : "are"));
  }
  if (machine.name.empty() || machine.name.find_first_not_of(
                                  "abcdefghijklmnopqrstuvwxyz0123456789-_.") != std::string::npos) {
    problems.Add(fmt::format("the name '{}' has something else than a to z, 0 to 9, '-', '_', '.'",
                             machine.name));
  }
  for (const auto& [option, share] : {std::pair{"--read-share", machine.read_share},
                                      {"--gemm-share", machine.gemm_share},
                                      {"--prefill-share", machine.prefill_share}}) {
    if (!(share > 0 && share <= 1)) {
      problems.Add(fmt::format("{}: {} is not above 0 and at most 1", option, share));
    }
  }
  // Each figure in base units, checked as a profile's value is.
  const auto parsed = [&](const std::string& text, std::string_view option, Dimension dimension,
                          std::string_view path, double share) {
    if (text.empty()) return std::nan("");
    return problems.Try([&] {
      const double value = share * ParseQuantity(text, dimension, option);
      const std::string wrong = OutOfRange(path, dimension, value);
      if (!wrong.empty()) throw UsageError(wrong, std::string(option), "give the published one");
      return value;
    });
  };
  const double memory = parsed(machine.memory, "--memory", Dimension::kBytes, "memory.bytes", 1);
  const double bandwidth = parsed(machine.bandwidth, "--bandwidth", Dimension::kRate,
                                  "memory.bandwidth", machine.read_share);
  const double sms = parsed(machine.sms, "--sms", Dimension::kNumber, "device.sms", 1);
  const double gemm =
      parsed(machine.flops, "--flops", Dimension::kFlops, "kernel.gemm.flops", machine.gemm_share);
  const double prefill =
      std::isnan(gemm) ? gemm : gemm / machine.gemm_share * machine.prefill_share;
  const double host_memory =
      parsed(machine.host_memory, "--host-memory", Dimension::kBytes, "host.bytes", 1);
  LinkRates link;
  if (!machine.link.empty() && machine.link.front() >= '0' && machine.link.front() <= '9') {
    link.h2d = link.d2h = parsed(machine.link, "--link", Dimension::kRate, "link.h2d", 1);
  } else if (!machine.link.empty()) {
    problems.Try([&] {
      link = LinkNamed(machine.link, "--link");
      return link.h2d;
    });
  }
  std::string base = machine.base;
  if (!base.empty()) {
    problems.Try([&] {
      const fs::path file = ProfilePath(base);
      LoadProfile(file);
      // A file is sought from the folder of the new one.
      if (base.ends_with(".toml")) base = fs::relative(file, folder).string();
      return 0.0;
    });
  }
  problems.Refuse();

  std::string text = fmt::format(
      "# Made by `stallcast profile new` from published figures. Any value may be added or "
      "changed:\n"
      "# `stallcast info --machine FILE` lists them all.\n"
      "name = {}\nbase = {}\ntitle = {}\nstatus = \"derived\"\n"
      "provenance = \"Published figures of the card; what they leave open is the base's.\"\n"
      "notes = [\n  \"Nothing here was measured on this machine.\",\n]\n",
      Quoted(machine.name), Quoted(base),
      Quoted(machine.title.empty() ? machine.name : machine.title));
  const auto row = [&](std::string_view name, double value, Dimension dimension,
                       const std::string& source) {
    text += fmt::format("{} = {{ value = \"{}\", source = {} }}\n", name, Value(value, dimension),
                        Quoted(source));
  };
  text += "\n[memory]\n";
  row("bandwidth", bandwidth, Dimension::kRate,
      fmt::format("{} published, of which reads are assumed to get {:g}", machine.bandwidth,
                  machine.read_share));
  row("bytes", memory, Dimension::kBytes, fmt::format("{} published", machine.memory));
  text += "\n[device]\n";
  row("sms", sms, Dimension::kNumber, "published");
  text += "\n[link]\n";
  row("h2d", link.h2d, Dimension::kRate, machine.link);
  row("d2h", link.d2h, Dimension::kRate, machine.link);
  if (!std::isnan(host_memory)) {
    text += "\n[host]\n";
    row("bytes", host_memory, Dimension::kBytes, "as given");
  }
  for (const auto& [kind, flops, share] : {std::tuple{"gemm", gemm, machine.gemm_share},
                                           {"prefill_attention", prefill, machine.prefill_share}}) {
    text += fmt::format("\n[kernel.{}]\nflops = \"{}\"\nsource = {}\n", kind,
                        Value(flops, Dimension::kFlops),
                        Quoted(fmt::format("{} published, of which {:g} is assumed to be reached; "
                                           "the rest by the memory's rate",
                                           machine.flops, share)));
  }
  return text;
}

}  // namespace stallcast::hardware
