// SPDX-License-Identifier: GPL-3.0-or-later
// What qualifies the picture.
#pragma once

#include <QString>
#include <QStringList>
#include <string>
#include <vector>

#include "gui/timeline/timeline_pair.h"
#include "traces/format/trace_file.h"

namespace stallcast::gui {

/// One kind of qualification and every line that says it.
struct Truth {
  enum class Weight : uint8_t {
    kLoss,    ///< incomplete or impossible: dropped, truncated, zero stamps, damaged, does not fit
    kLimit,   ///< the data stand for something else, or leave something out: projected, not counted
    kChoice,  ///< the user changed something: overridden
  };
  QString name;
  Weight weight = Weight::kLimit;
  QStringList lines;
};

/// Notes of predictions and timelines ("derived: ...") by what stands before the colon; a note of
/// another form is a "note". Repeated lines count once.
class Truths {
 public:
  void AddNotes(const std::vector<std::string>& notes);
  /// What must be known of how the two sides were brought together.
  void AddMatching(const TimelinePair& pair);
  /// Of a measured timeline beside the prediction of a run that nobody records.
  void AddRecording();
  /// Of a prediction that the controls have left for values that cannot be predicted.
  void AddFailed(const QString& why);
  /// What a file's reader found.
  void AddReport(const traces::ReadReport& report, const QString& file);
  /// The heaviest first.
  std::vector<Truth> List() const;

 private:
  void Add(const QString& name, Truth::Weight weight, const QString& line);

  std::vector<Truth> truths_;
};

}  // namespace stallcast::gui
