// SPDX-License-Identifier: GPL-3.0-or-later
// The commands of the timeline: what each key and menu entry does.
#include <QAction>
#include <QInputDialog>
#include <QUndoStack>
#include <algorithm>
#include <cmath>
#include <map>

#include "gui/timeline/view_impl.h"
#include "gui/timeline/words.h"

namespace stallcast::gui {

void TimelineView::Impl::MakeCommands() {
  const auto add = [this](const char* name, const QString& text, const QList<QKeySequence>& keys,
                          const QString& tip, void (Impl::*run)()) {
    auto* action = new QAction(text, view_);
    action->setObjectName(QString::fromLatin1(name));
    action->setShortcuts(keys);
    action->setShortcutContext(Qt::WidgetWithChildrenShortcut);
    action->setStatusTip(tip);
    QObject::connect(action, &QAction::triggered, view_, [this, run] { (this->*run)(); });
    view_->addAction(action);
    menus_.back().actions.append(action);
  };
  const auto separate = [this] { menus_.back().actions.append(nullptr); };
  const auto stack_action = [this](QAction* action, const char* name, const QKeySequence& key,
                                   const QString& tip) {
    action->setObjectName(QString::fromLatin1(name));
    action->setShortcut(key);
    action->setStatusTip(tip);
    view_->addAction(action);
    menus_.back().actions.append(action);
  };

  menus_.append({tr("View"), {}});
  add("zoom_in", tr("Zoom &In"), {Qt::Key_W}, tr("Shows half as much, about the cursor"),
      &Impl::ZoomIn);
  add("zoom_out", tr("Zoom &Out"), {Qt::Key_S}, tr("Shows twice as much, about the cursor"),
      &Impl::ZoomOut);
  add("pan_left", tr("Pan &Left"), {Qt::Key_A, Qt::Key_Left}, tr("Moves to earlier times"),
      &Impl::PanLeft);
  add("pan_right", tr("Pan &Right"), {Qt::Key_D, Qt::Key_Right}, tr("Moves to later times"),
      &Impl::PanRight);
  add("lanes_up", tr("Scroll Lanes Up"), {Qt::Key_Up}, tr("Shows what lies above"), &Impl::LanesUp);
  add("lanes_down", tr("Scroll Lanes Down"), {Qt::Key_Down}, tr("Shows what lies below"),
      &Impl::LanesDown);
  add("page_up", tr("A Page of Lanes Up"), {Qt::Key_PageUp},
      tr("Shows what lies above, all but one row of it new"), &Impl::PageUp);
  add("page_down", tr("A Page of Lanes Down"), {Qt::Key_PageDown},
      tr("Shows what lies below, all but one row of it new"), &Impl::PageDown);
  add("show_all", tr("Show &All"), {Qt::Key_Home, Qt::Key_0}, tr("Shows the whole timeline"),
      &Impl::ShowAll);
  add("show_selection", tr("Zoom to &Selection"), {Qt::Key_F},
      tr("Fills the view with the selected op and its twin, or with the selected area"),
      &Impl::ShowSelection);
  separate();
  add("toggle_color", tr("Color by Role or &Residual"), {Qt::Key_R},
      tr("Colors ops by what they are for, or by how far the prediction is off"),
      &Impl::ToggleColor);
  add("toggle_waits", tr("Show All &Waits"), {Qt::Key_X},
      tr("Draws an arrow for each wait between lanes that is on the screen"), &Impl::ToggleWaits);
  add("pin_lane", tr("&Pin Lane"), {Qt::Key_P},
      tr("Keeps the lane under the cursor (or of the selected op) beside the axis"),
      &Impl::PinLane);
  add("fold_lane", tr("Fold Lan&e"), {Qt::Key_C},
      tr("Folds the lane under the cursor (or of the selected op) into one row, or unfolds it"),
      &Impl::FoldLane);
  add("unfold_all", tr("&Unfold All Lanes"), {QKeySequence(Qt::SHIFT | Qt::Key_C)},
      tr("Shows every lane whole"), &Impl::UnfoldAll);
  add("hide_lane", tr("&Hide Lane"), {Qt::Key_H},
      tr("Takes the lane under the cursor (or of the selected op) off the screen"),
      &Impl::HideLane);
  add("show_hidden", tr("Show Hidden Lanes"), {QKeySequence(Qt::SHIFT | Qt::Key_H)},
      tr("Brings all hidden lanes back"), &Impl::ShowHidden);
  separate();
  add("align_by_range", tr("Align by Ra&nge…"), {Qt::Key_L},
      tr("Lays both sides out by the ranges of a name (NVTX, say) instead of by step"),
      &Impl::AskForRange);
  separate();
  stack_action(undo_.createUndoAction(view_, tr("Un&do")), "undo_view",
               QKeySequence(Qt::CTRL | Qt::Key_Z), tr("Goes back to what was shown before"));
  stack_action(undo_.createRedoAction(view_, tr("Redo")), "redo_view",
               QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_Z), tr("Takes back the last undo"));

