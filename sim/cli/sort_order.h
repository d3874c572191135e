// By what the rows of a table are sorted.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "sim/prediction_fields.h"

namespace stallcast::cli {

/// One of sim::PredictionFields(), by its name or a short one: time, tokens, mass, gpu, host,
/// exposed, recall, prefill.
class SortOrder {
 public:
  /// By the mean step.
  SortOrder();
  /// Unknown key: usage Error.
  explicit SortOrder(std::string_view key);

  const sim::PredictionField& field() const { return *field_; }
  /// Whether a value goes before another: the better one, and any before NaN.
  bool Before(double a, double b) const;

 private:
  const sim::PredictionField* field_;
  bool largest_first_;
};

/// Adds --sort.
void AddSort(CLI::App& command, SortOrder& order);

}  // namespace stallcast::cli
