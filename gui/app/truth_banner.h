// SPDX-License-Identifier: GPL-3.0-or-later
// Says in the window what qualifies the picture.
#pragma once

#include <QWidget>
#include <vector>

#include "gui/app/truth.h"

class QLabel;

namespace stallcast::gui {

/// A chip a kind; a click on one unfolds its lines. Hidden when there is nothing to say.
class TruthBanner : public QWidget {
  Q_OBJECT

 public:
  explicit TruthBanner(QWidget* parent = nullptr);

  void Show(const std::vector<Truth>& truths);
  const std::vector<Truth>& truths() const { return truths_; }
  /// Unfolds all lines, or folds them.
  void SetUnfolded(bool unfolded);
  bool unfolded() const { return unfolded_; }

 private:
  void Tell();

  std::vector<Truth> truths_;
  bool unfolded_ = false;
  QWidget* chips_ = nullptr;
  QLabel* lines_ = nullptr;
};

}  // namespace stallcast::gui