  menus_.append({tr("Go"), {}});
  add("next_op", tr("&Next Op"), {Qt::Key_Period}, tr("Selects the next op of the track"),
      &Impl::NextOp);
  add("previous_op", tr("&Previous Op"), {Qt::Key_Comma},
      tr("Selects the op before it on its track"), &Impl::PreviousOp);
  add("go_twin", tr("&Twin"), {Qt::Key_T}, tr("Selects the same op on the other side"),
      &Impl::GoToTwin);
  add("go_cause", tr("What It &Waited For"), {Qt::Key_B},
      tr("Selects the op whose end let the selected one start"), &Impl::GoToCause);
  add("worst_residual", tr("Next Wo&rst Residual"), {Qt::Key_E},
      tr("Selects the visible op whose prediction is off by most; again: the next"),
      &Impl::WorstResidual);
  separate();
  add("next_step", tr("Next &Step"), {Qt::Key_BracketRight}, tr("Shows the next step"),
      &Impl::NextStep);
  add("previous_step", tr("Previous S&tep"), {Qt::Key_BracketLeft}, tr("Shows the step before"),
      &Impl::PreviousStep);
  add("jump_step", tr("&Jump to Step…"), {Qt::Key_G}, tr("Asks for a step and shows it"),
      &Impl::JumpToStep);
  separate();
  add("search", tr("&Search and Filter…"), {QKeySequence(Qt::CTRL | Qt::Key_F), Qt::Key_Slash},
      tr("Words, role:recall, lane:copy, step:3-5, layer:0, dur>10us, residual>5%; -word for not"),
      &Impl::OpenSearch);
  add("next_match", tr("Next &Match"), {Qt::Key_N, Qt::Key_F3}, tr("Selects the next op found"),
      &Impl::NextMatch);
  add("previous_match", tr("Previous M&atch"),
      {QKeySequence(Qt::SHIFT | Qt::Key_N), QKeySequence(Qt::SHIFT | Qt::Key_F3)},
      tr("Selects the op found before it"), &Impl::PreviousMatch);
  add("clear_filter", tr("&Clear Filter"), {QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_F)},
      tr("Shows all ops alike"), &Impl::ClearFilter);

  separate();
  add("find_alike", tr("&Find Alike"), {Qt::Key_U},
      tr("Filters for ops of the same name as the selected one"), &Impl::FindAlike);
  add("next_note", tr("Next N&ote"), {Qt::Key_J}, tr("Goes to the next note on the axis"),
      &Impl::NextNote);
  add("previous_note", tr("Previous Not&e"), {QKeySequence(Qt::SHIFT | Qt::Key_J)},
      tr("Goes to the note before"), &Impl::PreviousNote);

  menus_.append({tr("Select"), {}});
  add("measure", tr("&Measure"), {Qt::Key_M},
      tr("Dragging measures a time, snapping to ops; so does the right button at any time"),
      &Impl::ToggleMeasure);
  add("clear_selection", tr("&Clear Selection"), {Qt::Key_Escape},
      tr("Leaves the search; or drops the selected op, area and measure; again: the filter"),
      &Impl::ClearSelection);
  separate();
  add("measure_from_here", tr("Measure &from Here"), {QKeySequence(Qt::SHIFT | Qt::Key_M)},
      tr("Measures from the cursor to wherever it goes, until the next click"),
      &Impl::MeasureFromHere);
  add("copy_selection", tr("C&opy"), {QKeySequence::Copy},
      tr("Copies what is known of the selected op or area, as a table"), &Impl::Copy);
  separate();
  add("add_note", tr("&Add Note…"), {Qt::Key_K},
      tr("Puts a note on the axis at the cursor; sessions and reports keep it"), &Impl::AddNote);
  add("remove_note", tr("&Remove Note"), {QKeySequence(Qt::SHIFT | Qt::Key_K)},
      tr("Removes the note nearest to the cursor"), &Impl::RemoveNote);
  Command("measure")->setCheckable(true);
}

