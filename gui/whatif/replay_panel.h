// SPDX-License-Identifier: GPL-3.0-or-later
// What is changed about a recording, what it does, and where its time goes.
#pragma once

#include <QWidget>
#include <map>
#include <string>

#include "gui/whatif/change_list.h"
#include "gui/whatif/replay_worker.h"

class QLabel;
class QTreeWidget;

namespace stallcast::gui {

class ControlRow;

class ReplayPanel : public QWidget {
  Q_OBJECT

 public:
  explicit ReplayPanel(QWidget* parent = nullptr);

  /// For another recording: nothing changed, and nothing known of it yet.
  void Clear();
  /// Shows a request; emits nothing.
  void SetRequest(const ReplayRequest& request);
  const ReplayRequest& request() const { return request_; }

  void Show(const ReplayResult& result);
  void ShowTop(const SharedTop& top);
  void ShowError(const Error& error);

  /// As typed into the list.
  void AddChange(const std::string& text) { list_->Add(text); }
  /// All settings and changes out.
  void Reset();
  void FocusEntry() { list_->FocusEntry(); }
  ControlRow* setting(const std::string& name) const;  ///< null: there is none

 Q_SIGNALS:
  void Changed(const stallcast::gui::ReplayRequest& request);
  /// Ops of the ranking were chosen.
  void Chosen(const QString& name, const QString& lane);

 private:
  void Set(const std::string& name, const std::optional<std::string>& text);
  void Use(ReplayRequest next);

  ReplayRequest request_;
  SharedTop ranked_;
  ChangeList* list_ = nullptr;
  std::map<std::string, ControlRow*> settings_;
  QLabel* ranking_ = nullptr;  // in place of the table, until it is there
  QTreeWidget* top_ = nullptr;
  QTreeWidget* parts_ = nullptr;  // of a step, by kind
};

}  // namespace stallcast::gui
