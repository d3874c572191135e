// SPDX-License-Identifier: GPL-3.0-or-later
// The open files and what each holds, as a tree.
#pragma once

#include <QAbstractItemModel>
#include <vector>

#include "gui/app/opened_file.h"

namespace stallcast::gui {

class FilesModel : public QAbstractItemModel {
  Q_OBJECT

 public:
  enum class Kind : uint8_t { kFile, kTensors, kTimeline, kLog, kProblem };
  /// A row: which file, what of it.
  struct Item {
    Kind kind = Kind::kFile;
    size_t file = 0;
    size_t index = 0;  ///< among the file's timelines, logs or problems
  };

  explicit FilesModel(QObject* parent = nullptr);

  /// Returns its row; a file that is open already keeps its own.
  size_t Add(SharedFile file);
  void Clear();
  const std::vector<SharedFile>& files() const { return files_; }
  Item ItemAt(const QModelIndex& index) const;
  QModelIndex IndexOf(const Item& item) const;  ///< invalid: there is no such item
  /// Null: there is no such timeline or log.
  std::shared_ptr<const TimelineModel> Timeline(const Item& item) const;
  std::shared_ptr<const traces::AccessLog> Log(const Item& item) const;
  /// Marks what the window shows now, in bold.
  void SetShown(const std::vector<QModelIndex>& shown);

  QModelIndex index(int row, int column, const QModelIndex& parent = {}) const override;
  QModelIndex parent(const QModelIndex& child) const override;
  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

 private:
  static std::vector<Item> Children(const OpenedFile& file, size_t number);
  QString Text(const Item& item) const;
  QString ToolTip(const Item& item) const;

  std::vector<SharedFile> files_;
  QList<QPersistentModelIndex> shown_;
};

}  // namespace stallcast::gui
