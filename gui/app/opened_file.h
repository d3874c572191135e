// SPDX-License-Identifier: GPL-3.0-or-later
// A file as the window holds it, and the worker that reads it.
#pragma once

#include <QObject>
#include <QString>
#include <QThreadPool>
#include <memory>
#include <stop_token>
#include <vector>

#include "gui/timeline/timeline_model.h"
#include "traces/convert/import.h"

namespace stallcast::gui {

/// What could be read of it. Tensors stay in the file: predictions read them when they replay.
struct OpenedFile {
  QString path;
  traces::FileFormat format = traces::FileFormat::kTrace;
  traces::proto::TraceInfo info;
  traces::ReadReport report;
  std::vector<std::shared_ptr<const TimelineModel>> timelines;
  std::vector<std::shared_ptr<const traces::AccessLog>> logs;

  /// Whether predictions can start from it: queries and keys of some layer.
  bool replayable() const;
};
using SharedFile = std::shared_ptr<const OpenedFile>;

/// Reads files one after another beside the window. Signals come in the thread of this object.
class FileOpener : public QObject {
  Q_OBJECT

 public:
  explicit FileOpener(QObject* parent = nullptr);
  /// Stops what is under way and waits for it.
  ~FileOpener() override;

  void Open(const QString& path);
  /// Gives up everything that is not read yet.
  void Cancel();
  bool busy() const { return pending_ > 0; }

 Q_SIGNALS:
  void Opened(stallcast::gui::SharedFile file);
  void Failed(const QString& path, const QString& why);
  void Progressed(const QString& path, double share);
  void Idle();

 private:
  void Post(const std::stop_token& stop, std::function<void()> deliver);

  QThreadPool pool_;
  std::stop_source stop_;
  int pending_ = 0;
};

}  // namespace stallcast::gui
