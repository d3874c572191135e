// Predictions as tables, reports and records.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/profile.h"
#include "sim/cli/output.h"
#include "sim/cli/sort_order.h"
#include "sim/predict.h"
#include "sim/requirements.h"
#include "sim/result_store.h"

namespace stallcast::cli {

struct LeftOut {
  std::string method, reason;
};

/// What was predicted on one machine.
struct MachinePredictions {
  hardware::Profile profile;
  std::vector<sim::Prediction> rows;
  std::vector<LeftOut> left_out;     ///< methods that cannot run as asked
  std::vector<std::string> remarks;  ///< what was asked for and has no effect on some
};

/// How predictions are told.
struct TableForm {
  sim::Requirements required;
  Screen screen;
};

/// In `order`, those that fit the machine before those that do not.
void Sort(std::vector<sim::Prediction>& predictions, const SortOrder& order);

/// Index of the fastest that meets what is required; the number of rows where none does.
size_t BestRow(const std::vector<sim::Prediction>& rows, const sim::Requirements& required);
/// The same, or the nearest to it: there is one wherever there is a row.
size_t ChosenRow(const std::vector<sim::Prediction>& rows, const sim::Requirements& required);

/// One row a method under a title, then a legend and the notes.
std::string ComparisonTable(const MachinePredictions& machine, const std::string& trace,
                            const TableForm& form);
/// Everything about the first prediction.
std::string Report(const MachinePredictions& machine, const std::string& trace,
                   const TableForm& form);
/// Model, machine, context, batch, steps and trace, in two lines.
std::string Heading(const MachinePredictions& machine, const std::string& trace,
                    const Screen& screen);
/// A line a note.
std::string Notes(const MachinePredictions& machine, const Screen& screen);

/// The largest context or batch that fits, from Prediction: "any" where memory does not grow.
std::string LargestContext(const sim::Prediction& prediction);
std::string LargestBatch(const sim::Prediction& prediction);

/// One flat object a prediction, all machines, in their order. `best`: the one with the star.
Json Records(const std::vector<MachinePredictions>& machines, const sim::ResultStore::Trace& trace,
             const sim::Requirements& required);
/// One flat object a method left out: machine, method, reason.
Json LeftOutRecords(const std::vector<MachinePredictions>& machines);

}  // namespace stallcast::cli
