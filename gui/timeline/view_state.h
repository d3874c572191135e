// SPDX-License-Identifier: GPL-3.0-or-later
// What a person chose to see, and its steps back.
#pragma once

#include <QElapsedTimer>
#include <QJsonObject>
#include <QString>
#include <QUndoCommand>
#include <functional>
#include <set>
#include <vector>

#include "gui/timeline/axis.h"
#include "gui/timeline/axis_note.h"
#include "gui/timeline/color_by.h"
#include "gui/timeline/layout.h"

namespace stallcast::gui {

struct ViewState {
  AxisRange visible;
  QString filter;
  QString align_by;  ///< name of a range; empty: by step
  std::set<LaneKey> pins, folded, hidden;
  std::vector<AxisNote> notes;  ///< in the order in which they were made
  ColorBy color = ColorBy::kRole;
  bool all_waits = false;
  bool operator==(const ViewState&) const = default;
};

QJsonObject ToJson(const ViewState& state);
/// What is missing or of the wrong type stays as in `state`.
ViewState FromJson(const QJsonObject& json, ViewState state);

/// A change of the view. One movement (keys held down, a wheel turned, a search typed) is one step
/// back: changes of one kind are joined as long as each follows the other within half a second.
class ViewCommand : public QUndoCommand {
 public:
  using Apply = std::function<void(const ViewState&)>;
  ViewCommand(const QString& text, int kind, ViewState before, ViewState after, Apply apply);

  void undo() override { apply_(before_); }
  void redo() override { apply_(after_); }
  int id() const override { return kind_; }
  bool mergeWith(const QUndoCommand* next) override;

 private:
  int kind_;
  ViewState before_, after_;
  Apply apply_;
  QElapsedTimer since_;
};

}  // namespace stallcast::gui
