// The `stallcast` command. Exit status: 0 done, 1 failed, 2 wrong usage.
#include <fmt/core.h>

#include <csignal>
#include <new>
#include <string>

#include "sim/cli/commands.h"
#include "sim/cli/help.h"
#include "sim/cli/output.h"
#include "sim/names.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

constexpr const char* kOverview =
    R"(Predicts how long LLM decode steps take when the KV cache lives off the GPU, and why.

Examples:
  stallcast predict )" STALLCAST_SAMPLE R"(
      every method on the sample trace, on an H200
  stallcast predict )" STALLCAST_SAMPLE R"( --method freekv --budget 4096 --set link.h2d=100GB/s
      a what-if: twice the budget and a faster link
  stallcast sweep )" STALLCAST_SAMPLE
    R"( -o results.sqlite -g budget=2048:8192:x2
      a grid of predictions over all cores, into a file)";

int Fail(const std::string& message, int status) {
  fmt::print(stderr, "stallcast: {}\n", message);
  return status;
}

int Run(int argc, char** argv) {
  CLI::App app(kOverview, "stallcast");
  app.set_version_flag("--version", "stallcast " STALLCAST_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  UseHelpLayout(app);
  app.require_subcommand(0, 1);
  AddPredict(app);
  AddSweep(app);
  AddInfo(app);
  AddCompare(app);
  AddExport(app);
  AddSynth(app);
  app.footer("`stallcast COMMAND --help` tells more about a command.");
  try {
    if (argc > 1 && argv[1][0] != '-') {
      std::vector<std::string> commands;
      for (const CLI::App* command : app.get_subcommands({}))
        commands.push_back(command->get_name());
      sim::CheckName("command", argv[1], commands, "");
    }
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) Print(HelpText(app));
    return 0;
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    if (error.get_exit_code() != 0) {
      const std::string command = parsed.empty() ? "" : parsed.front()->get_name() + " ";
      return Fail(fmt::format("{}; run `stallcast {}--help`", FirstLine(error.what()), command), 2);
    }
    // Asked for: --help or --version.
    Print(dynamic_cast<const CLI::CallForVersion*>(&error) ? error.what() + std::string("\n")
          : parsed.empty()                                 ? HelpText(app)
                                                           : HelpText(*parsed.front()));
    return 0;
  }
}

}  // namespace
}  // namespace stallcast::cli

int main(int argc, char** argv) {
  // A reader that has seen enough (`| head`) ends this program without a word.
  std::signal(SIGPIPE, SIG_DFL);
  using stallcast::cli::Fail;
  try {
    return stallcast::cli::Run(argc, argv);
  } catch (const stallcast::Error& error) {
    return Fail(error.what(), error.usage() ? 2 : 1);
  } catch (const std::bad_alloc&) {
    return Fail("out of memory; use a shorter context, fewer steps or a smaller batch", 1);
  } catch (const std::exception& error) {
    return Fail(stallcast::cli::FirstLine(error.what()), 1);
  }
}
