// SPDX-License-Identifier: GPL-3.0-or-later
// The controls of a prediction, made from what methods and machines declare.
#pragma once

#include <QWidget>
#include <memory>
#include <vector>

#include "gui/whatif/control.h"
#include "traces/common/error.h"

class QLabel;
class QLineEdit;
class QVBoxLayout;

namespace stallcast::gui {

class ControlRow;
class ControlGroup;

class WhatIfPanel : public QWidget {
  Q_OBJECT

 public:
  explicit WhatIfPanel(QWidget* parent = nullptr);
  ~WhatIfPanel() override;

  /// The trace that predictions start from: its model and lengths are the defaults.
  void SetTrace(const traces::proto::TraceInfo& info);
  /// Shows a request; emits nothing. Throws Error where it names an unknown method or machine, and
  /// then shows what it did before.
  void SetRequest(const sim::PredictRequest& request);
  const sim::PredictRequest& request() const { return request_; }
  /// Of a control of the method and machine at hand; null: there is none.
  ControlRow* row(const std::string& path) const;

  /// Shows why the request cannot be predicted, beside the control that caused it.
  void ShowError(const Error& error);
  void ClearErrors();

  /// All controls back to the default, except the method, model, machine and counts of the run.
  void Reset();
  void FocusSearch();

 Q_SIGNALS:
  /// A control was changed to a value that is right by itself.
  void Changed(const sim::PredictRequest& request);

 private:
  void Rebuild(const sim::PredictRequest& request);
  void Apply(const std::string& path, const std::optional<std::string>& text);
  void Filter(const QString& words);
  std::string FocusedRow() const;
  void FocusFirstFound();

  traces::proto::TraceInfo info_;
  sim::PredictRequest request_;
  std::string last_changed_;
  QLineEdit* search_ = nullptr;
  QLabel* error_ = nullptr;
  QLabel* none_found_ = nullptr;
  QVBoxLayout* column_ = nullptr;
  std::vector<ControlGroup*> groups_;
};

}  // namespace stallcast::gui
