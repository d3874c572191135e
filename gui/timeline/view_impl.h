// SPDX-License-Identifier: GPL-3.0-or-later
// The inside of TimelineView: state, commands, pictures.
#pragma once

#include <QImage>
#include <QLabel>
#include <QLineEdit>
#include <QPointF>
#include <QTimer>
#include <memory>
#include <optional>
#include <tuple>

#include "gui/timeline/frame_painter.h"
#include "gui/timeline/overlay.h"
#include "gui/timeline/scene.h"
#include "gui/timeline/timeline_view.h"
#include "gui/timeline/view_state.h"

namespace stallcast::gui {

class TimelineView::Impl {
 public:
  /// Kinds of changes that join into one step back.
  enum class Change : int { kNone = -1, kZoom = 1, kPan, kFilter };

  explicit Impl(TimelineView* view);
  static QString tr(const char* text) { return TimelineView::tr(text); }

  // Sides.
  void SetPair(std::shared_ptr<const TimelinePair> next);
  void SetGhost(Model ghost, const QString& name);

  // The view state; every change goes through Change(), so that it can be undone.
  const ViewState& state() const { return state_; }
  void ChangeTo(ViewState next, const QString& text, Change kind = Change::kNone);
  void ShowRange(AxisRange range, const QString& text, Change kind = Change::kNone);
  void Zoom(double factor, Picoseconds about);
  void Pan(double share);
  bool SetFilter(const QString& words);
  void TogglePin(const LaneKey& key);
  void ToggleFold(const LaneKey& key);
  void AlignByRange(const QString& name);

  // Commands.
  void MakeCommands();
  void ZoomIn();
  void ZoomOut();
  void PanLeft();
  void PanRight();
  void LanesUp();
  void LanesDown();
  void PageUp();
  void PageDown();
  void ShowAll();
  void ShowSelection();
  void ToggleColor();
  void ToggleWaits();
  void OpenSearch();
  void ClearFilter();
  void PinLane();
  void FoldLane();
  void UnfoldAll();
  void HideLane();
  void ShowHidden();
  void AskForRange();
  void NextOp();
  void PreviousOp();
  void GoToTwin();
  void GoToCause();
  void WorstResidual();
  void NextStep();
  void PreviousStep();
  void JumpToStep();
  void NextMatch();
  void PreviousMatch();
  void ToggleMeasure();
  void MeasureFromHere();
  void FindAlike();
  void Copy();
  void AddNote();
  void RemoveNote();
  void NextNote();
  void PreviousNote();
  void ClearSelection();

  // Selection.
  void Select(std::optional<OpRef> op, bool scroll);
  void SetHover(Hit hit);
  void ClearArea();
  void FinishArea();
  int32_t CurrentStep() const;
  void GoStep(int direction);
  void ShowStep(int32_t step);
  void ShowTypicalStep();

  // Pictures.
  void Invalidate();
  void Paint(QPaintEvent* event);
  void EnsureScene();

  // Mouse, in device pixels.
  void Press(QMouseEvent* event);
  void Move(QMouseEvent* event);
  void Release(QMouseEvent* event);
  void DoubleClick(QMouseEvent* event);
  void Wheel(QWheelEvent* event);
  void Leave();
  void ShowMenu(QPoint at, QPoint on_screen);
  void PlaceSearch();

  TimelineView* view_;
  std::shared_ptr<const TimelinePair> pair_;
  Model ghost_;
  QString ghost_name_;
  Alignment alignment_;
  QUndoStack undo_;
  QList<TimelineView::Menu> menus_;

 private:
  friend class TimelineView;
  enum class Drag : uint8_t { kNone, kPressed, kArea, kPan, kMeasure, kMinimap };

  // Order of matches: by start on the axis, then side and row.
  using MatchPlace = std::tuple<Picoseconds, int, int64_t>;

  void Apply(const ViewState& next);
  // What a menu was opened at, or else what the cursor is at.
  QPoint PlaceAtHand() const { return menu_at_.value_or(cursor_); }
  Picoseconds TimeAtHand() const;
  std::optional<size_t> NoteAtHand() const;
  MenuSubject::Area AreaOf(Side side) const;
  void GoToNote(int direction);
  std::optional<AxisRange> TwoLayers(int32_t step) const;
  QAction* Command(const char* name) const;
  void Realign();
  AxisRange Fit(AxisRange range) const;
  double scale() const;
  QPoint DevicePoint(const QPointF& logical) const;
  SceneInput Input() const;
  Picoseconds SnappedAxis(QPoint at) const;
  void UpdateArea();
  LaneKey KeyOf(Side side, int32_t lane) const;
  std::optional<LaneKey> LaneAtHand() const;
  QStringList RangeNames() const;
  void UpdateHover(QPoint at);
  void HoverWhatIsUnderTheCursor();
  void Match(int direction);
  std::optional<OpRef> NearestMatch(MatchPlace from, int direction) const;
  MatchPlace PlaceOf(OpRef op) const;
  void FilterOps();
  bool searching() const { return view_->focusWidget() == search_; }
  void ShowSearch();
  void ShowFound();
  void OpOnTrack(int direction);
  void ScrollLanes(int by);
  int PageHeight();
  void ScrollTo(OpRef op);
  void Reveal(OpRef op);
  void Say(const QString& text) { Q_EMIT view_->Message(text); }

  ViewState state_;
  std::array<FilterMask, 2> masks_;
  std::array<int, 2> scroll_{};
  std::optional<OpRef> selected_;
  Hit hover_;
  QPoint cursor_{-1, -1};
  bool measuring_ = false;
  std::optional<OverlayInput::Measure> measure_;
  std::optional<Picoseconds> measure_from_;  // the cursor measures from here until the next click
  std::optional<QPoint> menu_at_;            // while a menu is open
  std::optional<Box> area_box_;
  AreaTracks area_tracks_;
  std::optional<AreaSums> sums_;
  Drag drag_ = Drag::kNone;
  QPoint pressed_;
  Qt::MouseButton button_ = Qt::NoButton;
  AxisRange pressed_range_;
  int last_step_ = -1;

  QLineEdit* search_ = nullptr;
  QLabel* found_ = nullptr;  // beside it: which match of how many
  QTimer search_delay_;

  // Kept while nothing that they depend on changes.
  bool scene_valid_ = false, minimap_valid_ = false;
  int minimap_width_ = 0;
  std::array<std::vector<Bar>, 2> minimap_;
  Layout layout_;
  Scene scene_;
  QImage base_;
  std::unique_ptr<Fonts> fonts_;
  double fonts_scale_ = 0;
};

}  // namespace stallcast::gui
