// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/screenshot.h"

#include <QApplication>
#include <QDeadlineTimer>
#include <QPixmap>
#include <QThread>

#include "gui/app/main_window.h"
#include "traces/common/error.h"

namespace stallcast::gui {

void TakeScreenshot(MainWindow& window, const QString& path, int most_seconds) {
  const QDeadlineTimer end(qint64{most_seconds} * 1000);
  bool swept = false;
  do {
    QApplication::processEvents(QEventLoop::AllEvents, 20);
    if (window.idle() && !swept && window.charts().wants_sweep()) {
      window.charts().RunSweep();
      swept = true;
    }
    QThread::msleep(2);
  } while (!window.idle() && !end.hasExpired());
  if (!window.idle()) {
    throw Error("the window is still busy", path.toStdString(), "open fewer or smaller files");
  }
  // What was scheduled on the way: layouts, repaints.
  for (int i = 0; i < 10; ++i) QApplication::processEvents(QEventLoop::AllEvents, 10);
  if (!window.grab().save(path, "PNG")) {
    throw Error("cannot write the picture", path.toStdString(), "choose another place");
  }
}

}  // namespace stallcast::gui
