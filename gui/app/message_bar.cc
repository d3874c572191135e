// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/message_bar.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>

namespace stallcast::gui {
namespace {

constexpr qsizetype kMostShown = 8;

}  // namespace

MessageBar::MessageBar(QWidget* parent) : QWidget(parent) {
  setProperty("role", "message");
  setAttribute(Qt::WA_StyledBackground);
  lines_ = new QVBoxLayout;
  lines_->setSpacing(0);
  auto* dismiss = new QToolButton(this);
  dismiss->setObjectName(QStringLiteral("dismiss"));
  dismiss->setText(QStringLiteral("Dismiss all"));
  connect(dismiss, &QToolButton::clicked, this, &MessageBar::Dismiss);
  auto* line = new QHBoxLayout(this);
  line->setContentsMargins(8, 4, 6, 4);
  line->addLayout(lines_, 1);
  line->addWidget(dismiss, 0, Qt::AlignTop);
  hide();
}

void MessageBar::Tell(const QString& text) {
  messages_.removeAll(text);
  messages_ << text;
  Show();
}

void MessageBar::Dismiss() {
  messages_.clear();
  Show();
}

void MessageBar::Show() {
  while (QLayoutItem* item = lines_->takeAt(0)) {
    item->widget()->hide();
    item->widget()->deleteLater();  // the signal that led here may come from it
    delete item;
  }
  const qsizetype earlier = std::max<qsizetype>(0, messages_.size() - kMostShown);
  if (earlier > 0) {
    auto* more =
        new QLabel(QStringLiteral("(%1 earlier %2: hold the mouse here)")
                       .arg(earlier)
                       .arg(earlier == 1 ? QStringLiteral("message") : QStringLiteral("messages")),
                   this);
    more->setToolTip(messages_.mid(0, earlier).join('\n'));
    lines_->addWidget(more);
  }
  for (const QString& message : messages_.mid(earlier)) {
    auto* row = new QWidget(this);
    auto* text = new QLabel(message, row);
    text->setWordWrap(true);
    text->setTextFormat(Qt::PlainText);
    text->setTextInteractionFlags(Qt::TextSelectableByMouse);
    auto* close = new QToolButton(row);
    close->setText(QStringLiteral("×"));
    close->setAutoRaise(true);
    close->setToolTip(QStringLiteral("Dismiss this message"));
    close->setAccessibleName(close->toolTip());
    connect(close, &QToolButton::clicked, this, [this, message] {
      messages_.removeAll(message);
      Show();
    });
    auto* line = new QHBoxLayout(row);
    line->setContentsMargins(0, 0, 0, 0);
    line->addWidget(text, 1);
    line->addWidget(close, 0, Qt::AlignTop);
    lines_->addWidget(row);
  }
  setVisible(!messages_.isEmpty());
}

}  // namespace stallcast::gui
