// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/caveat_banner.h"

#include <QLabel>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/app/flow_layout.h"

namespace stallcast::gui {
namespace {

// Not by colour alone: each weight has a mark of its own.
QString Mark(Caveat::Weight weight) {
  switch (weight) {
    case Caveat::Weight::kLoss:
      return QStringLiteral("✖");
    case Caveat::Weight::kLimit:
      return QStringLiteral("▲");
    case Caveat::Weight::kChoice:
      return QStringLiteral("✎");
  }
  return {};
}

const char* WeightName(Caveat::Weight weight) {
  switch (weight) {
    case Caveat::Weight::kLoss:
      return "loss";
    case Caveat::Weight::kLimit:
      return "limit";
    case Caveat::Weight::kChoice:
      return "choice";
  }
  return "";
}

}  // namespace

CaveatBanner::CaveatBanner(QWidget* parent) : QWidget(parent) {
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

void CaveatBanner::Show(const std::vector<Caveat>& caveats) {
  caveats_ = caveats;
  for (QToolButton* chip : chips_->findChildren<QToolButton*>()) {
    chip->hide();
    chips_->layout()->removeWidget(chip);
    chip->deleteLater();
  }
  for (const Caveat& caveat : caveats_) {
    auto* chip = new QToolButton(chips_);
    chip->setObjectName(caveat.name);
    QString text = Mark(caveat.weight) + ' ' + caveat.name;
    if (caveat.lines.size() > 1) text += QStringLiteral(" (%1)").arg(caveat.lines.size());
    chip->setText(text);
    chip->setToolTip(caveat.lines.join('\n'));
    chip->setProperty("weight", WeightName(caveat.weight));
    connect(chip, &QToolButton::clicked, this, [this] { SetUnfolded(!unfolded_); });
    chips_->layout()->addWidget(chip);
    chip->show();
  }
  setVisible(!caveats_.empty());
  Tell();
}

void CaveatBanner::SetUnfolded(bool unfolded) {
  unfolded_ = unfolded;
  Tell();
}

void CaveatBanner::Tell() {
  QStringList lines;
  for (const Caveat& caveat : caveats_) {
    for (const QString& line : caveat.lines) lines << QStringLiteral("• ") + line;
  }
  lines_->setText(lines.join('\n'));
  lines_->setVisible(unfolded_ && !lines.isEmpty());
}

}  // namespace stallcast::gui
