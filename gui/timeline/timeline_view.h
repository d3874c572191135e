// SPDX-License-Identifier: GPL-3.0-or-later
// The timeline: the predicted side above the axis, the measured one below it, mirrored.
#pragma once

#include <QJsonObject>
#include <QList>
#include <QUndoStack>
#include <QWidget>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "gui/timeline/axis.h"
#include "gui/timeline/color_by.h"
#include "gui/timeline/op_details.h"
#include "gui/timeline/timeline_model.h"
#include "gui/timeline/timeline_pair.h"
#include "sim/compare.h"

class QAction;
class QMenu;

namespace stallcast::gui {

/// What a context menu is opened on.
struct MenuSubject {
  /// Of the selected area: what it holds of a side, by the side's clock.
  struct Area {
    Picoseconds begin{0}, end{0};
    std::vector<int32_t> lanes;  ///< ascending
  };
  std::optional<OpRef> op;
  std::array<std::optional<Area>, 2> areas;  ///< by side; none: not on the area
};

/// Shows one or two timelines. Commands are actions, for menus, toolbars and the palette; keys work
/// while the view has the focus. Time on the
/// axis is that of alignment(), not of a side's clock.
class TimelineView : public QWidget {
  Q_OBJECT

 public:
  using Model = std::shared_ptr<const TimelineModel>;

  explicit TimelineView(QWidget* parent = nullptr);
  ~TimelineView() override;

  /// Shows these sides; either may be null. Matches them here; large ones are better matched in a
  /// worker (TimelinePair::Make) and given to SetPair. The step in the
  /// middle of the screen stays where it is when a side is replaced (a slider moved); the first
  /// sides are shown whole.
  void SetSides(sim::Predicted<Model> predicted, sim::Measured<Model> measured);
  void SetPair(std::shared_ptr<const TimelinePair> pair);  ///< null: nothing is shown
  const std::shared_ptr<const TimelinePair>& pair() const;

  /// Another prediction, drawn as a thin band of this name beside each predicted lane; null removes
  /// it.
  void SetGhost(Model ghost, const QString& name = QStringLiteral("before"));
  const Model& ghost() const;

  /// Aligns the sides by the rows of this name (an NVTX range, say) instead of by step; empty: by
  /// step. Falls back as Align() does; alignment() tells.
  void AlignByRange(const QString& name);
  const Alignment& alignment() const;

  /// Commands by the menu that they belong to ("View", "Go", "Select"), in menu order. Each has an
  /// object name, a text with a mnemonic, a shortcut and a status tip. The view owns them.
  struct Menu {
    QString title;
    QList<QAction*> actions;  ///< null: a separator
  };
  const QList<Menu>& Commands() const;
  /// Zoom, filter, pins, colors and alignment, each undoable.
  QUndoStack* undo_stack();

  /// What is on the screen.
  AxisRange visible() const;
  void ShowRange(AxisRange range);  ///< undoable; cut to what there is
  void ShowAll();
  /// Shows a step of usual length, or two layers of it where its ops are too narrow for labels. Not
  /// undoable: what a new timeline begins with.
  void ShowTypicalStep();
  void ShowStep(int32_t step);  ///< unknown steps are told by Message
  /// The step in the middle of the view, -1 without steps.
  int32_t CurrentStep() const;

  void SetColorBy(ColorBy color);
  ColorBy color_by() const;

  /// Words of the filter (see Filter); empty shows all alike. False, with the reason in Message,
  /// when it makes no sense.
  bool SetFilter(const QString& words);
  QString filter() const;
  /// Whether the filter chooses a row.
  bool Chooses(OpRef op) const;

  void Select(std::optional<OpRef> op);  ///< and scrolls to it
  std::optional<OpRef> selected() const;
  std::optional<AreaSums> area() const;  ///< of the selected area

  /// Range, filter, pins, colors, alignment. Restoring ignores what does not fit.
  QJsonObject SaveState() const;
  void RestoreState(const QJsonObject& state);

  /// Height from which on more would stay empty.
  int ComfortableHeight();

  QSize sizeHint() const override;
  QSize minimumSizeHint() const override;

 Q_SIGNALS:
  void OpHovered(std::optional<stallcast::gui::OpDetails> op);
  void OpSelected(std::optional<stallcast::gui::OpDetails> op);
  void AreaSelected(std::optional<stallcast::gui::AreaSums> area);
  void RangeChanged(stallcast::gui::AxisRange visible);
  void StepChanged(int step);  ///< CurrentStep()
  void ColorByChanged(stallcast::gui::ColorBy color);
  void FilterChanged(const QString& words);
  /// Before a context menu is shown: who listens may add to it.
  void MenuOpened(QMenu* menu, const stallcast::gui::MenuSubject& subject);
  void Message(const QString& text);  ///< for a status bar: nothing found, no twin, ...
  void Painted(qint64 nanoseconds);   ///< how long a frame took: geometry and painting

 protected:
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;
  void mousePressEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void leaveEvent(QEvent* event) override;
  void wheelEvent(QWheelEvent* event) override;
  void contextMenuEvent(QContextMenuEvent* event) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::gui
