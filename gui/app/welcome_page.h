// SPDX-License-Identifier: GPL-3.0-or-later
// What to do first: three tasks, files opened lately. Shown while nothing is open, and, without the
// files, above the first timeline that a newcomer sees.
#pragma once

#include <QWidget>

class QLabel;
class QToolButton;
class QVBoxLayout;

namespace stallcast::gui {

class WelcomePage : public QWidget {
  Q_OBJECT

 public:
  explicit WelcomePage(QWidget* parent = nullptr);

  /// The whole page, or a strip of its tasks that can be closed.
  void SetWhole(bool whole);
  void SetRecent(const QStringList& paths);

 Q_SIGNALS:
  void SampleWanted();
  void ComparisonWanted();
  void FileWanted();
  void Wanted(const QString& path);  ///< one of the recent files
  void Closed();

 private:
  QLabel* heading_ = nullptr;
  QWidget* recent_ = nullptr;
  QVBoxLayout* recent_rows_ = nullptr;
  QLabel* drop_ = nullptr;
  QToolButton* close_ = nullptr;
};

}  // namespace stallcast::gui
