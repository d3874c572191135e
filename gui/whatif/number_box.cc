// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/number_box.h"

#include <QFontMetrics>
#include <QLineEdit>
#include <QWheelEvent>

#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

constexpr int kSteps = 40;  // over the slider's range
constexpr auto kWidest = "1073741824";

}  // namespace

NumberBox::NumberBox(const Control& control, QWidget* parent)
    : QAbstractSpinBox(parent), control_(control) {
  setAlignment(Qt::AlignRight);
  setFocusPolicy(Qt::StrongFocus);
  connect(this, &QAbstractSpinBox::editingFinished, this, &NumberBox::Enter);
}

QString NumberBox::text() const { return lineEdit()->text(); }

void NumberBox::SetText(const QString& text) {
  entered_ = text;
  lineEdit()->setText(text);
}

void NumberBox::Enter() {
  if (text() == entered_) return;
  entered_ = text();
  Q_EMIT Entered(entered_);
}

void NumberBox::stepBy(int steps) {
  double value = 0;
  try {
    value = control_.parse(text().toStdString());
  } catch (const Error&) {
    return;  // there is nothing to step from
  }
  // Where a step is less than the rounding, the next ones are tried.
  const double share = control_.ShareOf(value);
  double next = value;
  for (int i = 1; i <= kSteps && next == value; ++i) {
    next = control_.AtShare(share + static_cast<double>(steps) * i / kSteps);
  }
  lineEdit()->setText(QString::fromStdString(control_.format(next)));
  lineEdit()->selectAll();
  Enter();
}

QAbstractSpinBox::StepEnabled NumberBox::stepEnabled() const {
  return StepUpEnabled | StepDownEnabled;
}

void NumberBox::wheelEvent(QWheelEvent* event) {
  // A wheel that scrolls the panel must not change what it passes over.
  if (hasFocus()) {
    QAbstractSpinBox::wheelEvent(event);
  } else {
    event->ignore();
  }
}

QSize NumberBox::sizeHint() const {
  const QSize size = QAbstractSpinBox::sizeHint();
  return {fontMetrics().horizontalAdvance(QLatin1String(kWidest)) + size.height() + 8,
          size.height()};
}

QSize NumberBox::minimumSizeHint() const { return sizeHint(); }

}  // namespace stallcast::gui
