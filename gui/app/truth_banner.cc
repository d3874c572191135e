// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/truth_banner.h"

#include <QLabel>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/app/flow_layout.h"

namespace stallcast::gui {
namespace {

// Not by colour alone: each weight has a mark of its own.
QString Mark(Truth::Weight weight) {
  switch (weight) {
    case Truth::Weight::kLoss:
      return QStringLiteral("✖");
    case Truth::Weight::kLimit:
      return QStringLiteral("▲");
    case Truth::Weight::kChoice:
      return QStringLiteral("✎");
  }
  return {};
}

const char* WeightName(Truth::Weight weight) {
  switch (weight) {
    case Truth::Weight::kLoss:
      return "loss";
    case Truth::Weight::kLimit:
      return "limit";
    case Truth::Weight::kChoice:
      return "choice";
  }
  return "";
}

}  // namespace

TruthBanner::TruthBanner(QWidget* parent) : QWidget(parent) {
  chips_ = new QWidget(this);
  auto* flow = new FlowLayout(chips_);
  flow->setContentsMargins(0, 0, 0, 0);
  lines_ = new QLabel(this);
  lines_->setObjectName(QStringLiteral("lines"));
  lines_->setWordWrap(true);
  lines_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  lines_->hide();
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 4, 6, 4);
  column->setSpacing(4);
  column->addWidget(chips_);
  column->addWidget(lines_);
  hide();
}

void TruthBanner::Show(const std::vector<Truth>& truths) {
  truths_ = truths;
  for (QToolButton* chip : chips_->findChildren<QToolButton*>()) {
    chip->hide();
    chips_->layout()->removeWidget(chip);
    chip->deleteLater();
  }
  for (const Truth& truth : truths_) {
    auto* chip = new QToolButton(chips_);
    chip->setObjectName(truth.name);
    QString text = Mark(truth.weight) + ' ' + truth.name;
    if (truth.lines.size() > 1) text += QStringLiteral(" (%1)").arg(truth.lines.size());
    chip->setText(text);
    chip->setToolTip(truth.lines.join('\n'));
    chip->setProperty("weight", WeightName(truth.weight));
    connect(chip, &QToolButton::clicked, this, [this] { SetUnfolded(!unfolded_); });
    chips_->layout()->addWidget(chip);
    chip->show();
  }
  setVisible(!truths_.empty());
  Tell();
}

void TruthBanner::SetUnfolded(bool unfolded) {
  unfolded_ = unfolded;
  Tell();
}

void TruthBanner::Tell() {
  QStringList lines;
  for (const Truth& truth : truths_) {
    for (const QString& line : truth.lines) lines << QStringLiteral("• ") + line;
  }
  lines_->setText(lines.join('\n'));
  lines_->setVisible(unfolded_ && !lines.isEmpty());
}

}  // namespace stallcast::gui
