#include "sim/cli/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "sim/cli/help.h"
#include "sim/cli/output.h"
#include "sim/launch.h"
#include "sim/names.h"
#include "traces/common/error.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

// Of the processes of mpirun, which fail alike, one says so.
int Fail(const Program& program, const std::string& message, int status) {
  if (sim::LaunchOf().rank == 0) fmt::print(stderr, "{}: {}\n", program.name, message);
  return status;
}

int ParseAndRun(const Program& program, int argc, char** argv) {
  CLI::App app(program.overview, program.name);
  app.set_version_flag("--version", program.name + " " STALLCAST_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  UseHelpLayout(app);
  app.require_subcommand(0, 1);
  for (const auto add : program.commands) add(app);
  app.footer(fmt::format("`{} COMMAND --help` tells more about a command.", program.name));
  try {
    RefuseEmpty({argv + std::min(1, argc), argv + argc});
    if (argc > 1 && argv[1][0] != '-') {
      std::vector<std::string> commands;
      for (const CLI::App* command : app.get_subcommands({}))
        commands.push_back(command->get_name());
      sim::CheckName("command", argv[1], commands, "");
    }
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) Print(HelpText(app));
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    std::string command;
    const CLI::App* innermost = &app;
    while (!innermost->get_subcommands().empty()) {
      innermost = innermost->get_subcommands().front();
      command += innermost->get_name() + " ";
    }
    if (error.get_exit_code() != 0) {
      return Fail(
          program,
          fmt::format("{}; run `{} {}--help`", FirstLine(error.what()), program.name, command), 2);
    }
    // Asked for: --help or --version.
    Print(dynamic_cast<const CLI::CallForVersion*>(&error) ? error.what() + std::string("\n")
                                                           : HelpText(*innermost));
    return 0;
  }
}

}  // namespace

void RefuseEmpty(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& text = arguments[i];
    const bool option = text.starts_with("--") && text.ends_with("=");
    if (!text.empty() && !option) continue;
    const bool value = i > 0 && arguments[i - 1].starts_with('-');
    throw UsageError("an empty value",
                     option  ? text
                     : value ? arguments[i - 1]
                             : fmt::format("argument {}", i + 1),
                     "give one, or leave it out");
  }
}

int RunProgram(const Program& program, int argc, char** argv) {
  // A reader that has seen enough (`| head`) ends this program without a word.
  std::signal(SIGPIPE, SIG_DFL);
  RemovePartsOnSignals();
  try {
    return ParseAndRun(program, argc, argv);
  } catch (const Error& error) {
    return Fail(program, error.what(), error.usage() ? 2 : 1);
  } catch (const std::bad_alloc&) {
    return Fail(program, "out of memory; use a shorter context, fewer steps or a smaller batch", 1);
  } catch (const std::exception& error) {
    return Fail(program, FirstLine(error.what()), 1);
  }
}

}  // namespace stallcast::cli
