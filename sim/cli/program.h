// What the commands of this project have in common: errors, help, exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stallcast::cli {

struct Program {
  std::string name;
  std::string overview;  ///< what it does and how it is called, for its help
  /// Each adds a subcommand with its options, its help and a callback that runs it. A callback
  /// throws Error for what the user can act on, CLI::RuntimeError to end with a status of its own.
  std::vector<void (*)(CLI::App&)> commands;
};

/// Usage Error for an empty value: mostly a variable of the shell that is not set, which would
/// count as not given. What follows `--` is another program's.
void RefuseEmpty(const std::vector<std::string>& arguments);

/// Runs the subcommand that the arguments name. Returns the exit status: 0 done, 1 failed, 2 wrong
/// usage; the latter two after one line on standard error.
int RunProgram(const Program& program, int argc, char** argv);

}  // namespace stallcast::cli
