// SPDX-License-Identifier: GPL-3.0-or-later
// A number as text with its unit, stepped by keys and wheel.
#pragma once

#include <QAbstractSpinBox>

#include "gui/whatif/control.h"

namespace stallcast::gui {

/// Any text may be typed; who listens says whether it is right. Steps go along the control's slider
/// range, so that each gives a value that people choose.
class NumberBox : public QAbstractSpinBox {
  Q_OBJECT

 public:
  explicit NumberBox(const Control& control, QWidget* parent = nullptr);

  void SetText(const QString& text);
  QString text() const;

  void stepBy(int steps) override;
  QSize sizeHint() const override;
  QSize minimumSizeHint() const override;

 Q_SIGNALS:
  /// Enter, leaving the field, or a step.
  void Entered(const QString& text);

 protected:
  StepEnabled stepEnabled() const override;
  void wheelEvent(QWheelEvent* event) override;

 private:
  void Enter();

  Control control_;
  QString entered_;
};

}  // namespace stallcast::gui
