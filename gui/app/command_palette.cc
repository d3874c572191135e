// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/command_palette.h"

#include <QKeyEvent>
#include <QLineEdit>
#include <QListView>
#include <QTimer>
#include <QVBoxLayout>
#include <algorithm>

namespace stallcast::gui {
namespace {

QString Plain(const QAction& action) { return action.text().remove('&'); }

QString Title(const Commands::Entry& entry) {
  return QStringLiteral("%1: %2").arg(entry.menu, Plain(*entry.action));
}

}  // namespace

std::optional<int> FuzzyScore(const QString& words, const QString& text) {
  int score = 0;
  qsizetype at = 0;
  bool run = false;
  for (const QChar letter : words) {
    if (letter.isSpace()) {
      run = false;
      continue;
    }
    const qsizetype next = text.indexOf(letter, at, Qt::CaseInsensitive);
    if (next < 0) return std::nullopt;
    const bool begins = next == 0 || !text[next - 1].isLetterOrNumber();
    score += begins ? 8 : run && next == at ? 4 : 1;
    run = true;
    at = next + 1;
  }
  return score;
}

CommandModel::CommandModel(const Commands& commands, QObject* parent)
    : QAbstractListModel(parent), commands_(commands) {
  SetWords({});
}

void CommandModel::SetWords(const QString& words) {
  beginResetModel();
  QList<std::pair<int, Commands::Entry>> scored;
  for (const Commands::Entry& entry : commands_.entries()) {
    if (!entry.action) continue;
    if (const auto score = FuzzyScore(words, Title(entry))) scored.append({*score, entry});
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  shown_.clear();
  for (const auto& [score, entry] : scored) shown_.append(entry);
  endResetModel();
}

QAction* CommandModel::ActionAt(int row) const {
  return row >= 0 && row < shown_.size() ? shown_[row].action : nullptr;
}

int CommandModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(shown_.size());
}

QVariant CommandModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid()) return {};
  const Commands::Entry& entry = shown_[index.row()];
  switch (role) {
    case Qt::DisplayRole: {
      const QString keys = entry.action->shortcut().toString(QKeySequence::NativeText);
      return keys.isEmpty() ? Title(entry) : QStringLiteral("%1   [%2]").arg(Title(entry), keys);
    }
    case Qt::ToolTipRole:
      return entry.action->statusTip();
    default:
      return {};
  }
}

Qt::ItemFlags CommandModel::flags(const QModelIndex& index) const {
  const Qt::ItemFlags flags = QAbstractListModel::flags(index);
  const QAction* action = ActionAt(index.row());
  return action && !action->isEnabled() ? flags & ~Qt::ItemIsEnabled : flags;
}

CommandPalette::CommandPalette(const Commands& commands, QWidget* parent) : QDialog(parent) {
  setWindowTitle(QStringLiteral("Commands"));
  setObjectName(QStringLiteral("palette"));
  words_ = new QLineEdit(this);
  words_->setPlaceholderText(QStringLiteral("Type a few letters of a command"));
  words_->installEventFilter(this);
  model_ = new CommandModel(commands, this);
  list_ = new QListView(this);
  list_->setModel(model_);
  list_->setUniformItemSizes(true);
  list_->setFocusPolicy(Qt::NoFocus);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 6, 6, 6);
  column->addWidget(words_);
  column->addWidget(list_, 1);
  connect(words_, &QLineEdit::textChanged, this, [this](const QString& words) {
    model_->SetWords(words);
    list_->setCurrentIndex(model_->index(0));
  });
  connect(words_, &QLineEdit::returnPressed, this, &CommandPalette::Run);
  connect(list_, &QListView::clicked, this, &CommandPalette::Run);
}

QSize CommandPalette::sizeHint() const { return {520, 380}; }

void CommandPalette::showEvent(QShowEvent* event) {
  QDialog::showEvent(event);
  words_->clear();
  model_->SetWords({});
  list_->setCurrentIndex(model_->index(0));
  words_->setFocus();
}

bool CommandPalette::eventFilter(QObject* watched, QEvent* event) {
  if (watched == words_ && event->type() == QEvent::KeyPress) {
    const auto* key = static_cast<QKeyEvent*>(event);
    const int page = std::max(1, list_->height() / std::max(1, list_->sizeHintForRow(0)) - 1);
    const int step = key->key() == Qt::Key_Down       ? 1
                     : key->key() == Qt::Key_Up       ? -1
                     : key->key() == Qt::Key_PageDown ? page
                     : key->key() == Qt::Key_PageUp   ? -page
                                                      : 0;
    if (step != 0 && model_->rowCount() > 0) {
      const int row = std::clamp(list_->currentIndex().row() + step, 0, model_->rowCount() - 1);
      list_->setCurrentIndex(model_->index(row));
      return true;
    }
  }
  return QDialog::eventFilter(watched, event);
}

void CommandPalette::Run() {
  QAction* action = model_->ActionAt(list_->currentIndex().row());
  if (!action || !action->isEnabled()) return;
  accept();
  // After the palette is gone: the command may open a dialog of its own.
  QTimer::singleShot(0, action, &QAction::trigger);
}

}  // namespace stallcast::gui
