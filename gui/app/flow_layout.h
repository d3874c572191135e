// SPDX-License-Identifier: GPL-3.0-or-later
// Widgets in rows that wrap, as words do.
#pragma once

#include <QLayout>
#include <QList>

namespace stallcast::gui {

class FlowLayout : public QLayout {
 public:
  explicit FlowLayout(QWidget* parent = nullptr);
  ~FlowLayout() override;

  void addItem(QLayoutItem* item) override;
  int count() const override;
  QLayoutItem* itemAt(int index) const override;
  QLayoutItem* takeAt(int index) override;
  Qt::Orientations expandingDirections() const override;
  bool hasHeightForWidth() const override;
  int heightForWidth(int width) const override;
  void setGeometry(const QRect& rect) override;
  QSize sizeHint() const override;
  QSize minimumSize() const override;

 private:
  // Places the items if `apply`; the height that they take.
  int Place(const QRect& rect, bool apply) const;

  QList<QLayoutItem*> items_;
};

}  // namespace stallcast::gui
