// SPDX-License-Identifier: GPL-3.0-or-later
// What is on the screen, as a file.
#pragma once

#include <QByteArray>
#include <QJsonObject>
#include <QString>
#include <QStringList>
#include <array>
#include <optional>

#include "gui/whatif/comparison_model.h"
#include "gui/whatif/replay_request.h"
#include "sim/predict.h"

namespace stallcast::gui {

struct Session {
  QStringList files;  ///< absolute
  QString trace;      ///< of these, predicted from; empty: none
  /// A timeline of a file: number of the file, of the timeline.
  struct Place {
    int file = 0, timeline = 0;
    bool operator==(const Place&) const = default;
  };
  std::optional<Place> predicted, measured;  ///< none: the live prediction; nothing
  sim::PredictRequest request;
  ReplayRequest replay;  ///< changes to the recording, where it stands alone
  struct Pinned {
    sim::PredictRequest request;
    QString trace;  ///< of the files
  };
  std::array<std::optional<Pinned>, kPins> pins;
  QString ghost;  ///< what the ghost shows: a name of the window's
  QString chart;
  QString appearance;
  QJsonObject timeline;  ///< TimelineView::SaveState()
  QByteArray docks;      ///< QMainWindow::saveState()
  QByteArray geometry;   ///< QWidget::saveGeometry()
};

/// Ending of session files, without the dot.
inline constexpr auto kSessionEnding = "stallcast";

/// Writes the file whole or not at all; files below its folder by relative path, so that they move
/// together. Throws Error.
void SaveSession(const Session& session, const QString& path);
/// Throws Error for a file that cannot be read, is no session, or says what makes no sense.
Session LoadSession(const QString& path);

}  // namespace stallcast::gui
