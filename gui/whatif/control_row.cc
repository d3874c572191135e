// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/control_row.h"

#include <QCheckBox>
#include <QComboBox>
#include <QFileDialog>
#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QMouseEvent>
#include <QSignalBlocker>
#include <QSlider>
#include <QToolButton>
#include <QWheelEvent>

#include "gui/whatif/number_box.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

constexpr int kSliderSteps = 1000;

// Sliders and boxes that take the wheel only when they have the focus.
template <class Widget>
class Unscrolled : public Widget {
 public:
  using Widget::Widget;

 protected:
  void wheelEvent(QWheelEvent* event) override {
    if (this->hasFocus()) {
      Widget::wheelEvent(event);
    } else {
      event->ignore();
    }
  }
};

// The words beside a check box, in as many lines as they need; a click on them is one on the box.
class BoxWords : public QLabel {
 public:
  BoxWords(const QString& text, QCheckBox* box, QWidget* parent) : QLabel(text, parent), box_(box) {
    setWordWrap(true);
  }

 protected:
  void mouseReleaseEvent(QMouseEvent* event) override {
    if (event->button() == Qt::LeftButton && rect().contains(event->pos())) box_->click();
  }

 private:
  QCheckBox* box_;
};

QString ToolTip(const Control& control) {
  QStringList lines;
  lines << QStringLiteral("<b>%1</b>").arg(control.label.toHtmlEscaped());
  if (!control.help.isEmpty()) lines << control.help.toHtmlEscaped();
  lines << QStringLiteral("default: %1 %2")
               .arg(control.default_value.isEmpty() ? QStringLiteral("the trace's")
                                                    : control.default_value.toHtmlEscaped(),
                    control.unit);
  if (!control.source.isEmpty()) {
    lines << QStringLiteral("<i>%1</i>").arg(control.source.toHtmlEscaped());
  }
  return QStringLiteral("<p>%1</p>").arg(lines.join(QStringLiteral("<br>")));
}

}  // namespace

ControlRow::ControlRow(Control control, QWidget* parent)
    : QWidget(parent), control_(std::move(control)) {
  setObjectName(QString::fromStdString(control_.path));
  auto* grid = new QGridLayout(this);
  grid->setContentsMargins(0, 0, 0, 0);
  grid->setHorizontalSpacing(6);
  grid->setVerticalSpacing(2);

  label_ = new QLabel(this);
  label_->setWordWrap(true);
  label_->setToolTip(ToolTip(control_));
  auto* editor = new QWidget(this);
  auto* line = new QHBoxLayout(editor);
  line->setContentsMargins(0, 0, 0, 0);
  line->setSpacing(6);
  switch (control_.kind) {
    case Control::Kind::kNumber:
      AddNumber(editor);
      break;
    case Control::Kind::kChoice:
      AddChoice(editor);
      break;
    case Control::Kind::kFlag:
      AddFlag(editor);
      break;
    case Control::Kind::kText:
      AddText(editor);
      break;
  }
  reset_ = new QToolButton(this);
  reset_->setObjectName(QStringLiteral("reset"));
  reset_->setText(QStringLiteral("↺"));
  reset_->setAutoRaise(true);
  reset_->setToolTip(QStringLiteral("Back to the default"));
  reset_->setAccessibleName(QStringLiteral("Reset %1").arg(control_.label));
  QSizePolicy keeps = reset_->sizePolicy();
  keeps.setRetainSizeWhenHidden(true);
  reset_->setSizePolicy(keeps);
  connect(reset_, &QToolButton::clicked, this,
          [this] { Q_EMIT Changed(control_.path, std::nullopt); });
  error_ = new QLabel(this);
  error_->setObjectName(QStringLiteral("error"));
  error_->setWordWrap(true);
  error_->setProperty("role", "error");
  error_->hide();

  for (QWidget* takes : std::initializer_list<QWidget*>{number_, choice_, flag_, text_}) {
    if (takes) setFocusProxy(takes);
  }

  grid->addWidget(label_, 0, 0);
  grid->addWidget(reset_, 0, 1);
  grid->addWidget(editor, 1, 0, 1, 2);
  grid->addWidget(error_, 2, 0, 1, 2);
  grid->setColumnStretch(0, 1);
}

void ControlRow::AddNumber(QWidget* editor) {
  slider_ = new Unscrolled<QSlider>(Qt::Horizontal, editor);
  slider_->setRange(0, kSliderSteps);
  slider_->setPageStep(kSliderSteps / 20);
  slider_->setSingleStep(kSliderSteps / 100);
  slider_->setAccessibleName(control_.label);
  slider_->setFocusPolicy(Qt::StrongFocus);
  number_ = new NumberBox(control_, editor);
  number_->setAccessibleName(control_.label);
  number_->setToolTip(ToolTip(control_));
  editor->layout()->addWidget(slider_);
  editor->layout()->addWidget(number_);
  connect(slider_, &QSlider::valueChanged, this, [this](int position) {
    const double value = control_.AtShare(static_cast<double>(position) / kSliderSteps);
    const std::string text = control_.format(value);
    // Positions between two values that people choose give the same one.
    if (number_->text().toStdString() == text) return;
    number_->SetText(QString::fromStdString(text));
    Q_EMIT Changed(control_.path, text);
  });
  connect(number_, &NumberBox::Entered, this,
          [this](const QString& text) { Q_EMIT Changed(control_.path, text.toStdString()); });
}

