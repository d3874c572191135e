// Predictions as records for programs.
#include "sim/cli/prediction_output.h"
#include "sim/cli/prediction_record.h"

namespace stallcast::cli {

Json Records(const std::vector<MachinePredictions>& machines, const sim::ResultStore::Trace& trace,
             const sim::Requirements& required) {
  Json records = Json::array();
  for (const MachinePredictions& machine : machines) {
    const size_t best = BestRow(machine.rows, required);
    for (size_t i = 0; i < machine.rows.size(); ++i) {
      Json record = RecordOf(machine.rows[i], trace);
      record["good_enough"] = required.Met(sim::FiguresOf(machine.rows[i]));
      record["best"] = i == best;
      records.push_back(std::move(record));
    }
  }
  return records;
}

Json LeftOutRecords(const std::vector<MachinePredictions>& machines) {
  Json records = Json::array();
  for (const MachinePredictions& machine : machines) {
    for (const LeftOut& each : machine.left_out) {
      records.push_back(
          {{"machine", machine.profile.name}, {"method", each.method}, {"reason", each.reason}});
    }
  }
  return records;
}

}  // namespace stallcast::cli
