// SPDX-License-Identifier: GPL-3.0-or-later
// Draws README's pictures of the window, by what ships: ./dev pictures.
#include <fmt/core.h>

#include <QApplication>
#include <QComboBox>
#include <QDockWidget>
#include <QLineEdit>
#include <QMouseEvent>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gui/app/commands.h"
#include "gui/app/main_window.h"
#include "gui/app/screenshot.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/whatif_panel.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

const QString kTraces = QStringLiteral(STALLCAST_SOURCE_DIR "/traces/");

// A window with these files open, predicted as asked.
class Picture {
 public:
  Picture(const QStringList& files, const sim::PredictRequest& request, Appearance appearance,
          QSize size) {
    Apply(appearance);
    window_.SetAppearance(appearance);
    window_.resize(size);
    window_.SetRequest(request);
    window_.show();
    QStringList paths;
    for (const QString& file : files) paths << kTraces + file;
    window_.Open(paths);
    WaitUntilIdle(window_);
    if (!window_.not_opened().isEmpty()) {
      throw Error("cannot be opened", window_.not_opened().first().toStdString(), "see why there");
    }
  }

  MainWindow& window() { return window_; }
  TimelineView& timeline() { return window_.timeline(); }

  template <class Widget>
  Widget& Find(const QWidget& parent, const char* name) {
    auto* widget = parent.findChild<Widget*>(QLatin1String(name));
    if (widget == nullptr) throw Error("has no such part", name, "name it as the window does");
    return *widget;
  }

  void Predict(const sim::PredictRequest& request) {
    window_.SetRequest(request);
    WaitUntilIdle(window_);
  }
  void Command(const QString& name) {
    QAction* const action = window_.commands().Find(name);
    if (action == nullptr) throw Error("is no command", name.toStdString(), "see commands.h");
    action->trigger();
    WaitUntilIdle(window_);
  }

  // Moves the mouse over the view until it is over the op.
  void HoverOver(OpRef op) {
    TimelineView& view = timeline();
    bool found = false;
    const auto connection = QObject::connect(
        &view, &TimelineView::OpHovered,
        [&](const std::optional<OpDetails>& over) { found = over && over->op.ref == op; });
    for (int y = 20; y < view.height() && !found; y += 8) {
      for (int x = view.width() / 4; x < view.width() && !found; x += 6) {
        const QPointF at(x, y);
        QMouseEvent move(QEvent::MouseMove, at, view.mapToGlobal(at), Qt::NoButton, Qt::NoButton,
                         Qt::NoModifier);
        QApplication::sendEvent(&view, &move);
      }
    }
    QObject::disconnect(connection);
    if (!found) throw Error("is not to be seen", "the op to hover over", "show its lane");
  }

  void Save(const QString& path) {
    TakeScreenshot(window_, path);
    fmt::print("{}\n", path.toStdString());
  }

 private:
  MainWindow window_;
};

sim::PredictRequest Llama(const char* method, int32_t steps) {
  sim::PredictRequest request;
  request.method = method;
  request.model = "llama-3.1-8b";
  request.steps = steps;
  return request;
}

// Of the ops of this name, one whose residual is as large as the median's.
OpRef UsualOp(const TimelinePair& pair, const std::string& name) {
  std::vector<std::pair<float, int64_t>> residuals;
  const TimelineModel& model = *pair.model(Side::kPredicted);
  for (int64_t row = 0; row < model.rows(); ++row) {
    const float residual = std::abs(pair.Residual({Side::kPredicted, row}));
    if (model.NameOf(row) == name && std::isfinite(residual)) residuals.emplace_back(residual, row);
  }
  if (residuals.empty()) throw Error("has no twin", name, "open a recording that has it");
  const auto middle = residuals.begin() + std::ssize(residuals) / 2;
  std::ranges::nth_element(residuals, middle);
  return {Side::kPredicted, middle->second};
}

