// SPDX-License-Identifier: GPL-3.0-or-later
// What went wrong, told in the window until it is dismissed; nothing waits for an answer.
#pragma once

#include <QWidget>

class QVBoxLayout;

namespace stallcast::gui {

class MessageBar : public QWidget {
  Q_OBJECT

 public:
  explicit MessageBar(QWidget* parent = nullptr);

  /// Below what is told already.
  void Tell(const QString& text);
  QStringList messages() const { return messages_; }
  void Dismiss();

 private:
  void Show();

  QStringList messages_;
  QVBoxLayout* lines_ = nullptr;
};

}  // namespace stallcast::gui
