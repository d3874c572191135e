// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/change_list.h"

#include <QAbstractItemView>
#include <QAction>
#include <QCompleter>
#include <QDropEvent>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QSignalBlocker>
#include <QStringListModel>
#include <QTimer>
#include <QToolButton>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <functional>
#include <utility>

#include "sim/replay.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

constexpr int kMostLines = 6;  // more changes scroll

// Tells when an item was dragged to another place.
class DraggedList : public QTreeWidget {
 public:
  DraggedList(std::function<void()> dragged, QWidget* parent)
      : QTreeWidget(parent), dragged_(std::move(dragged)) {}

 protected:
  void dropEvent(QDropEvent* event) override {
    {
      const QSignalBlocker quiet(this);
      QTreeWidget::dropEvent(event);
    }
    dragged_();
  }

 private:
  std::function<void()> dragged_;
};

}  // namespace

ChangeList::ChangeList(QWidget* parent) : QWidget(parent) {
  entry_ = new QLineEdit(this);
  entry_->setObjectName(QStringLiteral("new_change"));
  entry_->setPlaceholderText(QStringLiteral("Add a change: scale kind=recall 0.5"));
  entry_->setAccessibleName(QStringLiteral("New change"));
  entry_->setClearButtonEnabled(true);
  completions_ = new QStringListModel(this);
  completer_ = new QCompleter(completions_, this);
  completer_->setCompletionMode(QCompleter::UnfilteredPopupCompletion);
  completer_->setWidget(entry_);
  connect(entry_, &QLineEdit::textEdited, this, &ChangeList::Complete);
  connect(completer_, qOverload<const QString&>(&QCompleter::activated), this,
          [this](const QString& text) {
            entry_->setText(text);
            // The next part, once the list of this one has gone.
            QTimer::singleShot(0, this, [this, text] {
              if (entry_->text() == text) Complete(text);
            });
          });
  connect(entry_, &QLineEdit::returnPressed, this, [this] {
    const QString text = entry_->text().trimmed();
    if (!text.isEmpty()) Add(text.toStdString());
  });

  none_ = new QLabel(QStringLiteral("Nothing is changed. Write a change above, double-click an op "
                                    "below, or right-click an op or an area of the timeline."),
                     this);
  none_->setWordWrap(true);
  none_->setProperty("role", "muted");
  error_ = new QLabel(this);
  error_->setObjectName(QStringLiteral("change_error"));
  error_->setWordWrap(true);
  error_->setProperty("role", "error");
  error_->hide();

  list_ = new DraggedList([this] { Edited(); }, this);
  list_->setObjectName(QStringLiteral("changes"));
  list_->setAccessibleName(QStringLiteral("Changes"));
  list_->setHeaderLabels({QStringLiteral("change, in turn"), QStringLiteral("step")});
  list_->setRootIsDecorated(false);
  list_->setUniformRowHeights(true);
  list_->setDragDropMode(QAbstractItemView::InternalMove);
  list_->setEditTriggers(QAbstractItemView::DoubleClicked | QAbstractItemView::EditKeyPressed);
  list_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  list_->setContextMenuPolicy(Qt::ActionsContextMenu);
  list_->header()->setStretchLastSection(false);
  list_->header()->setSectionResizeMode(0, QHeaderView::Stretch);
  list_->header()->setSectionResizeMode(1, QHeaderView::ResizeToContents);
  connect(list_, &QTreeWidget::itemChanged, this, [this](QTreeWidgetItem* item, int column) {
    // An effect is no edit.
    if (column == 0 && item != nullptr) Edited();
  });

  buttons_ = new QWidget(this);
  auto* row = new QHBoxLayout(buttons_);
  row->setContentsMargins(0, 0, 0, 0);
  row->setSpacing(4);
  AddCommands();
  row->addStretch(1);

  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(4);
  column->addWidget(entry_);
  column->addWidget(error_);
  column->addWidget(none_);
  column->addWidget(list_);
  column->addWidget(buttons_);
  Fill();
}

void ChangeList::AddCommands() {
  const auto add = [this](const char* name, const QString& text, const QKeySequence& key,
                          const QString& tip, std::function<void()> run) {
    auto* action = new QAction(text, list_);
    action->setObjectName(QLatin1String(name));
    action->setShortcut(key);
    action->setShortcutContext(Qt::WidgetWithChildrenShortcut);
    action->setToolTip(QStringLiteral("%1 (%2)").arg(tip, key.toString(QKeySequence::NativeText)));
    connect(action, &QAction::triggered, this, std::move(run));
    list_->addAction(action);
    auto* button = new QToolButton(buttons_);
    button->setDefaultAction(action);
    buttons_->layout()->addWidget(button);
  };
  add("change_up", QStringLiteral("Up"), QKeySequence(Qt::ALT | Qt::Key_Up),
      QStringLiteral("Applies the change earlier"), [this] { Move(-1); });
  add("change_down", QStringLiteral("Down"), QKeySequence(Qt::ALT | Qt::Key_Down),
      QStringLiteral("Applies the change later"), [this] { Move(1); });
  add("change_delete", QStringLiteral("Delete"), QKeySequence(Qt::Key_Delete),
      QStringLiteral("Takes the change out of the list"), [this] { Remove(); });
}

