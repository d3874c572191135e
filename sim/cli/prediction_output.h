// Predictions as tables, reports and records.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/profile.h"
#include "sim/cli/output.h"
#include "sim/predict.h"
#include "sim/result_store.h"

namespace stallcast::cli {

struct LeftOut {
  std::string method, reason;
};

/// What was predicted on one machine.
struct MachinePredictions {
  hardware::Profile profile;
  std::vector<sim::Prediction> rows;
  std::vector<LeftOut> left_out;  ///< methods that cannot run as asked
};

/// By mean step time, those that fit the machine before those that do not.
void SortBestFirst(std::vector<sim::Prediction>& predictions);

/// One row a method under a title, then a legend and the notes. `wide`: all columns; else as many
/// as fit 140 characters.
std::string ComparisonTable(const MachinePredictions& machine, const std::string& trace, bool wide);
/// Everything about the first prediction.
std::string Report(const MachinePredictions& machine, const std::string& trace);
/// One flat object a prediction, all machines, best first within each.
Json Records(const std::vector<MachinePredictions>& machines, const sim::ResultStore::Trace& trace);
/// One flat object a method left out: machine, method, reason.
Json LeftOutRecords(const std::vector<MachinePredictions>& machines);

}  // namespace stallcast::cli
