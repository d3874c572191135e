// SPDX-License-Identifier: GPL-3.0-or-later
// Changes to a recording in turn: written, switched off, moved, taken out.
#pragma once

#include <QStringList>
#include <QWidget>
#include <vector>

#include "gui/whatif/replay_filters.h"
#include "gui/whatif/replay_request.h"

class QCompleter;
class QLabel;
class QLineEdit;
class QStringListModel;
class QTreeWidget;

namespace stallcast::gui {

class ChangeList : public QWidget {
  Q_OBJECT

 public:
  using Changes = std::vector<ReplayRequest::Change>;

  explicit ChangeList(QWidget* parent = nullptr);

  /// What completion offers.
  void SetWords(RecordingWords words) { words_ = std::move(words); }
  /// Shows them; emits nothing.
  void SetChanges(const Changes& changes);
  /// Beside each change that is on, in turn: "-12.3 ms", and what else there is to say.
  void SetEffects(const QStringList& effects, const QStringList& tips);
  /// Adds one as if it had been typed. One that is none is told below, and nothing is added.
  void Add(const std::string& text);
  void ShowError(const QString& text);
  void FocusEntry();

 Q_SIGNALS:
  void Changed(const stallcast::gui::ChangeList::Changes& changes);

 private:
  void AddCommands();
  void Complete(const QString& text);
  void Edited();
  void Move(int by);
  void Remove();
  Changes Shown() const;
  void Fill();
  void SetHeight();

  RecordingWords words_;
  Changes changes_;
  QLineEdit* entry_ = nullptr;
  QCompleter* completer_ = nullptr;
  QStringListModel* completions_ = nullptr;
  QLabel* none_ = nullptr;
  QLabel* error_ = nullptr;
  QTreeWidget* list_ = nullptr;
  QWidget* buttons_ = nullptr;
};

}  // namespace stallcast::gui
