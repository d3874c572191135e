// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/chart_view.h"

#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <variant>

#include "gui/charts/chart_export.h"
#include "gui/charts/chart_painter.h"

namespace stallcast::gui {
namespace {

constexpr double kSavedWidth = 960, kSavedHeight = 540;

}  // namespace

ChartView::ChartView(QWidget* parent) : QWidget(parent) {
  setMouseTracking(true);
  setFocusPolicy(Qt::StrongFocus);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
}

void ChartView::SetChart(Chart chart) {
  chart_ = std::move(chart);
  setAccessibleName(chart_.title);
  setAccessibleDescription(chart_.note);
  setMinimumHeight(std::max(minimumSizeHint().height(), LeastHeight(chart_, font())));
  Relayout();
}

void ChartView::Save(const QString& path) const {
  // The same for everybody, whatever room the window leaves.
  SaveChart(chart_, path, QSizeF(kSavedWidth, kSavedHeight), ChartTheme::From(palette()), font());
}

QSize ChartView::sizeHint() const { return {520, 300}; }
QSize ChartView::minimumSizeHint() const { return {220, 140}; }

void ChartView::Relayout() {
  geometry_ = LayOut(chart_, size(), font());
  update();
}

bool ChartView::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  if (const auto hit = HitTest(chart_, geometry_, help->pos())) {
    QToolTip::showText(help->globalPos(), hit->text, this);
  } else {
    QToolTip::hideText();
  }
  return true;
}

void ChartView::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  Paint(painter, chart_, geometry_, ChartTheme::From(palette()), font());
}

void ChartView::resizeEvent(QResizeEvent*) { Relayout(); }

void ChartView::changeEvent(QEvent* event) {
  if (event->type() == QEvent::FontChange) Relayout();
  QWidget::changeEvent(event);
}

std::optional<int64_t> ChartView::IdAt(QPointF at) const {
  const auto hit = HitTest(chart_, geometry_, at);
  if (!hit) return std::nullopt;
  const auto& mark = chart_.series[hit->series].mark;
  const std::vector<int64_t>* ids = nullptr;
  if (const auto* line = std::get_if<LineMark>(&mark)) ids = &line->ids;
  if (const auto* dots = std::get_if<DotMark>(&mark)) ids = &dots->ids;
  if (!ids || static_cast<size_t>(hit->index) >= ids->size()) return std::nullopt;
  return (*ids)[static_cast<size_t>(hit->index)];
}

void ChartView::mouseMoveEvent(QMouseEvent* event) {
  setCursor(IdAt(event->position()) ? Qt::PointingHandCursor : Qt::ArrowCursor);
}

void ChartView::mouseReleaseEvent(QMouseEvent* event) {
  if (event->button() != Qt::LeftButton) return;
  const auto id = IdAt(event->position());
  if (id) Q_EMIT Clicked(*id, (event->modifiers() & Qt::ShiftModifier) != 0);
}

void ChartView::mouseDoubleClickEvent(QMouseEvent* event) {
  if (const auto hit = HitTest(chart_, geometry_, event->position())) {
    Q_EMIT Chosen(static_cast<int>(hit->series), hit->index);
  }
}

}  // namespace stallcast::gui
