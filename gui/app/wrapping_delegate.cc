// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/wrapping_delegate.h"

#include <QHeaderView>
#include <QTreeView>

namespace stallcast::gui {

WrappingDelegate::WrappingDelegate(QTreeView* view) : QStyledItemDelegate(view), view_(view) {
  view->setWordWrap(true);
  view->setTextElideMode(Qt::ElideNone);
  connect(view->header(), &QHeaderView::sectionResized, view, &QTreeView::doItemsLayout,
          Qt::QueuedConnection);
}

QSize WrappingDelegate::sizeHint(const QStyleOptionViewItem& option,
                                 const QModelIndex& index) const {
  QStyleOptionViewItem item = option;
  initStyleOption(&item, index);
  int depth = 1;
  for (QModelIndex at = index.parent(); at.isValid(); at = at.parent()) ++depth;
  const int margin = 2 * (view_->style()->pixelMetric(QStyle::PM_FocusFrameHMargin) + 1);
  const int width = view_->columnWidth(0) - depth * view_->indentation() - margin;
  const QRect text = QFontMetrics(item.font).boundingRect(QRect(0, 0, std::max(width, 1), 1 << 20),
                                                          Qt::TextWordWrap, item.text);
  return {text.width() + margin, std::max(text.height(), QFontMetrics(item.font).height()) + 2};
}

}  // namespace stallcast::gui
