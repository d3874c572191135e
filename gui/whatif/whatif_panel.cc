// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/whatif_panel.h"

#include <QLabel>
#include <QLineEdit>
#include <QScrollArea>
#include <QShortcut>
#include <QVBoxLayout>
#include <algorithm>
#include <map>

#include "gui/whatif/control_group.h"
#include "gui/whatif/control_row.h"

namespace stallcast::gui {
namespace {

QString Told(const Error& error) {
  return QString::fromStdString(error.problem() + "; " + error.remedy());
}

}  // namespace

WhatIfPanel::WhatIfPanel(QWidget* parent) : QWidget(parent) {
  search_ = new QLineEdit(this);
  search_->setObjectName(QStringLiteral("search"));
  search_->setPlaceholderText(QStringLiteral("Find a value: budget, link, gemm ..."));
  search_->setClearButtonEnabled(true);
  connect(search_, &QLineEdit::textChanged, this, &WhatIfPanel::Filter);
  connect(search_, &QLineEdit::returnPressed, this, &WhatIfPanel::FocusFirstFound);
  new QShortcut(Qt::Key_Down, search_, this, &WhatIfPanel::FocusFirstFound, Qt::WidgetShortcut);
  new QShortcut(Qt::Key_Escape, search_, search_, &QLineEdit::clear, Qt::WidgetShortcut);
  none_found_ = new QLabel(this);
  none_found_->setObjectName(QStringLiteral("none_found"));
  none_found_->setWordWrap(true);
  none_found_->hide();
  error_ = new QLabel(this);
  error_->setObjectName(QStringLiteral("error"));
  error_->setProperty("role", "error");
  error_->setWordWrap(true);
  error_->hide();

  auto* body = new QWidget;
  column_ = new QVBoxLayout(body);
  column_->setContentsMargins(4, 4, 8, 4);
  column_->setSpacing(4);
  column_->addStretch(1);
  auto* scroll = new QScrollArea(this);
  scroll->setWidget(body);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setFocusPolicy(Qt::NoFocus);  // the values take it
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);

  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(4, 4, 0, 0);
  layout->addWidget(search_);
  layout->addWidget(error_);
  layout->addWidget(none_found_);
  layout->addWidget(scroll, 1);
}

WhatIfPanel::~WhatIfPanel() = default;

void WhatIfPanel::SetTrace(const traces::proto::TraceInfo& info) {
  info_ = info;
  Rebuild(request_);
}

void WhatIfPanel::SetRequest(const sim::PredictRequest& request) {
  const bool same =
      !groups_.empty() && request.method == request_.method && request.machine == request_.machine;
  if (same) {
    request_ = request;
    for (ControlGroup* group : groups_) group->Show(request_);
  } else {
    Rebuild(request);
  }
  ClearErrors();
}

void WhatIfPanel::Rebuild(const sim::PredictRequest& request) {
  std::vector<Control> controls = Controls(request, info_);
  request_ = request;
  const std::string focused = FocusedRow();
  // A widget with the focus that is hidden hands it to the next one, and the panel scrolls there.
  if (!focused.empty()) window()->focusWidget()->clearFocus();
  std::map<QString, bool> open;
  for (ControlGroup* group : groups_) {
    open[group->title()] = group->open();
    for (const ControlGroup* inner : group->groups()) open[inner->title()] = inner->open();
    // The signal that led here may come from one of its rows.
    group->hide();
    group->deleteLater();
    column_->removeWidget(group);
  }
  groups_.clear();
  const auto make = [&](const QString& title, bool unfolded) {
    const auto before = open.find(title);
    return new ControlGroup(title, before != open.end() ? before->second : unfolded, this);
  };
  const auto top = [&](const QString& title, bool unfolded) {
    const auto found = std::ranges::find(groups_, title, &ControlGroup::title);
    if (found == groups_.end()) {
      ControlGroup* group = make(title, unfolded);
      column_->insertWidget(column_->count() - 1, group);
      connect(group, &ControlGroup::Changed, this, &WhatIfPanel::Apply);
      groups_.push_back(group);
      return group;
    }
    return *found;
  };
  for (Control& control : controls) {
    const bool machine = control.path.starts_with("machine.");
    if (control.section.isEmpty()) {
      ControlGroup* group = top(control.group, !machine);
      group->Add(std::move(control));
      continue;
    }
    ControlGroup* section = top(control.section, false);
    if (section->groups().empty() || section->groups().back()->title() != control.group) {
      section->Add(make(control.group, false));
    }
    section->groups().back()->Add(std::move(control));
  }
  for (ControlGroup* group : groups_) group->Show(request_);
  Filter(search_->text());
  if (ControlRow* again = focused.empty() ? nullptr : row(focused)) again->setFocus();
}

// Path of the row that has the window's focus, or empty.
std::string WhatIfPanel::FocusedRow() const {
  for (QWidget* at = window()->focusWidget(); at && at != this; at = at->parentWidget()) {
    if (const auto* found = qobject_cast<ControlRow*>(at); found && isAncestorOf(found)) {
      return found->control().path;
    }
  }
  return {};
}

void WhatIfPanel::FocusFirstFound() {
  for (ControlGroup* group : groups_) {
    if (ControlRow* first = group->FirstShown()) return first->setFocus(Qt::TabFocusReason);
  }
}

void WhatIfPanel::Apply(const std::string& path, const std::optional<std::string>& text) {
  ControlRow* changed = row(path);
  if (!changed) return;
  last_changed_ = path;
  sim::PredictRequest next = request_;
  try {
    if (path == "method") {
      ChangeMethod(next, text.value_or(changed->control().default_value.toStdString()));
    } else {
      changed->control().write(next, text);
    }
  } catch (const Error& error) {
    changed->SetError(Told(error));
    return;
  }
  SetRequest(next);
  Q_EMIT Changed(request_);
}

ControlRow* WhatIfPanel::row(const std::string& path) const {
  for (ControlGroup* group : groups_) {
    if (ControlRow* found = group->Row(path)) return found;
  }
  return nullptr;
}

void WhatIfPanel::ShowError(const Error& error) {
  ClearErrors();
  std::vector<Control> controls;
  for (const ControlGroup* group : groups_) {
    group->ForEachControl([&](const Control& control) { controls.push_back(control); });
  }
  const std::string culprit = Culprit(error, controls, last_changed_);
  if (ControlRow* at = row(culprit)) {
    for (ControlGroup* group : groups_) group->Reveal(culprit);
    at->SetError(Told(error));
    return;
  }
  error_->setText(QString::fromStdString(error.where()) + QStringLiteral(": ") + Told(error));
  error_->show();
}

void WhatIfPanel::ClearErrors() {
  error_->clear();
  error_->hide();
  for (ControlGroup* group : groups_) group->ClearErrors();
}

void WhatIfPanel::Reset() {
  sim::PredictRequest next = request_;
  next.params.clear();
  next.machine_overrides.clear();
  SetRequest(next);
  Q_EMIT Changed(request_);
}

void WhatIfPanel::FocusSearch() {
  search_->setFocus(Qt::ShortcutFocusReason);
  search_->selectAll();
}

void WhatIfPanel::Filter(const QString& words) {
  const QStringList list = words.split(' ', Qt::SkipEmptyParts);
  bool any = false;
  for (ControlGroup* group : groups_) any |= group->Filter(list);
  none_found_->setText(QStringLiteral("Nothing is called \u201c%1\u201d").arg(words.trimmed()));
  none_found_->setVisible(!any && !list.isEmpty());
}

}  // namespace stallcast::gui
