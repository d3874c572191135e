// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/files_model.h"

#include <QFileInfo>
#include <QFont>
#include <QLocale>
#include <algorithm>
#include <set>

namespace stallcast::gui {
namespace {

QString From(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

QString Count(int64_t n) { return QLocale(QLocale::English).toString(static_cast<qlonglong>(n)); }

QString Layers(size_t n) {
  return n == 1 ? QStringLiteral("1 layer") : QStringLiteral("%1 layers").arg(n);
}

// The inner number of an index: 0 for files, else the file's number + 1.
constexpr quintptr kTop = 0;

}  // namespace

FilesModel::FilesModel(QObject* parent) : QAbstractItemModel(parent) {}

size_t FilesModel::Add(SharedFile file) {
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&](const SharedFile& f) { return f->path == file->path; });
  if (found != files_.end()) {
    // What it holds may be other rows now.
    beginResetModel();
    shown_.clear();
    *found = std::move(file);
    endResetModel();
    return static_cast<size_t>(found - files_.begin());
  }
  const auto row = static_cast<int>(files_.size());
  beginInsertRows({}, row, row);
  files_.push_back(std::move(file));
  endInsertRows();
  return static_cast<size_t>(row);
}

void FilesModel::Clear() {
  beginResetModel();
  shown_.clear();
  files_.clear();
  endResetModel();
}

std::vector<FilesModel::Item> FilesModel::Children(const OpenedFile& file, size_t number) {
  std::vector<Item> items;
  if (!file.report.tensors.empty()) items.push_back({Kind::kTensors, number, 0});
  for (size_t i = 0; i < file.timelines.size(); ++i) items.push_back({Kind::kTimeline, number, i});
  for (size_t i = 0; i < file.logs.size(); ++i) items.push_back({Kind::kLog, number, i});
  for (size_t i = 0; i < file.report.problems.size(); ++i) {
    items.push_back({Kind::kProblem, number, i});
  }
  return items;
}

FilesModel::Item FilesModel::ItemAt(const QModelIndex& index) const {
  if (index.internalId() == kTop) return {Kind::kFile, static_cast<size_t>(index.row()), 0};
  const size_t file = index.internalId() - 1;
  return Children(*files_[file], file)[static_cast<size_t>(index.row())];
}

QModelIndex FilesModel::IndexOf(const Item& item) const {
  if (item.file >= files_.size()) return {};
  const QModelIndex top = index(static_cast<int>(item.file), 0);
  if (item.kind == Kind::kFile) return top;
  const std::vector<Item> children = Children(*files_[item.file], item.file);
  const auto found = std::find_if(children.begin(), children.end(), [&](const Item& c) {
    return c.kind == item.kind && c.index == item.index;
  });
  if (found == children.end()) return {};
  return index(static_cast<int>(found - children.begin()), 0, top);
}

std::shared_ptr<const TimelineModel> FilesModel::Timeline(const Item& item) const {
  if (item.file >= files_.size() || item.index >= files_[item.file]->timelines.size()) return {};
  return files_[item.file]->timelines[item.index];
}

std::shared_ptr<const traces::AccessLog> FilesModel::Log(const Item& item) const {
  if (item.file >= files_.size() || item.index >= files_[item.file]->logs.size()) return {};
  return files_[item.file]->logs[item.index];
}

void FilesModel::SetShown(const std::vector<QModelIndex>& shown) {
  QList<QPersistentModelIndex> before = std::exchange(shown_, {});
  for (const QModelIndex& i : shown) {
    if (i.isValid()) shown_ << i;
  }
  for (const QList<QPersistentModelIndex>& list : {before, shown_}) {
    for (const QPersistentModelIndex& i : list) {
      if (i.isValid()) Q_EMIT dataChanged(i, i, {Qt::FontRole});
    }
  }
}

QModelIndex FilesModel::index(int row, int column, const QModelIndex& parent) const {
  if (!hasIndex(row, column, parent)) return {};
  return createIndex(row, column,
                     parent.isValid() ? static_cast<quintptr>(parent.row()) + 1 : kTop);
}

QModelIndex FilesModel::parent(const QModelIndex& child) const {
  if (!child.isValid() || child.internalId() == kTop) return {};
  return createIndex(static_cast<int>(child.internalId() - 1), 0, kTop);
}

int FilesModel::rowCount(const QModelIndex& parent) const {
  if (!parent.isValid()) return static_cast<int>(files_.size());
  if (parent.internalId() != kTop || parent.column() != 0) return 0;
  const auto file = static_cast<size_t>(parent.row());
  return static_cast<int>(Children(*files_[file], file).size());
}

int FilesModel::columnCount(const QModelIndex&) const { return 1; }

QString FilesModel::Text(const Item& item) const {
  const OpenedFile& file = *files_[item.file];
  switch (item.kind) {
    case Kind::kFile:
      return QFileInfo(file.path).fileName();
    case Kind::kTensors: {
      std::set<int> layers;
      for (const traces::TensorSpec& spec : file.report.tensors) layers.insert(spec.layer);
      return QStringLiteral("tensors: %1, %2, %3 + %4 tokens")
          .arg(From(file.info.model().name()), Layers(layers.size()))
          .arg(Count(file.info.prompt_tokens()), Count(file.info.decode_steps()));
    }
    case Kind::kTimeline: {
      const TimelineModel& model = *file.timelines[item.index];
      QString text = QStringLiteral("%1: %2 ops")
                         .arg(From(traces::Name(model.timeline().origin)), Count(model.rows()));
      if (!model.timeline().title.empty()) text += ", " + From(model.timeline().title);
      return text;
    }
    case Kind::kLog: {
      const traces::AccessLog& log = *file.logs[item.index];
      return QStringLiteral("access log: %1, %2, %3 steps")
          .arg(From(log.method), Layers(log.layers.size()))
          .arg(log.steps);
    }
    case Kind::kProblem:
      return From(file.report.problems[item.index]);
  }
  return {};
}

QString FilesModel::ToolTip(const Item& item) const {
  const OpenedFile& file = *files_[item.file];
  QStringList lines;
  switch (item.kind) {
    case Kind::kFile:
      lines << file.path << From(traces::Name(file.format));
      if (!file.info.provenance().empty()) lines << From(file.info.provenance());
      if (!file.info.machine().empty()) lines << From(file.info.machine());
      break;
    case Kind::kTensors:
      lines << (file.replayable() ? QStringLiteral("Enter: predict from it")
                                  : QStringLiteral("no layer has both queries and keys"));
      break;
    case Kind::kTimeline:
      lines << QStringLiteral("Enter: show it on the timeline");
      for (const std::string& note : file.timelines[item.index]->timeline().notes) {
        lines << From(note);
      }
      break;
    case Kind::kLog:
      lines << QStringLiteral("Enter: map its units");
      break;
    case Kind::kProblem:
      lines << Text(item);
      break;
  }
  return lines.join('\n');
}

QVariant FilesModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid()) return {};
  const Item item = ItemAt(index);
  switch (role) {
    case Qt::DisplayRole:
      return Text(item);
    case Qt::ToolTipRole:
      return ToolTip(item);
    case Qt::FontRole: {
      QFont font;
      font.setBold(shown_.contains(QPersistentModelIndex(index)));
      font.setItalic(item.kind == Kind::kProblem);
      return font;
    }
    default:
      return {};
  }
}

}  // namespace stallcast::gui
