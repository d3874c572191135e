// SPDX-License-Identifier: GPL-3.0-or-later
// Says the caveats in the window.
#pragma once

#include <QWidget>
#include <vector>

#include "gui/app/caveats.h"

class QLabel;

namespace stallcast::gui {

/// A chip a kind; a click on one unfolds its lines. Hidden when there is nothing to say.
class CaveatBanner : public QWidget {
  Q_OBJECT

 public:
  explicit CaveatBanner(QWidget* parent = nullptr);

  void Show(const std::vector<Caveat>& caveats);
  const std::vector<Caveat>& caveats() const { return caveats_; }
  /// Unfolds all lines, or folds them.
  void SetUnfolded(bool unfolded);
  bool unfolded() const { return unfolded_; }

 private:
  void Tell();

  std::vector<Caveat> caveats_;
  bool unfolded_ = false;
  QWidget* chips_ = nullptr;
  QLabel* lines_ = nullptr;
};

}  // namespace stallcast::gui