void ControlRow::AddChoice(QWidget* editor) {
  choice_ = new Unscrolled<QComboBox>(editor);
  choice_->addItems(control_.choice_names.isEmpty() ? control_.choices : control_.choice_names);
  choice_->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
  choice_->setMinimumContentsLength(12);
  choice_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  choice_->setAccessibleName(control_.label);
  choice_->setToolTip(ToolTip(control_));
  choice_->setFocusPolicy(Qt::StrongFocus);
  editor->layout()->addWidget(choice_);
  if (!control_.files.isEmpty()) {
    auto* browse = new QToolButton(editor);
    browse->setObjectName(QStringLiteral("browse"));
    browse->setText(QStringLiteral("File…"));
    browse->setToolTip(QStringLiteral("Take it from a file: %1").arg(control_.files));
    browse->setAccessibleName(QStringLiteral("Choose a file for %1").arg(control_.label));
    editor->layout()->addWidget(browse);
    connect(browse, &QToolButton::clicked, this, [this] {
      const QString path = QFileDialog::getOpenFileName(
          this, QStringLiteral("Choose a %1").arg(control_.label), {}, control_.files);
      if (!path.isEmpty()) Q_EMIT Changed(control_.path, path.toStdString());
    });
  }
  connect(choice_, &QComboBox::currentIndexChanged, this, [this](int index) {
    Q_EMIT Changed(control_.path, control_.choices[index].toStdString());
  });
}

void ControlRow::AddFlag(QWidget* editor) {
  flag_ = new QCheckBox(editor);
  flag_->setAccessibleName(control_.label);
  flag_->setToolTip(ToolTip(control_));
  flag_->setSizePolicy(QSizePolicy::Fixed, QSizePolicy::Fixed);
  auto* words =
      new BoxWords(control_.help.isEmpty() ? control_.label : control_.help, flag_, editor);
  words->setToolTip(ToolTip(control_));
  editor->layout()->addWidget(flag_);
  editor->layout()->addWidget(words);
  connect(flag_, &QCheckBox::toggled, this,
          [this](bool on) { Q_EMIT Changed(control_.path, std::string(on ? "on" : "off")); });
}

void ControlRow::AddText(QWidget* editor) {
  text_ = new QLineEdit(editor);
  text_->setAccessibleName(control_.label);
  text_->setToolTip(ToolTip(control_));
  editor->layout()->addWidget(text_);
  connect(text_, &QLineEdit::editingFinished, this, [this] {
    if (text_->isModified()) Q_EMIT Changed(control_.path, text_->text().toStdString());
    text_->setModified(false);
  });
}

void ControlRow::Show(const std::optional<std::string>& text) {
  is_default_ = !text.has_value();
  // What a machine's value means, and behind it its path as --set takes it.
  QString label = control_.label;
  const bool explained = control_.path.starts_with("machine.") && !control_.help.isEmpty() &&
                         control_.kind == Control::Kind::kNumber;
  if (explained) label = QStringLiteral("%1 (%2)").arg(control_.help, control_.label);
  if (!control_.unit.isEmpty()) label += QStringLiteral(" (%1)").arg(control_.unit);
  // As text: a font would be lost with the next change of theme.
  label_->setText(is_default_ ? label : QStringLiteral("<b>%1 *</b>").arg(label.toHtmlEscaped()));
  reset_->setVisible(!is_default_);
  ShowValue(text ? QString::fromStdString(*text) : control_.default_value);
}

void ControlRow::ShowValue(const QString& text) {
  if (number_ && number_->text() != text) number_->SetText(text);
  if (slider_ && !slider_->isSliderDown()) {
    const QSignalBlocker quiet(slider_);
    try {
      slider_->setValue(
          qRound(control_.ShareOf(control_.parse(text.toStdString())) * kSliderSteps));
    } catch (const Error&) {
      // The text is shown with its error; the slider stays.
    }
  }
  if (choice_) {
    const QSignalBlocker quiet(choice_);
    if (!control_.choices.contains(text) && !control_.files.isEmpty() && !text.isEmpty()) {
      control_.choices << text;  // a file
      choice_->addItem(QFileInfo(text).fileName());
    }
    choice_->setCurrentIndex(static_cast<int>(control_.choices.indexOf(text)));
  }
  if (text_ && text_->text() != text) text_->setText(text);
  if (flag_) {
    const QSignalBlocker quiet(flag_);
    flag_->setChecked(text == QLatin1String("on"));
  }
}

void ControlRow::SetError(const QString& text) {
  error_->setText(text);
  error_->setVisible(!text.isEmpty());
}

QString ControlRow::error() const { return error_->text(); }

}  // namespace stallcast::gui