// Two layers, one of whose gathers is under the mouse.
void DrawMeasured(const QString& path) {
  sim::PredictRequest request = Llama("prkv", 4);
  request.machine_overrides = {{"host.recorded", "1"}};
  request.repeat_heads = true;  // as the run's were
  Picture picture({QStringLiteral("../capture/results/traces/code-8k.kvt"),
                   QStringLiteral("measured/prkv.kvt")},
                  request, Appearance::kLight, {1600, 1000});
  TimelineView& view = picture.timeline();
  const OpRef op = UsualOp(*view.pair(), "host_gather");
  view.Select(op);
  const AxisRange now = view.visible();
  const Picoseconds middle = now.begin + (now.end - now.begin) / 2;
  view.ShowRange(
      {middle - std::chrono::microseconds(330), middle + std::chrono::microseconds(330)});
  picture.HoverOver(op);
  picture.Save(path);
}

// Zero-copy recall above the pages that it replaces, its controls found by a word.
void DrawWhatIf(const QString& path) {
  sim::PredictRequest request = Llama("freekv", 64);
  Picture picture({QStringLiteral("samples/qwen-32k.kvt")}, request, Appearance::kLight,
                  {1440, 900});
  picture.Command(QStringLiteral("pin_A"));
  request.params["recall"] = "zero-copy";
  picture.Predict(request);
  picture.Command(Name(Ghost::kPinA));
  picture.Find<QLineEdit>(picture.window().whatif(), "search").setText(QStringLiteral("recall"));
  TimelineView& view = picture.timeline();
  view.ShowStep(31);  // and of it three layers
  const Picoseconds begin = view.visible().begin + std::chrono::microseconds(2640);
  view.ShowRange({begin, begin + std::chrono::microseconds(610)});
  picture.Save(path);
}

void DrawSweep(const QString& path) {
  Picture picture({QStringLiteral("samples/qwen-32k.kvt")}, Llama("freekv", 64), Appearance::kDark,
                  {1440, 900});
  MainWindow& window = picture.window();
  window.ShowChart(ChartsPanel::Kind::kSweep);
  window.resizeDocks({&picture.Find<QDockWidget>(window, "charts")}, {560}, Qt::Vertical);
  const ChartsPanel& charts = window.charts();
  picture.Find<QComboBox>(charts, "axis").setCurrentText(QStringLiteral("link.h2d"));
  picture.Find<QComboBox>(charts, "which").setCurrentText(QStringLiteral("all methods"));
  picture.Save(path);
}

// An offloaded step whose write-back moves the new token alone, above the step as it was recorded.
void DrawRecording(const QString& path) {
  Picture picture({QStringLiteral("../tests/sim/recordings/offloaded-32768.kvt")}, {},
                  Appearance::kLight, {1440, 900});
  MainWindow& window = picture.window();
  for (const char* change : {"scale kind=offload 0.001", "scale kind=recall 0.25"}) {
    window.replay().AddChange(change);
    WaitUntilIdle(window);
  }
  picture.Save(path);
}

}  // namespace
}  // namespace stallcast::gui

// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  using namespace stallcast::gui;
  setenv("QT_QPA_PLATFORM", "offscreen", 0);
  setenv("QT_LOGGING_RULES", "qt.qpa.*=false;*.warning=false", 0);
  QApplication app(argc, argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: draw_screenshots FOLDER\n");
    return 2;
  }
  const QString folder = QString::fromLocal8Bit(argv[1]);
  try {
    DrawMeasured(folder + QStringLiteral("/measured.png"));
    DrawWhatIf(folder + QStringLiteral("/whatif.png"));
    DrawSweep(folder + QStringLiteral("/sweep-dark.png"));
    DrawRecording(folder + QStringLiteral("/recording.png"));
  } catch (const stallcast::Error& error) {
    fmt::print(stderr, "draw_screenshots: {}\n", error.what());
    return 1;
  }
  return 0;
}
