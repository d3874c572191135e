// SPDX-License-Identifier: GPL-3.0-or-later
// The context menu of the timeline, and commands that it adds: notes, copies, measures.
#include <QAction>
#include <QApplication>
#include <QClipboard>
#include <QInputDialog>
#include <QMenu>
#include <algorithm>
#include <cmath>

#include "gui/timeline/view_impl.h"
#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

constexpr int kNear = 12;  // logical pixels

QString RoleText(traces::Role role) { return Text(std::string(Name(role))); }

QString OpText(const OpDetails& details) {
  QStringList lines{QStringLiteral("side\tname\trole\tlane\tstep\tlayer\tduration_us\tbytes")};
  const auto add = [&](const OpFacts& op) {
    lines << QStringList{op.ref.side == Side::kPredicted ? QStringLiteral("predicted")
                                                         : QStringLiteral("measured"),
                         Text(op.name),
                         RoleText(op.role),
                         Text(op.lane),
                         QString::number(op.step),
                         QString::number(op.layer),
                         QString::number(Seconds(op.duration) * 1e6, 'f', 3),
                         QString::number(op.bytes)}
                 .join('\t');
  };
  add(details.op);
  if (details.twin) add(*details.twin);
  return lines.join('\n');
}

QString AreaText(const AreaSums& area) {
  QStringList lines{QStringLiteral("side\trole\tbusy_us\texposed_us\tbytes\tops")};
  const auto add = [&](const char* side, const std::optional<AreaSums::Roles>& roles) {
    for (size_t r = 0; roles && r < roles->size(); ++r) {
      const AreaSums::Role& role = (*roles)[r];
      if (role.ops == 0 && role.exposed.count() == 0) continue;
      lines << QStringList{QLatin1String(side),
                           RoleText(static_cast<traces::Role>(r)),
                           QString::number(Seconds(role.busy) * 1e6, 'f', 3),
                           QString::number(Seconds(role.exposed) * 1e6, 'f', 3),
                           QString::number(role.bytes),
                           QString::number(role.ops)}
                   .join('\t');
    }
  };
  add("predicted", area.predicted);
  add("measured", area.measured);
  return lines.join('\n');
}

}  // namespace

QAction* TimelineView::Impl::Command(const char* name) const {
  for (const TimelineView::Menu& menu : menus_) {
    for (QAction* action : menu.actions) {
      if (action != nullptr && action->objectName() == QLatin1String(name)) return action;
    }
  }
  return nullptr;
}

void TimelineView::Impl::ShowMenu(QPoint at, QPoint on_screen) {
  if (!pair_) return;
  EnsureScene();
  auto* menu = new QMenu(view_);
  menu->setObjectName(QStringLiteral("timeline_menu"));
  menu->setAttribute(Qt::WA_DeleteOnClose);
  menu_at_ = at;
  // Commands run after the menu is hidden and before it is gone.
  QObject::connect(menu, &QObject::destroyed, view_, [this] { menu_at_.reset(); });
  const auto add = [&](std::initializer_list<const char*> names) {
    if (!menu->isEmpty()) menu->addSeparator();
    for (const char* name : names) menu->addAction(Command(name));
  };
  MenuSubject subject;
  const bool on_area = sums_ && area_box_ && area_box_->Contains(at.x(), at.y());
  const Hit hit = HitAt(scene_.frame, at.x(), at.y());
  if (hit.kind == Hit::Kind::kOp) {
    subject.op = OpRef{hit.side, hit.first};
    Select(subject.op, false);
    add({"show_selection", "go_twin", "go_cause", "find_alike", "copy_selection"});
  } else if (on_area) {
    add({"show_selection", "copy_selection"});
  }
  for (const Side side : kSides) {
    if (!on_area || area_tracks_[static_cast<size_t>(side)].empty()) continue;
    subject.areas[static_cast<size_t>(side)] = AreaOf(side);
  }
  if (layout_.LaneAt(at.x(), at.y()) != nullptr) {
    add({"pin_lane", "fold_lane", "hide_lane"});
  }
  if (!state_.hidden.empty()) add({"show_hidden"});
  if (at.x() >= layout_.chart_x0) {
    add({"measure_from_here", "add_note"});
    if (NoteAtHand()) menu->addAction(Command("remove_note"));
  }
  add({"toggle_color", "toggle_waits", "show_all"});
  Q_EMIT view_->MenuOpened(menu, subject);
  menu->popup(on_screen);
}

