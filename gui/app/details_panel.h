// SPDX-License-Identifier: GPL-3.0-or-later
// Tells of the op under the cursor or selected, beside its twin; of a selected area by role.
#pragma once

#include <QScrollArea>
#include <optional>

#include "gui/timeline/op_details.h"

class QLabel;

namespace stallcast::gui {

class DetailsPanel : public QScrollArea {
  Q_OBJECT

 public:
  explicit DetailsPanel(QWidget* parent = nullptr);

  /// Shown while nothing is hovered.
  void Select(const std::optional<OpDetails>& op);
  void Hover(const std::optional<OpDetails>& op);
  void SelectArea(const std::optional<AreaSums>& area);
  QString text() const;

 private:
  void Tell();

  std::optional<OpDetails> selected_, hovered_;
  std::optional<AreaSums> area_;
  QLabel* text_ = nullptr;
};

}  // namespace stallcast::gui
