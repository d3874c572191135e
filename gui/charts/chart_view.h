// SPDX-License-Identifier: GPL-3.0-or-later
// Shows one chart.
#pragma once

#include <QWidget>
#include <optional>

#include "gui/charts/chart.h"
#include "gui/charts/chart_geometry.h"

namespace stallcast::gui {

/// Draws with the palette and font of the widget. Hovering a point tells its values; a double click
/// on one emits Chosen, a click on one that has an id Clicked.
class ChartView : public QWidget {
  Q_OBJECT

 public:
  explicit ChartView(QWidget* parent = nullptr);

  void SetChart(Chart chart);
  const Chart& chart() const { return chart_; }
  const ChartGeometry& geometry_of_chart() const { return geometry_; }
  /// Throws stallcast::Error; see SaveChart().
  void Save(const QString& path) const;

  QSize sizeHint() const override;
  QSize minimumSizeHint() const override;

 Q_SIGNALS:
  void Chosen(int series, qint64 index);
  void Clicked(qint64 id, bool shift);

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;
  void mouseDoubleClickEvent(QMouseEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;
  void mouseReleaseEvent(QMouseEvent* event) override;

 private:
  void Relayout();
  std::optional<int64_t> IdAt(QPointF at) const;

  Chart chart_;
  ChartGeometry geometry_;
};

}  // namespace stallcast::gui