MenuSubject::Area TimelineView::Impl::AreaOf(Side side) const {
  const AxisMap& map = side == Side::kPredicted ? alignment_.predicted : alignment_.measured;
  MenuSubject::Area area{map.FromAxis(sums_->range.begin), map.FromAxis(sums_->range.end), {}};
  for (const int32_t track : area_tracks_[static_cast<size_t>(side)]) {
    area.lanes.push_back(pair_->model(side)->tracks()[static_cast<size_t>(track)].lane);
  }
  std::ranges::sort(area.lanes);
  area.lanes.erase(std::ranges::unique(area.lanes).begin(), area.lanes.end());
  return area;
}

Picoseconds TimelineView::Impl::TimeAtHand() const {
  const int x = PlaceAtHand().x();
  const AxisRange v = state_.visible;
  const bool over = x >= layout_.chart_x0 && x < layout_.chart_x1;
  return over ? AxisAt(x, v, layout_) : v.begin + v.length() / 2;
}

void TimelineView::Impl::MeasureFromHere() {
  if (!pair_) return;
  EnsureScene();
  const QPoint at = PlaceAtHand();
  measure_from_ = at.x() >= layout_.chart_x0 ? SnappedAxis(at) : TimeAtHand();
  measure_.reset();
  Say(tr("Move the mouse to measure; a click ends it"));
}

void TimelineView::Impl::FindAlike() {
  if (!selected_) {
    Say(tr("Select an op first"));
    return;
  }
  QString name = Text(pair_->model(selected_->side)->NameOf(selected_->row));
  SetFilter('"' + name.remove('"') + '"');
}

void TimelineView::Impl::Copy() {
  if (sums_) {
    QApplication::clipboard()->setText(AreaText(*sums_));
    Say(tr("The area's sums are copied"));
  } else if (selected_) {
    QApplication::clipboard()->setText(OpText(Describe(*pair_, *selected_)));
    Say(tr("The op is copied"));
  } else {
    Say(tr("Nothing is selected: click an op, or drag over an area"));
  }
}

void TimelineView::Impl::AddNote() {
  if (!pair_) return;
  const Picoseconds at = TimeAtHand();
  bool ok = false;
  const QString text = QInputDialog::getText(view_, tr("Add Note"), tr("Note at this time:"),
                                             QLineEdit::Normal, {}, &ok);
  if (!ok || text.trimmed().isEmpty()) return;
  ViewState next = state_;
  next.notes.push_back(NoteAt(alignment_, at, text.trimmed()));
  ChangeTo(next, tr("add note"));
}

// The nearest one, where it is near.
std::optional<size_t> TimelineView::Impl::NoteAtHand() const {
  const int x = ColumnOf(TimeAtHand(), state_.visible, layout_);
  std::optional<size_t> nearest;
  int distance = static_cast<int>(std::lround(kNear * scale())) + 1;
  for (size_t i = 0; i < state_.notes.size(); ++i) {
    const auto at = gui::PlaceOf(alignment_, state_.notes[i]);
    if (!at) continue;
    const int away = std::abs(ColumnOf(*at, state_.visible, layout_) - x);
    if (away < distance) {
      distance = away;
      nearest = i;
    }
  }
  return nearest;
}

void TimelineView::Impl::RemoveNote() {
  const auto note = NoteAtHand();
  if (!note) {
    Say(tr("There is no note at the cursor"));
    return;
  }
  ViewState next = state_;
  next.notes.erase(next.notes.begin() + static_cast<std::ptrdiff_t>(*note));
  ChangeTo(next, tr("remove note"));
}

void TimelineView::Impl::NextNote() { GoToNote(1); }
void TimelineView::Impl::PreviousNote() { GoToNote(-1); }

void TimelineView::Impl::GoToNote(int direction) {
  const AxisRange v = state_.visible;
  const Picoseconds middle = v.begin + v.length() / 2;
  std::optional<Picoseconds> best;
  for (const AxisNote& note : state_.notes) {
    const auto at = gui::PlaceOf(alignment_, note);
    if (!at || (direction > 0 ? *at <= middle : *at >= middle)) continue;
    if (!best || (direction > 0 ? *at < *best : *at > *best)) best = at;
  }
  if (!best) {
    Say(state_.notes.empty()
            ? tr("There is no note: K adds one")
            : (direction > 0 ? tr("This is the last note") : tr("This is the first note")));
    return;
  }
  ShowRange({*best - v.length() / 2, *best - v.length() / 2 + v.length()}, tr("go to note"),
            Change::kPan);
}

}  // namespace stallcast::gui