void ChangeList::Complete(const QString& text) {
  const QStringList next = CompletionsOf(text, words_);
  completions_->setStringList(next);
  if (next.isEmpty()) {
    completer_->popup()->hide();
  } else {
    completer_->complete();
  }
}

void ChangeList::SetChanges(const Changes& changes) {
  ShowError({});
  if (std::exchange(changes_, changes) != changes) Fill();
}

void ChangeList::Fill() {
  const QSignalBlocker quiet(list_);
  const int current = list_->indexOfTopLevelItem(list_->currentItem());
  list_->clear();
  for (const ReplayRequest::Change& change : changes_) {
    auto* item = new QTreeWidgetItem(list_, {QString::fromStdString(change.text), QString()});
    item->setFlags(Qt::ItemIsEnabled | Qt::ItemIsSelectable | Qt::ItemIsUserCheckable |
                   Qt::ItemIsEditable | Qt::ItemIsDragEnabled);
    item->setCheckState(0, change.on ? Qt::Checked : Qt::Unchecked);
    item->setToolTip(0, item->text(0));
    item->setTextAlignment(1, Qt::AlignRight | Qt::AlignVCenter);
  }
  if (current >= 0 && !changes_.empty()) {
    list_->setCurrentItem(
        list_->topLevelItem(std::min(current, static_cast<int>(changes_.size()) - 1)));
  }
  none_->setVisible(changes_.empty());
  list_->setVisible(!changes_.empty());
  buttons_->setVisible(!changes_.empty());
  SetHeight();
}

void ChangeList::SetHeight() {
  const int lines = std::clamp(list_->topLevelItemCount(), 1, kMostLines);
  const int row = std::max(list_->sizeHintForRow(0), fontMetrics().height());
  list_->setFixedHeight(list_->header()->sizeHint().height() + lines * row +
                        2 * list_->frameWidth());
}

void ChangeList::SetEffects(const QStringList& effects, const QStringList& tips) {
  const QSignalBlocker quiet(list_);
  qsizetype next = 0;
  for (int i = 0; i < list_->topLevelItemCount(); ++i) {
    QTreeWidgetItem* item = list_->topLevelItem(i);
    const bool on = item->checkState(0) == Qt::Checked && next < effects.size();
    item->setText(1, on ? effects[next] : QStringLiteral("off"));
    item->setToolTip(1, on ? tips[next] : QString());
    if (on) ++next;
  }
  list_->viewport()->update();
}

ChangeList::Changes ChangeList::Shown() const {
  Changes changes;
  for (int i = 0; i < list_->topLevelItemCount(); ++i) {
    const QTreeWidgetItem* item = list_->topLevelItem(i);
    changes.push_back({item->text(0).trimmed().toStdString(), item->checkState(0) == Qt::Checked});
  }
  return changes;
}

// By the list: what was typed there, checked or moved.
void ChangeList::Edited() {
  const Changes after = Shown();
  if (changes_ == after) return;
  try {
    for (const ReplayRequest::Change& change : after) sim::ParseReplayChange(change.text);
  } catch (const Error& error) {
    // The editor that asks may still be open.
    const QString why = QString::fromStdString(error.problem() + "; " + error.remedy());
    QTimer::singleShot(0, this, [this, why] {
      Fill();
      ShowError(why);
    });
    return;
  }
  changes_ = after;
  QTimer::singleShot(0, this, [this, after] {
    if (changes_ == after) Q_EMIT Changed(after);
  });
}

void ChangeList::Add(const std::string& text) {
  Changes next = changes_;
  try {
    next.push_back({sim::ParseReplayChange(text).text});
  } catch (const Error& error) {
    ShowError(QString::fromStdString(error.problem() + "; " + error.remedy()));
    return;
  }
  entry_->clear();
  completer_->popup()->hide();
  SetChanges(next);
  Q_EMIT Changed(next);
}

void ChangeList::Move(int by) {
  const int from = list_->indexOfTopLevelItem(list_->currentItem());
  const int to = from + by;
  if (from < 0 || to < 0 || to >= static_cast<int>(changes_.size())) return;
  Changes next = changes_;
  std::swap(next[static_cast<size_t>(from)], next[static_cast<size_t>(to)]);
  SetChanges(next);
  list_->setCurrentItem(list_->topLevelItem(to));
  Q_EMIT Changed(next);
}

void ChangeList::Remove() {
  const int at = list_->indexOfTopLevelItem(list_->currentItem());
  if (at < 0) return;
  Changes next = changes_;
  next.erase(next.begin() + at);
  SetChanges(next);
  Q_EMIT Changed(next);
}

void ChangeList::ShowError(const QString& text) {
  error_->setText(text);
  error_->setVisible(!text.isEmpty());
}

void ChangeList::FocusEntry() {
  entry_->setFocus(Qt::ShortcutFocusReason);
  entry_->selectAll();
}

}  // namespace stallcast::gui
