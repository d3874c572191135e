// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/flow_layout.h"

#include <QWidget>
#include <algorithm>

namespace stallcast::gui {

FlowLayout::FlowLayout(QWidget* parent) : QLayout(parent) { setSpacing(6); }

FlowLayout::~FlowLayout() { qDeleteAll(items_); }

void FlowLayout::addItem(QLayoutItem* item) { items_.append(item); }
int FlowLayout::count() const { return static_cast<int>(items_.size()); }
QLayoutItem* FlowLayout::itemAt(int index) const { return items_.value(index); }

QLayoutItem* FlowLayout::takeAt(int index) {
  return index >= 0 && index < items_.size() ? items_.takeAt(index) : nullptr;
}

Qt::Orientations FlowLayout::expandingDirections() const { return {}; }
bool FlowLayout::hasHeightForWidth() const { return true; }
int FlowLayout::heightForWidth(int width) const { return Place(QRect(0, 0, width, 0), false); }
QSize FlowLayout::sizeHint() const { return minimumSize(); }

void FlowLayout::setGeometry(const QRect& rect) {
  QLayout::setGeometry(rect);
  Place(rect, true);
}

QSize FlowLayout::minimumSize() const {
  QSize size;
  for (const QLayoutItem* item : items_) {
    if (!item->isEmpty()) size = size.expandedTo(item->minimumSize());
  }
  const QMargins margins = contentsMargins();
  return size + QSize(margins.left() + margins.right(), margins.top() + margins.bottom());
}

int FlowLayout::Place(const QRect& rect, bool apply) const {
  const QRect inside = rect.marginsRemoved(contentsMargins());
  // Rows are gathered first, so that the items of one can be centred on it.
  struct Row {
    QList<QLayoutItem*> items;
    int width = 0, height = 0;
  };
  QList<Row> rows(1);
  for (QLayoutItem* item : items_) {
    if (item->isEmpty()) continue;
    const QSize size = item->sizeHint();
    if (!rows.back().items.isEmpty() &&
        rows.back().width + spacing() + size.width() > inside.width()) {
      rows.append(Row());
    }
    Row& row = rows.back();
    row.width += size.width() + (row.items.isEmpty() ? 0 : spacing());
    row.height = std::max(row.height, size.height());
    row.items.append(item);
  }
  int y = inside.y();
  for (const Row& row : rows) {
    int x = inside.x();
    for (QLayoutItem* item : row.items) {
      const QSize size = item->sizeHint();
      const int width = std::min(size.width(), inside.width());
      if (apply) {
        item->setGeometry(QRect(x, y + (row.height - size.height()) / 2, width, size.height()));
      }
      x += width + spacing();
    }
    y += row.height + spacing();
  }
  const QMargins margins = contentsMargins();
  return y - spacing() - inside.y() + margins.top() + margins.bottom();
}

}  // namespace stallcast::gui
