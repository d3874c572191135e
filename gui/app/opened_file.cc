// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/opened_file.h"

#include <QFileInfo>
#include <algorithm>

#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

struct Stopped {};

SharedFile Read(const QString& path, const std::function<void(double)>& progress) {
  traces::ImportOptions options;
  options.tensors = false;
  options.progress = progress;
  traces::ImportedTrace imported = traces::Import(path.toStdString(), options);
  auto file = std::make_shared<OpenedFile>();
  file->path = path;
  file->format = imported.format;
  file->info = std::move(imported.trace.info);
  file->report = std::move(imported.report);
  for (traces::Timeline& timeline : imported.trace.timelines) {
    if (timeline.title.empty()) timeline.title = QFileInfo(path).fileName().toStdString();
    file->timelines.push_back(TimelineModel::Build(std::move(timeline)));
  }
  for (traces::AccessLog& log : imported.trace.access_logs) {
    file->logs.push_back(std::make_shared<const traces::AccessLog>(std::move(log)));
  }
  return file;
}

}  // namespace

bool OpenedFile::replayable() const {
  const auto has = [&](traces::TensorKind kind, int layer) {
    return std::any_of(report.tensors.begin(), report.tensors.end(),
                       [&](const auto& spec) { return spec.kind == kind && spec.layer == layer; });
  };
  return std::any_of(report.tensors.begin(), report.tensors.end(), [&](const auto& spec) {
    return spec.kind == traces::TensorKind::kQuery && has(traces::TensorKind::kKey, spec.layer);
  });
}

FileOpener::FileOpener(QObject* parent) : QObject(parent) { pool_.setMaxThreadCount(1); }

FileOpener::~FileOpener() {
  stop_.request_stop();
  pool_.waitForDone();
}

void FileOpener::Post(const std::stop_token& stop, std::function<void()> deliver) {
  QMetaObject::invokeMethod(
      this,
      [stop, deliver = std::move(deliver)] {
        if (!stop.stop_requested()) deliver();
      },
      Qt::QueuedConnection);
}

void FileOpener::Open(const QString& path) {
  ++pending_;
  pool_.start([this, path, stop = stop_.get_token()] {
    const auto end = [this] {
      if (--pending_ == 0) Q_EMIT Idle();
    };
    const auto progress = [&](double share) {
      if (stop.stop_requested()) throw Stopped();
      Post(stop, [this, path, share] { Q_EMIT Progressed(path, share); });
    };
    try {
      progress(0);
      const SharedFile file = Read(path, progress);
      Post(stop, [this, file, end] {
        Q_EMIT Opened(file);
        end();
      });
    } catch (const Stopped&) {
    } catch (const std::exception& error) {
      const QString why = QString::fromStdString(error.what());
      Post(stop, [this, path, why, end] {
        Q_EMIT Failed(path, why);
        end();
      });
    }
  });
}

void FileOpener::Cancel() {
  stop_.request_stop();
  stop_ = {};
  if (std::exchange(pending_, 0) > 0) Q_EMIT Idle();
}

}  // namespace stallcast::gui
