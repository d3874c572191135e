// SPDX-License-Identifier: GPL-3.0-or-later
// Facts in lines: a dot stands between those of a line, and none at its end.
#pragma once

#include <QLabel>
#include <QStringList>

namespace stallcast::gui {

class FactLines : public QLabel {
 public:
  explicit FactLines(QWidget* parent = nullptr);

  void SetFacts(const QStringList& facts);
  const QStringList& facts() const { return facts_; }

  int heightForWidth(int width) const override;
  QSize sizeHint() const override;
  QSize minimumSizeHint() const override;

 protected:
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  /// A fact that is wider than a line has lines of its own.
  QString Lines(int width) const;
  void Fill();

  QStringList facts_;
};

}  // namespace stallcast::gui
