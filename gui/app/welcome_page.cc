// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/welcome_page.h"

#include <QFileInfo>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/app/flow_layout.h"
#include "gui/timeline/theme.h"

namespace stallcast::gui {
namespace {

constexpr qsizetype kMostRecent = 6;

}  // namespace

WelcomePage::WelcomePage(QWidget* parent) : QWidget(parent) {
  heading_ = new QLabel(
      QStringLiteral("What takes the time of a decode step, and what would help?"), this);
  QFont large = heading_->font();
  large.setPointSizeF(large.pointSizeF() * TypeScale::kHeading);
  large.setBold(true);
  heading_->setFont(large);
  heading_->setWordWrap(true);

  auto* tasks = new QWidget(this);
  auto* flow = new FlowLayout(tasks);
  flow->setContentsMargins(0, 0, 0, 0);
  const auto task = [&](const char* name, const QString& text, const QString& tip,
                        void (WelcomePage::*wanted)()) {
    auto* button = new QPushButton(text, tasks);
    button->setObjectName(QLatin1String(name));
    button->setToolTip(tip);
    button->setAccessibleDescription(tip);
    connect(button, &QPushButton::clicked, this, wanted);
    flow->addWidget(button);
  };
  task("task_sample", QStringLiteral("Try a what-if on the sample"),
       QStringLiteral("Opens the trace that ships with the program; move the link's speed"),
       &WelcomePage::SampleWanted);
  task("task_compare", QStringLiteral("Compare a run with its prediction"),
       QStringLiteral("Opens the sample beside a recording of it, op by op"),
       &WelcomePage::ComparisonWanted);
  task("task_open", QStringLiteral("Open a recording of your own…"),
       QStringLiteral("PyTorch profiler, Perfetto, Nsight Systems (.sqlite), or .kvt"),
       &WelcomePage::FileWanted);

  recent_ = new QWidget(this);
  recent_rows_ = new QVBoxLayout(recent_);
  recent_rows_->setContentsMargins(0, Spacing::kMedium, 0, 0);
  recent_rows_->setSpacing(0);
  drop_ = new QLabel(QStringLiteral("Files can be dropped anywhere on this window."), this);
  drop_->setProperty("role", "muted");
  close_ = new QToolButton(this);
  close_->setObjectName(QStringLiteral("close_welcome"));
  close_->setText(QStringLiteral("×"));
  close_->setAutoRaise(true);
  close_->setToolTip(QStringLiteral("Close this strip; Help, Welcome brings it back"));
  close_->setAccessibleName(close_->toolTip());
  connect(close_, &QToolButton::clicked, this, &WelcomePage::Closed);

  auto* column = new QVBoxLayout;
  column->setSpacing(Spacing::kMedium);
  column->addStretch(1);
  column->addWidget(heading_);
  column->addWidget(tasks);
  column->addWidget(recent_);
  column->addWidget(drop_);
  column->addStretch(2);
  auto* line = new QHBoxLayout(this);
  line->addLayout(column, 1);
  line->addWidget(close_, 0, Qt::AlignTop);
  SetWhole(true);
}

void WelcomePage::SetWhole(bool whole) {
  heading_->setVisible(whole);
  recent_->setVisible(whole);
  drop_->setVisible(whole);
  close_->setVisible(!whole);
  const int margin = whole ? 3 * Spacing::kLarge : Spacing::kSmall;
  layout()->setContentsMargins(margin, margin / 4, margin, margin / 4);
  setSizePolicy(QSizePolicy::Expanding, whole ? QSizePolicy::Expanding : QSizePolicy::Maximum);
}

void WelcomePage::SetRecent(const QStringList& paths) {
  while (QLayoutItem* item = recent_rows_->takeAt(0)) {
    item->widget()->deleteLater();
    delete item;
  }
  if (paths.isEmpty()) return;
  recent_rows_->addWidget(new QLabel(QStringLiteral("Opened lately"), recent_));
  for (const QString& path : paths.mid(0, kMostRecent)) {
    auto* row = new QToolButton(recent_);
    row->setText(QFileInfo(path).fileName());
    row->setToolTip(path);
    row->setAutoRaise(true);
    connect(row, &QToolButton::clicked, this, [this, path] { Q_EMIT Wanted(path); });
    recent_rows_->addWidget(row, 0, Qt::AlignLeft);
  }
}

}  // namespace stallcast::gui
