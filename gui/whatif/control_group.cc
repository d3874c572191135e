// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/control_group.h"

#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>

namespace stallcast::gui {

ControlGroup::ControlGroup(const QString& title, bool open, QWidget* parent)
    : QWidget(parent), title_(title) {
  setObjectName(title);
  heading_ = new QToolButton(this);
  heading_->setObjectName(QStringLiteral("heading"));
  heading_->setText(title);
  heading_->setToolButtonStyle(Qt::ToolButtonTextBesideIcon);
  heading_->setAutoRaise(true);
  heading_->setCheckable(true);
  heading_->setChecked(open);
  heading_->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  QFont bold = heading_->font();
  bold.setBold(true);
  heading_->setFont(bold);
  body_ = new QWidget(this);
  auto* rows = new QVBoxLayout(body_);
  rows->setContentsMargins(10, 2, 2, 6);
  rows->setSpacing(5);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  column->addWidget(heading_);
  column->addWidget(body_);
  connect(heading_, &QToolButton::toggled, this, &ControlGroup::Update);
  Update();
}

void ControlGroup::Add(ControlRow* row) {
  body_->layout()->addWidget(row);
  rows_.push_back(row);
}

bool ControlGroup::open() const { return heading_->isChecked(); }

void ControlGroup::SetOpen(bool open) { heading_->setChecked(open); }

void ControlGroup::Update() {
  const bool shown = searching_ || heading_->isChecked();
  heading_->setArrowType(shown ? Qt::DownArrow : Qt::RightArrow);
  body_->setVisible(shown);
}

void ControlGroup::Filter(const QStringList& words) {
  searching_ = !words.isEmpty();
  bool any = false;
  for (ControlRow* row : rows_) {
    const Control& control = row->control();
    const QString text = control.label + ' ' + control.help + ' ' + title_;
    const bool found = std::all_of(words.begin(), words.end(), [&](const QString& word) {
      return text.contains(word, Qt::CaseInsensitive);
    });
    row->setVisible(found);
    any |= found;
  }
  setVisible(any);
  Update();
}

}  // namespace stallcast::gui
