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
  heading_->setProperty("role", "heading");
  body_ = new QWidget(this);
  column_ = new QVBoxLayout(body_);
  column_->setContentsMargins(10, 2, 2, 6);
  column_->setSpacing(5);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  column->addWidget(heading_);
  column->addWidget(body_);
  connect(heading_, &QToolButton::toggled, this, &ControlGroup::Update);
  Update();
}

void ControlGroup::Add(Control control) {
  items_.push_back({std::move(control)});
  Update();
}

void ControlGroup::Add(ControlGroup* group) {
  groups_.push_back(group);
  column_->addWidget(group);
  connect(group, &ControlGroup::Changed, this, &ControlGroup::Changed);
}

bool ControlGroup::open() const { return heading_->isChecked(); }

void ControlGroup::SetOpen(bool open) { heading_->setChecked(open); }

ControlRow* ControlGroup::Make(Item& item) {
  if (item.row != nullptr) return item.row;
  item.row = new ControlRow(item.control, body_);
  // In the order of the controls, above the inner groups.
  int at = 0;
  for (const Item& before : items_) {
    if (&before == &item) break;
    if (before.row != nullptr) ++at;
  }
  column_->insertWidget(at, item.row);
  connect(item.row, &ControlRow::Changed, this, &ControlGroup::Changed);
  item.row->Show(item.control.read(request_));
  item.row->setVisible(item.fits);
  return item.row;
}

ControlRow* ControlGroup::FirstShown() const {
  if (isHidden() || body_->isHidden()) return nullptr;
  for (const Item& item : items_) {
    if (item.row != nullptr && item.fits) return item.row;
  }
  for (const ControlGroup* group : groups_) {
    if (ControlRow* row = group->FirstShown()) return row;
  }
  return nullptr;
}

ControlRow* ControlGroup::Row(const std::string& path) {
  for (Item& item : items_) {
    if (item.control.path == path) return Make(item);
  }
  for (ControlGroup* group : groups_) {
    if (ControlRow* row = group->Row(path)) return row;
  }
  return nullptr;
}

bool ControlGroup::Holds(const std::string& path) const {
  bool holds = false;
  ForEachControl([&](const Control& control) { holds |= control.path == path; });
  return holds;
}

void ControlGroup::Reveal(const std::string& path) {
  if (!Holds(path)) return;
  SetOpen(true);
  for (ControlGroup* group : groups_) group->Reveal(path);
}

void ControlGroup::Show(const sim::PredictRequest& request) {
  request_ = request;
  for (const Item& item : items_) {
    if (item.row != nullptr) item.row->Show(item.control.read(request));
  }
  for (ControlGroup* group : groups_) group->Show(request);
  ShowHeading();
}

// Folded or not, a heading says that something below it was changed.
void ControlGroup::ShowHeading() {
  bool changed = false;
  ForEachControl([&](const Control& control) { changed |= control.read(request_).has_value(); });
  heading_->setText(changed ? title_ + QStringLiteral(" *") : title_);
}

void ControlGroup::ClearErrors() {
  for (const Item& item : items_) {
    if (item.row != nullptr) item.row->SetError({});
  }
  for (ControlGroup* group : groups_) group->ClearErrors();
}

void ControlGroup::Update() {
  const bool shown = searching_ || heading_->isChecked();
  heading_->setArrowType(shown ? Qt::DownArrow : Qt::RightArrow);
  for (Item& item : items_) {
    if (shown && item.fits) Make(item);
  }
  body_->setVisible(shown);
}

bool ControlGroup::Filter(const QStringList& words) {
  searching_ = !words.isEmpty();
  bool any = false;
  for (Item& item : items_) {
    const QString text = item.control.label + ' ' + item.control.help + ' ' + title_;
    item.fits = std::all_of(words.begin(), words.end(), [&](const QString& word) {
      return text.contains(word, Qt::CaseInsensitive);
    });
    if (item.row != nullptr) item.row->setVisible(item.fits);
    any |= item.fits;
  }
  for (ControlGroup* group : groups_) any |= group->Filter(words);
  setVisible(any);
  Update();
  return any;
}

}  // namespace stallcast::gui
