// SPDX-License-Identifier: GPL-3.0-or-later
// Finds a command by some letters of its name.
#pragma once

#include <QAbstractListModel>
#include <QDialog>
#include <QList>
#include <optional>

#include "gui/app/commands.h"

class QLineEdit;
class QListView;

namespace stallcast::gui {

/// How well `words` fit `text`: the letters in order, runs and beginnings of words count more.
/// Nothing: they do not fit.
std::optional<int> FuzzyScore(const QString& words, const QString& text);

/// Commands that fit what was typed, best first.
class CommandModel : public QAbstractListModel {
  Q_OBJECT

 public:
  explicit CommandModel(const Commands& commands, QObject* parent = nullptr);

  void SetWords(const QString& words);
  QAction* ActionAt(int row) const;

  int rowCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
  Qt::ItemFlags flags(const QModelIndex& index) const override;

 private:
  const Commands& commands_;
  QList<Commands::Entry> shown_;
};

class CommandPalette : public QDialog {
  Q_OBJECT

 public:
  explicit CommandPalette(const Commands& commands, QWidget* parent);

  QSize sizeHint() const override;

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;
  void showEvent(QShowEvent* event) override;

 private:
  void Run();

  QLineEdit* words_ = nullptr;
  QListView* list_ = nullptr;
  CommandModel* model_ = nullptr;
};

}  // namespace stallcast::gui
