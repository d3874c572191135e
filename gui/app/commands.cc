// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/commands.h"

#include <QMenu>
#include <QMenuBar>
#include <QWidget>
#include <algorithm>

namespace stallcast::gui {

Commands::Commands(QWidget* window) : QObject(window), window_(window) {}

QAction* Commands::Add(const QString& menu, const QString& name, const QString& text,
                       const QKeySequence& shortcut, const QString& tip,
                       std::function<void()> run) {
  auto* action = new QAction(text, window_);
  action->setObjectName(name);
  action->setShortcut(shortcut);
  action->setStatusTip(tip);
  connect(action, &QAction::triggered, window_, std::move(run));
  window_->addAction(action);
  Adopt(menu, action);
  return action;
}

void Commands::Adopt(const QString& menu, QAction* action) { entries_.append({menu, action}); }
void Commands::AddSeparator(const QString& menu) { entries_.append({menu, nullptr}); }

QList<QAction*> Commands::actions() const {
  QList<QAction*> all;
  for (const Entry& entry : entries_) {
    if (entry.action) all << entry.action;
  }
  return all;
}

QAction* Commands::Find(const QString& name) const {
  const QList<QAction*> all = actions();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const QAction* a) { return a->objectName() == name; });
  return found == all.end() ? nullptr : *found;
}

void Commands::Fill(QMenuBar& bar, const QStringList& order) const {
  QStringList titles = order;
  for (const Entry& entry : entries_) {
    if (!titles.contains(entry.menu)) titles << entry.menu;
  }
  for (const QString& title : titles) {
    QMenu* menu = bar.addMenu('&' + title);
    menu->setObjectName(title);
    menu->setToolTipsVisible(true);
    for (const Entry& entry : entries_) {
      if (entry.menu != title) continue;
      if (entry.action) {
        menu->addAction(entry.action);
      } else {
        menu->addSeparator();
      }
    }
  }
}

}  // namespace stallcast::gui
