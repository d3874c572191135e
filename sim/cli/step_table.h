// Step time by batch and context of one method on one machine, for simulators of requests.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stallcast::cli {

struct StepTableCommand {
  bool asked = false;
  std::string method = "freekv", model, machine = "h200";
  std::string contexts = "1K:128K:x2", batches = "1:64:x2";  ///< as axes of a grid
  std::vector<std::string> params, overrides;

  /// Adds --step-table and what belongs to it.
  void AddTo(CLI::App& command);
  /// Predicts the table of `trace` and writes it to `out`, a .csv or .json file.
  void Write(const std::string& trace, const std::string& out) const;
};

}  // namespace stallcast::cli
