// NAME=VALUE on the command line: parameters of methods and values of machines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace stallcast::cli {

using Assignments = std::vector<std::pair<std::string, std::string>>;  ///< name, value

/// `given` to `option`, which is written as in `example`. One that is no NAME=VALUE: usage Error.
Assignments Split(const std::vector<std::string>& given, const std::string& option,
                  const std::string& example);
/// Usage Error where a name is given twice: which of the values is meant cannot be known.
void RefuseTwice(const Assignments& given, const std::string& option);

/// Adds --set, which goes to `given`.
void AddSet(CLI::App& command, std::vector<std::string>& given, const std::string& group);
/// What was given to --set. What `machine` does not take, or one given twice: usage Error.
Assignments OverridesOf(const std::vector<std::string>& given, const std::string& machine);

}  // namespace stallcast::cli
