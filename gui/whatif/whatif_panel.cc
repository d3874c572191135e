// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/whatif_panel.h"

#include <QLabel>
#include <QLineEdit>
#include <QScrollArea>
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
  search_->setPlaceholderText(QStringLiteral("Find a value: budget, launch, link ..."));
  search_->setClearButtonEnabled(true);
  connect(search_, &QLineEdit::textChanged, this, &WhatIfPanel::Filter);
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
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);

  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(4, 4, 0, 0);
  layout->addWidget(search_);
  layout->addWidget(error_);
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
    ShowRows();
  } else {
    Rebuild(request);
  }
  ClearErrors();
}

void WhatIfPanel::Rebuild(const sim::PredictRequest& request) {
  std::vector<Control> controls = Controls(request, info_);
  request_ = request;
  std::map<QString, bool> open;
  for (ControlGroup* group : groups_) {
    open[group->title()] = group->open();
    // The signal that led here may come from one of its rows.
    group->hide();
    group->deleteLater();
    column_->removeWidget(group);
  }
  groups_.clear();
  for (Control& control : controls) {
    if (groups_.empty() || groups_.back()->title() != control.group) {
      const auto before = open.find(control.group);
      const bool machine = control.path.starts_with("machine.");
      auto* group =
          new ControlGroup(control.group, before != open.end() ? before->second : !machine, this);
      column_->insertWidget(column_->count() - 1, group);
      groups_.push_back(group);
    }
    auto* row = new ControlRow(std::move(control));
    groups_.back()->Add(row);
    connect(row, &ControlRow::Changed, this, &WhatIfPanel::Apply);
  }
  ShowRows();
  Filter(search_->text());
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

void WhatIfPanel::ShowRows() {
  for (ControlRow* r : rows()) r->Show(request_);
}

std::vector<ControlRow*> WhatIfPanel::rows() const {
  std::vector<ControlRow*> all;
  for (const ControlGroup* group : groups_) {
    all.insert(all.end(), group->rows().begin(), group->rows().end());
  }
  return all;
}

ControlRow* WhatIfPanel::row(const std::string& path) const {
  const std::vector<ControlRow*> all = rows();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const ControlRow* r) { return r->control().path == path; });
  return found == all.end() ? nullptr : *found;
}

void WhatIfPanel::ShowError(const Error& error) {
  ClearErrors();
  std::vector<Control> controls;
  for (const ControlRow* r : rows()) controls.push_back(r->control());
  if (ControlRow* culprit = row(Culprit(error, controls, last_changed_))) {
    for (ControlGroup* group : groups_) {
      if (std::count(group->rows().begin(), group->rows().end(), culprit) > 0) group->SetOpen(true);
    }
    culprit->SetError(Told(error));
    return;
  }
  error_->setText(QString::fromStdString(error.where()) + QStringLiteral(": ") + Told(error));
  error_->show();
}

void WhatIfPanel::ClearErrors() {
  error_->clear();
  error_->hide();
  for (ControlRow* r : rows()) r->SetError({});
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
  for (ControlGroup* group : groups_) group->Filter(list);
}

}  // namespace stallcast::gui