namespace {

constexpr double kKeyZoom = 1.6, kKeyPan = 0.15;

}  // namespace

void TimelineView::Impl::ZoomIn() { Zoom(1 / kKeyZoom, TimeAtHand()); }
void TimelineView::Impl::ZoomOut() { Zoom(kKeyZoom, TimeAtHand()); }

void TimelineView::Impl::PanLeft() { Pan(-kKeyPan); }
void TimelineView::Impl::PanRight() { Pan(kKeyPan); }

void TimelineView::Impl::LanesUp() {
  EnsureScene();
  ScrollLanes(-layout_.row_height);
}

void TimelineView::Impl::LanesDown() {
  EnsureScene();
  ScrollLanes(layout_.row_height);
}

void TimelineView::Impl::PageUp() { ScrollLanes(-PageHeight()); }
void TimelineView::Impl::PageDown() { ScrollLanes(PageHeight()); }

void TimelineView::Impl::ShowAll() { ShowRange(alignment_.whole, tr("show all")); }

void TimelineView::Impl::ShowSelection() {
  if (sums_) {
    ShowRange(sums_->range, tr("zoom to area"));
    return;
  }
  if (!selected_) {
    Say(tr("Nothing is selected: click an op, or drag over an area"));
    return;
  }
  AxisRange range;
  const auto add = [&](OpRef op) {
    const SceneInput input = Input();
    const auto span = pair_->model(op.side)->SpanOf(op.row);
    const AxisRange of{input.map(op.side).ToAxis(span.start),
                       input.map(op.side).EndToAxis(span.end)};
    range = range.length().count() == 0
                ? of
                : AxisRange{std::min(range.begin, of.begin), std::max(range.end, of.end)};
  };
  const auto twin = pair_->Twin(*selected_);
  add(*selected_);
  if (twin) add(*twin);
  const Picoseconds margin = std::max(range.length(), Picoseconds{1000}) * 3 / 4;
  ShowRange({range.begin - margin, range.end + margin}, tr("zoom to op"));
  ScrollTo(*selected_);
  if (twin) ScrollTo(*twin);
}

void TimelineView::Impl::ToggleColor() {
  view_->SetColorBy(state_.color == ColorBy::kRole ? ColorBy::kResidual : ColorBy::kRole);
}

void TimelineView::Impl::ToggleWaits() {
  ViewState next = state_;
  next.all_waits = !next.all_waits;
  ChangeTo(next, next.all_waits ? tr("show waits") : tr("hide waits"));
}

void TimelineView::Impl::ClearFilter() {
  search_->clear();
  SetFilter(QString());
  view_->setFocus();
  ShowSearch();
}

// Under the cursor, or else of the selected op.
std::optional<LaneKey> TimelineView::Impl::LaneAtHand() const {
  const QPoint at = PlaceAtHand();
  if (const LaneBox* lane = layout_.LaneAt(at.x(), at.y())) {
    return KeyOf(lane->side, lane->lane);
  }
  if (!selected_) return std::nullopt;
  const traces::Timeline& t = pair_->model(selected_->side)->timeline();
  return KeyOf(selected_->side, t.lane[static_cast<size_t>(selected_->row)]);
}

void TimelineView::Impl::PinLane() {
  if (const auto lane = LaneAtHand()) {
    TogglePin(*lane);
  } else {
    Say(tr("Point at a lane, or select an op on it"));
  }
}

void TimelineView::Impl::FoldLane() {
  if (const auto lane = LaneAtHand()) {
    ToggleFold(*lane);
  } else {
    Say(tr("Point at a lane, or select an op on it"));
  }
}

void TimelineView::Impl::UnfoldAll() {
  ViewState next = state_;
  next.folded.clear();
  ChangeTo(next, tr("unfold all lanes"));
}

