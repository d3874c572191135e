// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/message_bar.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QToolButton>

namespace stallcast::gui {
namespace {

constexpr qsizetype kMostShown = 8;

}  // namespace

MessageBar::MessageBar(QWidget* parent) : QWidget(parent) {
  setProperty("role", "message");
  setAttribute(Qt::WA_StyledBackground);
  text_ = new QLabel(this);
  text_->setObjectName(QStringLiteral("text"));
  text_->setWordWrap(true);
  text_->setTextFormat(Qt::PlainText);
  text_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  auto* dismiss = new QToolButton(this);
  dismiss->setObjectName(QStringLiteral("dismiss"));
  dismiss->setText(QStringLiteral("Dismiss"));
  connect(dismiss, &QToolButton::clicked, this, &MessageBar::Dismiss);
  auto* line = new QHBoxLayout(this);
  line->setContentsMargins(8, 4, 6, 4);
  line->addWidget(text_, 1);
  line->addWidget(dismiss, 0, Qt::AlignTop);
  hide();
}

void MessageBar::Tell(const QString& text) {
  messages_.removeAll(text);
  messages_ << text;
  QStringList shown = messages_.mid(std::max<qsizetype>(0, messages_.size() - kMostShown));
  if (messages_.size() > kMostShown) {
    const qsizetype earlier = messages_.size() - kMostShown;
    shown.prepend(QStringLiteral("(%1 earlier %2: hold the mouse here)")
                      .arg(earlier)
                      .arg(earlier == 1 ? QStringLiteral("message") : QStringLiteral("messages")));
  }
  text_->setToolTip(messages_.size() > kMostShown ? messages_.join('\n') : QString());
  text_->setText(shown.join('\n'));
  show();
}

void MessageBar::Dismiss() {
  messages_.clear();
  hide();
}

}  // namespace stallcast::gui
