// SPDX-License-Identifier: GPL-3.0-or-later
// Caveats: what the picture leaves out, stands in for, or has lost.
#pragma once

#include <QString>
#include <QStringList>
#include <string>
#include <vector>

#include "gui/timeline/timeline_pair.h"
#include "traces/format/trace_file.h"

namespace stallcast::gui {

/// One kind of caveat and every line that says it.
struct Caveat {
  enum class Weight : uint8_t {
    kLoss,    ///< incomplete or impossible: dropped, truncated, zero stamps, damaged, does not fit
    kLimit,   ///< the data stand for something else, or leave something out: projected, predicted only
    kChoice,  ///< the user changed something: overridden
  };
  QString name;
  Weight weight = Weight::kLimit;
  QStringList lines;
};

/// Notes of predictions and timelines ("derived: ...") by what stands before the colon; a note of
/// another form by its first words. Repeated lines count once.
class Caveats {
 public:
  void AddNotes(const std::vector<std::string>& notes);
  /// What must be known of how the two sides were brought together.
  void AddMatching(const TimelinePair& pair);
  /// Of a measured timeline beside the prediction of a run that nobody records.
  void AddRecording();
  /// Of a prediction that the controls have left for values that cannot be predicted.
  void AddFailed(const QString& why);
  /// Of a timeline whose file ends within a step.
  void AddCutStep();
  /// What a file's reader found.
  void AddReport(const traces::ReadReport& report, const QString& file);
  /// The heaviest first.
  std::vector<Caveat> List() const;

 private:
  void Add(const QString& name, Caveat::Weight weight, const QString& line);

  std::vector<Caveat> caveats_;
};

}  // namespace stallcast::gui