void TimelineView::Impl::HideLane() {
  const auto lane = LaneAtHand();
  if (!lane) {
    Say(tr("Point at a lane, or select an op on it"));
    return;
  }
  ViewState next = state_;
  next.hidden.insert(*lane);
  ChangeTo(next, tr("hide lane"));
  Say(tr("Lane %1 is hidden; Shift+H brings it back").arg(Text(lane->name)));
}

void TimelineView::Impl::ShowHidden() {
  ViewState next = state_;
  next.hidden.clear();
  ChangeTo(next, tr("show hidden lanes"));
}

void TimelineView::Impl::AlignByRange(const QString& name) {
  ViewState next = state_;
  next.align_by = name;
  ChangeTo(next, name.isEmpty() ? tr("align by step") : tr("align by range"));
  if (!name.isEmpty() && alignment_.by != Alignment::By::kRange) {
    Say(tr("Not every side has a row called %1").arg(name));
  }
}

// Names that every side has, those of few rows first: what marks steps or phases is rare.
QStringList TimelineView::Impl::RangeNames() const {
  std::map<std::string, int64_t> rows;  // the least of a side
  bool first = true;
  for (Side side : kSides) {
    if (!pair_ || !pair_->model(side)) continue;
    const traces::Timeline& t = pair_->model(side)->timeline();
    std::vector<int64_t> count(t.names.size());
    for (uint32_t name : t.name) ++count[name];
    std::map<std::string, int64_t> here;
    for (size_t n = 0; n < count.size(); ++n) {
      if (count[n] > 0) here[t.names[n]] += count[n];
    }
    if (!first) {
      std::erase_if(here, [&](const auto& name) { return !rows.contains(name.first); });
      for (auto& [name, n] : here) n = std::min(n, rows[name]);
    }
    rows = std::move(here);
    first = false;
  }
  std::vector<std::pair<int64_t, std::string>> ordered;
  for (const auto& [name, n] : rows) ordered.emplace_back(n, name);
  std::sort(ordered.begin(), ordered.end());
  QStringList names;
  for (const auto& [n, name] : ordered) names << Text(name);
  return names;
}

void TimelineView::Impl::AskForRange() {
  constexpr qsizetype kMost = 500;
  const QString by_step = tr("(by step)");
  QStringList names = RangeNames().mid(0, kMost);
  names.prepend(by_step);
  bool ok = false;
  const auto at = static_cast<int>(std::max<qsizetype>(0, names.indexOf(state_.align_by)));
  const QString name =
      QInputDialog::getItem(view_, tr("Align by Range"),
                            tr("Ranges that begin together on all sides:"), names, at, true, &ok);
  if (ok) AlignByRange(name == by_step ? QString() : name);
}

void TimelineView::Impl::NextStep() { GoStep(1); }
void TimelineView::Impl::PreviousStep() { GoStep(-1); }

void TimelineView::Impl::JumpToStep() {
  const auto& stretches = alignment_.stretches;
  if (stretches.empty()) {
    Say(tr("This timeline has no steps"));
    return;
  }
  bool ok = false;
  const int step = QInputDialog::getInt(
      view_, tr("Jump to Step"),
      tr("Step, %1 to %2:").arg(stretches.front().step).arg(stretches.back().step),
      std::max(CurrentStep(), stretches.front().step), stretches.front().step,
      stretches.back().step, 1, &ok);
  if (ok) ShowStep(step);
}

void TimelineView::Impl::ToggleMeasure() {
  measuring_ = !measuring_;
  if (!measuring_) measure_.reset();
  Command("measure")->setChecked(measuring_);
  view_->setCursor(measuring_ ? Qt::CrossCursor : Qt::ArrowCursor);
  if (measuring_) Say(tr("Drag to measure; M ends measuring"));
  view_->update();
}

void TimelineView::Impl::ClearSelection() {
  if (searching()) {
    view_->setFocus();
    ShowSearch();
    return;
  }
  if (!selected_ && !measure_ && !sums_ && !state_.filter.isEmpty()) {
    ClearFilter();
    return;
  }
  measure_.reset();
  measure_from_.reset();
  ClearArea();
  Select(std::nullopt, false);
  view_->update();
}

}  // namespace stallcast::gui
