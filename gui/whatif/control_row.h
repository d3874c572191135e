// SPDX-License-Identifier: GPL-3.0-or-later
// The widgets of one control: name, slider and number or a choice, reset, and what is wrong with
// it.
#pragma once

#include <QWidget>

#include "gui/whatif/control.h"

class QCheckBox;
class QLineEdit;
class QComboBox;
class QLabel;
class QSlider;
class QToolButton;

namespace stallcast::gui {

class NumberBox;

class ControlRow : public QWidget {
  Q_OBJECT

 public:
  explicit ControlRow(Control control, QWidget* parent = nullptr);

  const Control& control() const { return control_; }
  /// Shows what a request says, nothing: the default. Emits nothing.
  void Show(const std::optional<std::string>& text);
  /// Shows this below the control; empty: nothing.
  void SetError(const QString& text);
  QString error() const;
  bool is_default() const { return is_default_; }

 Q_SIGNALS:
  /// The user chose a value; nothing: the default.
  void Changed(const std::string& path, const std::optional<std::string>& text);

 private:
  void AddNumber(QWidget* editor);
  void AddChoice(QWidget* editor);
  void AddFlag(QWidget* editor);
  void AddText(QWidget* editor);
  void ShowValue(const QString& text);

  Control control_;
  bool is_default_ = true;
  QLabel* label_ = nullptr;
  QLabel* error_ = nullptr;
  QToolButton* reset_ = nullptr;
  QSlider* slider_ = nullptr;
  NumberBox* number_ = nullptr;
  QComboBox* choice_ = nullptr;
  QCheckBox* flag_ = nullptr;
  QLineEdit* text_ = nullptr;
};

}  // namespace stallcast::gui
