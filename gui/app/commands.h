// SPDX-License-Identifier: GPL-3.0-or-later
// Every command of the program, in one list: menus, shortcuts and the palette are made from it.
#pragma once

#include <QAction>
#include <QKeySequence>
#include <QList>
#include <QObject>
#include <QString>
#include <functional>

class QMenuBar;
class QWidget;

namespace stallcast::gui {

class Commands : public QObject {
  Q_OBJECT

 public:
  struct Entry {
    QString menu;
    QAction* action = nullptr;  ///< null: a separator
  };

  explicit Commands(QWidget* window);

  /// A new command at the end of a menu ("File"). `name` is its object name.
  QAction* Add(const QString& menu, const QString& name, const QString& text,
               const QKeySequence& shortcut, const QString& tip, std::function<void()> run);
  /// A command that somebody else made and owns.
  void Adopt(const QString& menu, QAction* action);
  void AddSeparator(const QString& menu);

  const QList<Entry>& entries() const { return entries_; }
  /// All commands without separators.
  QList<QAction*> actions() const;
  QAction* Find(const QString& name) const;  ///< null: none
  /// Makes the menus, in the order given first, others behind.
  void Fill(QMenuBar& bar, const QStringList& order) const;

 private:
  QWidget* window_;
  QList<Entry> entries_;
};

}  // namespace stallcast::gui
