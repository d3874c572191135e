// SPDX-License-Identifier: GPL-3.0-or-later
// Controls, or groups of them, under a heading that folds them away.
#pragma once

#include <QWidget>
#include <optional>
#include <string>
#include <vector>

#include "gui/whatif/control_row.h"

class QToolButton;
class QVBoxLayout;

namespace stallcast::gui {

/// The rows of a folded group are made when they are first wanted: a machine has hundreds of
/// values.
class ControlGroup : public QWidget {
  Q_OBJECT

 public:
  ControlGroup(const QString& title, bool open, QWidget* parent = nullptr);

  void Add(Control control);
  /// At the end of what is there.
  void Add(ControlGroup* group);

  QString title() const { return title_; }
  bool open() const;
  void SetOpen(bool open);
  const std::vector<ControlGroup*>& groups() const { return groups_; }

  /// Calls visit(const Control&) for all, those of inner groups too.
  template <class Visit>
  void ForEachControl(Visit&& visit) const {
    for (const Item& item : items_) visit(item.control);
    for (const ControlGroup* group : groups_) group->ForEachControl(visit);
  }
  /// The first row that is neither folded away nor filtered out; null: there is none.
  ControlRow* FirstShown() const;
  /// Made if need be; null: it is not here.
  ControlRow* Row(const std::string& path);
  /// Unfolds what it takes to see the row.
  void Reveal(const std::string& path);

  /// Shows what the request says; emits nothing.
  void Show(const sim::PredictRequest& request);
  void ClearErrors();
  /// Shows only rows whose name or help holds all words; with words, folded groups open. False when
  /// nothing is left.
  bool Filter(const QStringList& words);

 Q_SIGNALS:
  /// The user chose a value; nothing: the default.
  void Changed(const std::string& path, const std::optional<std::string>& text);

 private:
  struct Item {
    Control control;
    ControlRow* row = nullptr;
    bool fits = true;
  };
  ControlRow* Make(Item& item);
  bool Holds(const std::string& path) const;
  void Update();
  void ShowHeading();

  QString title_;
  QToolButton* heading_ = nullptr;
  QWidget* body_ = nullptr;
  QVBoxLayout* column_ = nullptr;
  bool searching_ = false;
  sim::PredictRequest request_;
  std::vector<Item> items_;
  std::vector<ControlGroup*> groups_;
};

}  // namespace stallcast::gui
