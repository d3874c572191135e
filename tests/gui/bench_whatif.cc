// SPDX-License-Identifier: GPL-3.0-or-later
// From a moved slider to the redrawn timeline: 64 steps of 32 layers, cached access log, offscreen
// at 1920 x 1080. Prints P50 and P99 of each part.
//   bench_whatif [MOVES]
#include <fmt/format.h>

#include <QApplication>
#include <QSettings>
#include <QTemporaryDir>
#include <QTimer>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "gui/app/main_window.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/control_row.h"
#include "gui/whatif/whatif_panel.h"

namespace {

using namespace stallcast;
using namespace stallcast::gui;
using Clock = std::chrono::steady_clock;
using Ms = std::chrono::duration<double, std::milli>;

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

void Print(const char* what, const std::vector<double>& values) {
  fmt::print("{:<34} P50 {:6.1f} ms   P99 {:6.1f} ms\n", what, Quantile(values, 0.5),
             Quantile(values, 0.99));
}

// Sleeps between events, as the program does: the worker has the cores for itself.
bool WaitFor(const std::function<bool()>& done) {
  bool late = false;
  QTimer limit;
  limit.setSingleShot(true);
  QObject::connect(&limit, &QTimer::timeout, [&] { late = true; });
  limit.start(std::chrono::minutes(1));
  while (!done() && !late) QApplication::processEvents(QEventLoop::WaitForMoreEvents);
  return done();
}

}  // namespace

int main(int argc, char** argv) {
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication app(argc, argv);
  QTemporaryDir settings;
  QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, settings.path());
  const int moves = argc > 1 ? std::atoi(argv[1]) : 100;

  MainWindow window;
  window.SetAppearance(Appearance::kLight);
  window.resize(1920, 1080);
  window.show();
  window.OpenSample();
  if (!WaitFor([&] { return window.idle() && window.result(); })) {
    fmt::print(stderr, "the sample was not predicted\n");
    return 1;
  }
  qint64 frame = 0;
  std::shared_ptr<const TimelineModel> painted;  // of the last frame
  QObject::connect(&window.timeline(), &TimelineView::Painted, &window, [&](qint64 nanoseconds) {
    frame = nanoseconds;
    painted = window.timeline().pair()->model(Side::kPredicted);
  });

  for (const char* path : {"machine.link.h2d", "param.zero_copy_blocks", "machine.host.launch"}) {
    ControlRow* row = window.whatif().row(path);
    std::vector<double> total, predicted, frames;
    for (int i = 0; i < moves; ++i) {
      const SharedResult before = window.result();
      const double share = static_cast<double>(i % 17 + 1) / 18;
      const auto begin = Clock::now();
      Q_EMIT row->Changed(path, row->control().format(row->control().AtShare(share)));
      const auto drawn = [&] {
        return window.result() != before && painted == window.result()->model;
      };
      if (!WaitFor(drawn)) return 1;
      total.push_back(Ms(Clock::now() - begin).count());
      predicted.push_back(Ms(window.result()->took).count());
      frames.push_back(static_cast<double>(frame) * 1e-6);
    }
    fmt::print("{}: {} moves, {} rows on the timeline\n", path, moves,
               window.result()->model->rows());
    Print("  slider to redrawn timeline", total);
    Print("  of it predicted in the worker", predicted);
    Print("  of it the timeline's frame", frames);
  }
  return 0;
}
