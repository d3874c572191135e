// SPDX-License-Identifier: GPL-3.0-or-later
// Controls under a heading that folds them away.
#pragma once

#include <QWidget>
#include <vector>

#include "gui/whatif/control_row.h"

class QToolButton;

namespace stallcast::gui {

class ControlGroup : public QWidget {
  Q_OBJECT

 public:
  ControlGroup(const QString& title, bool open, QWidget* parent = nullptr);

  void Add(ControlRow* row);
  const std::vector<ControlRow*>& rows() const { return rows_; }
  QString title() const { return title_; }
  bool open() const;
  void SetOpen(bool open);
  /// Shows only rows whose name or help holds all words; with words, folded groups open.
  void Filter(const QStringList& words);

 private:
  void Update();

  QString title_;
  QToolButton* heading_ = nullptr;
  QWidget* body_ = nullptr;
  bool searching_ = false;
  std::vector<ControlRow*> rows_;
};

}  // namespace stallcast::gui
