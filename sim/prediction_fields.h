// The numbers of a prediction by name, declared once for the table, JSON, CSV and the sweep's file.
#pragma once

#include <span>
#include <string>

#include "sim/predict.h"

namespace stallcast::sim {

enum class FieldKind { kReal, kCount, kFlag };

/// One number of a prediction.
struct PredictionField {
  std::string name;  ///< as in JSON, CSV and SQLite, with its unit: "step_p50_ms"
  std::string help;  ///< one line
  /// NaN: not known, or does not apply.
  double (*value)(const Prediction&, int role);
  FieldKind kind = FieldKind::kReal;
  int role = 0;  ///< passed to `value`; an index of traces::Role for the fields by role

  double Of(const Prediction& prediction) const { return value(prediction, role); }
};

/// All of them, in the order in which they are written.
std::span<const PredictionField> PredictionFields();

/// The role that the compute lane waited for longest, or an empty string if it never waited.
std::string MostExposedRole(const Metrics& metrics);

/// How far the mean step is above the ceiling, as a share of the ceiling. NaN without a ceiling.
double AboveCeiling(const Metrics& metrics);

}  // namespace stallcast::sim
