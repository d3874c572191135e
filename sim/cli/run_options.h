// Options that say what to predict, shared by `predict`, `sweep` and `stallcast-gpu run`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "sim/cli/assignments.h"
#include "sim/cli/progress.h"
#include "sim/grid.h"
#include "sim/predict.h"

namespace stallcast::cli {

class RunOptions {
 public:
  /// Adds the options to a command, in groups. `method`: a name or `all`, where none is asked for.
  void AddTo(CLI::App& command, const std::string& method);

  /// Names of the methods asked for, `all` spelled out.
  std::vector<std::string> Methods() const;
  /// Names of the machines asked for, or the H200.
  std::vector<std::string> Machines() const;

  /// The request for one of Methods() on one of Machines(). Wrong names and values: usage Errors.
  sim::PredictRequest RequestFor(const std::string& method, const std::string& machine) const;
  /// Parameters given, as name and value. One given twice: usage Error.
  Assignments Params() const;
  /// That each parameter given is one of at least one of `methods`, and its value one that all of
  /// them take, or with AllMethods() one of them.
  void CheckParams(const std::vector<std::string>& methods) const;
  /// Whether every method is asked for: one that cannot run as asked is then left out.
  bool AllMethods() const;
  /// "budget=2048 is no parameter of full", for each parameter that some of `methods` lack.
  std::vector<std::string> NotApplied(const std::vector<std::string>& methods) const;
  /// Usage Error where no model is given and the trace's own is none that somebody runs.
  void RequireModel(const traces::proto::TraceInfo& trace,
                    const std::vector<sim::Axis>& axes = {}) const;

  /// What a grid is over: the request for the first method on the first machine, without
  /// parameters.
  sim::PredictRequest GridBase() const;
  /// What is given to --grid, and an axis for the methods and the machines where there are several
  /// and for each parameter: each point takes those that its method has. Usage Errors as
  /// ParseAxis() and, where no axis has the methods, CheckParams() throw them.
  std::vector<sim::Axis> Axes(const std::vector<std::string>& grid) const;
  /// Adds --grid, which goes to `grid`.
  static void AddGrid(CLI::App& command, std::vector<std::string>& grid);

  /// Names among the options that may be files to read: the model, machines and values of
  /// parameters.
  std::vector<std::string> Inputs() const;

  /// How to open the trace.
  sim::Predictor::Options PredictorOptions(Progress& progress) const;

 private:
  sim::PredictRequest request_;
  std::string method_;
  std::vector<std::string> methods_, machines_, params_, overrides_;
  std::string context_, budget_;
  std::string host_;
  bool graph_ = false, no_prefill_ = false, strict_ = false, no_cache_ = false;
};

}  // namespace stallcast::cli
