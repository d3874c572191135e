// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/timeline_view.h"

#include <QContextMenuEvent>
#include <QEvent>
#include <QMouseEvent>
#include <QPaintEvent>
#include <QWheelEvent>

#include "gui/timeline/view_impl.h"
#include "traces/common/error.h"

namespace stallcast::gui {

TimelineView::TimelineView(QWidget* parent) : QWidget(parent) {
  setFocusPolicy(Qt::StrongFocus);
  setMouseTracking(true);
  setAttribute(Qt::WA_OpaquePaintEvent);
  setAccessibleName(tr("Timeline"));
  impl_ = std::make_unique<Impl>(this);
}

TimelineView::~TimelineView() = default;

void TimelineView::SetSides(sim::Predicted<Model> predicted, sim::Measured<Model> measured) {
  SetPair(TimelinePair::Make(std::move(predicted), std::move(measured), pair().get()));
}

void TimelineView::SetPair(std::shared_ptr<const TimelinePair> pair) {
  impl_->SetPair(std::move(pair));
}

const std::shared_ptr<const TimelinePair>& TimelineView::pair() const { return impl_->pair_; }

const TimelineView::Model& TimelineView::ghost() const { return impl_->ghost_; }
void TimelineView::SetGhost(Model ghost, const QString& name) {
  impl_->SetGhost(std::move(ghost), name);
}

void TimelineView::AlignByRange(const QString& name) { impl_->AlignByRange(name); }

const Alignment& TimelineView::alignment() const { return impl_->alignment_; }
const QList<TimelineView::Menu>& TimelineView::Commands() const { return impl_->menus_; }
QUndoStack* TimelineView::undo_stack() { return &impl_->undo_; }
AxisRange TimelineView::visible() const { return impl_->state().visible; }
void TimelineView::ShowRange(AxisRange range) { impl_->ShowRange(range, tr("show range")); }
void TimelineView::ShowAll() { impl_->ShowAll(); }
void TimelineView::ShowTypicalStep() { impl_->ShowTypicalStep(); }
void TimelineView::ShowStep(int32_t step) { impl_->ShowStep(step); }
int32_t TimelineView::CurrentStep() const { return impl_->CurrentStep(); }

void TimelineView::SetColorBy(ColorBy color) {
  if (color == ColorBy::kResidual && (!pair() || !pair()->both())) {
    Q_EMIT Message(tr("Residuals need a predicted and a measured side"));
    return;
  }
  ViewState next = impl_->state();
  next.color = color;
  impl_->ChangeTo(next, color == ColorBy::kRole ? tr("color by role") : tr("color by residual"));
}

ColorBy TimelineView::color_by() const { return impl_->state().color; }
bool TimelineView::SetFilter(const QString& words) { return impl_->SetFilter(words); }
QString TimelineView::filter() const { return impl_->state().filter; }
bool TimelineView::Chooses(OpRef op) const {
  return impl_->masks_[static_cast<size_t>(op.side)].Matches(op.row);
}
void TimelineView::Select(std::optional<OpRef> op) { impl_->Select(op, true); }
std::optional<OpRef> TimelineView::selected() const { return impl_->selected_; }
std::optional<AreaSums> TimelineView::area() const { return impl_->sums_; }

QJsonObject TimelineView::SaveState() const { return ToJson(impl_->state()); }

void TimelineView::RestoreState(const QJsonObject& state) {
  ViewState next = FromJson(state, impl_->state());
  try {
    const Filter filter(next.filter.toStdString());
  } catch (const Error&) {
    next.filter = impl_->state().filter;
  }
  impl_->ChangeTo(next, tr("restore view"));
}

QSize TimelineView::sizeHint() const { return {1200, 640}; }
QSize TimelineView::minimumSizeHint() const { return {320, 220}; }

int TimelineView::ComfortableHeight() {
  impl_->EnsureScene();
  return static_cast<int>(impl_->layout_.comfortable_height / impl_->scale());
}

void TimelineView::paintEvent(QPaintEvent* event) { impl_->Paint(event); }

void TimelineView::resizeEvent(QResizeEvent*) {
  impl_->PlaceSearch();
  impl_->Invalidate();
}

void TimelineView::changeEvent(QEvent* event) {
  const auto type = event->type();
  if (type == QEvent::PaletteChange || type == QEvent::FontChange || type == QEvent::StyleChange) {
    impl_->fonts_.reset();
    impl_->Invalidate();
  }
  QWidget::changeEvent(event);
}

void TimelineView::mousePressEvent(QMouseEvent* event) { impl_->Press(event); }
void TimelineView::mouseMoveEvent(QMouseEvent* event) { impl_->Move(event); }
void TimelineView::mouseReleaseEvent(QMouseEvent* event) { impl_->Release(event); }
void TimelineView::mouseDoubleClickEvent(QMouseEvent* event) { impl_->DoubleClick(event); }

// By the mouse, the view opens it when the right button is let go without measuring.
void TimelineView::contextMenuEvent(QContextMenuEvent* event) {
  event->accept();
  if (event->reason() == QContextMenuEvent::Keyboard) {
    impl_->ShowMenu(impl_->DevicePoint(event->pos()), event->globalPos());
  }
}

void TimelineView::leaveEvent(QEvent*) { impl_->Leave(); }

void TimelineView::wheelEvent(QWheelEvent* event) {
  impl_->Wheel(event);
  event->accept();
}

}  // namespace stallcast::gui
