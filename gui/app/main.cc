// SPDX-License-Identifier: GPL-3.0-or-later
// The program stallcast-gui.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <QApplication>
#include <QTimer>
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "gui/app/main_window.h"
#include "gui/app/screenshot.h"
#include "traces/common/error.h"

namespace {

using namespace stallcast;
using namespace stallcast::gui;

struct Options {
  std::vector<std::string> files;
  std::string screenshot;
  std::string size;
  std::string theme;
  std::string chart;
  double scale = 0;
};

// Of no text: an invalid one.
QSize ParseSize(const std::string& text) {
  if (text.empty()) return {};
  int width = 0, height = 0, used = 0;
  if (std::sscanf(text.c_str(), "%dx%d%n", &width, &height, &used) != 2 ||
      static_cast<size_t>(used) != text.size() || std::min(width, height) < 200 ||
      std::max(width, height) > 10'000) {
    throw UsageError("'" + text + "' is not a size", "--size", "write 1440x900, 200 to 10000 each");
  }
  return {width, height};
}

std::optional<ChartsPanel::Kind> ParseChart(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const auto kind = ChartsPanel::KindOf(QString::fromStdString(name));
  if (kind) return kind;
  QStringList names;
  for (const ChartsPanel::Kind k : ChartsPanel::Kinds()) names << ChartsPanel::Name(k);
  throw UsageError("there is no chart '" + name + "'", "--chart",
                   "choose one of " + names.join(", ").toStdString());
}

// What must be known before Qt begins.
void SetEnvironment(const Options& options) {
  if (!options.screenshot.empty()) {
    setenv("QT_QPA_PLATFORM", "offscreen", 0);
    setenv("QT_LOGGING_RULES", "qt.qpa.*=false;*.warning=false", 0);
  }
  if (options.scale > 0) setenv("QT_SCALE_FACTOR", fmt::format("{}", options.scale).c_str(), 1);
}

int Run(const Options& options, int argc, char** argv) {
  const bool picture = !options.screenshot.empty();  // the same for everybody
  const QSize size = ParseSize(options.size.empty() && picture ? "1440x900" : options.size);
  const auto chart = ParseChart(options.chart);
  SetEnvironment(options);
  QApplication app(argc, argv);
  QApplication::setApplicationName(QStringLiteral("stallcast-gui"));
  QApplication::setOrganizationName(QStringLiteral("stallcast"));
  QApplication::setApplicationVersion(QStringLiteral(STALLCAST_VERSION));

  const bool dark =
      options.theme.empty() ? IsDark(QApplication::palette()) : options.theme == "dark";
  const Appearance appearance = dark ? Appearance::kDark : Appearance::kLight;
  Apply(appearance);
  MainWindow window;
  window.SetAppearance(appearance);
  if (size.isValid()) window.resize(size);
  if (chart) window.ShowChart(*chart);
  if (size.isValid()) {
    window.show();
  } else {
    window.ShowAtFirstSize();
  }
  if (!picture) window.WelcomeNewcomer();
  if (!picture) window.RestoreLayout(/*with_size=*/!size.isValid(), options.theme.empty());
  if (options.files.empty()) {
    window.OpenSample();
  } else {
    QStringList files;
    for (const std::string& file : options.files) files << QString::fromStdString(file);
    window.Open(files);
  }
  if (!picture) return QApplication::exec();
  TakeScreenshot(window, QString::fromStdString(options.screenshot));
  for (const QString& why : window.not_opened()) {
    fmt::print(stderr, "stallcast-gui: {}\n", why.toStdString());
  }
  return window.not_opened().isEmpty() ? 0 : 1;
}

}  // namespace

// What is said last may itself not be said, where standard error is gone.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  CLI::App cli("Predicted and measured timelines of LLM decode steps", "stallcast-gui");
  Options options;
  cli.set_version_flag("--version", STALLCAST_VERSION);
  cli.add_option("files", options.files,
                 "Traces (.kvt), timelines of other programs, sessions; none: the shipped sample");
  cli.add_option("--screenshot", options.screenshot,
                 "Draw the window into this PNG and end, without a screen")
      ->type_name("PNG");
  cli.add_option("--size", options.size, "Size of the window, as 1440x900 (default: the last)")
      ->type_name("WxH");
  cli.add_option("--scale", options.scale, "Scale of everything, as 2")
      ->type_name("FACTOR")
      ->check(CLI::Range(0.5, 4.0));
  cli.add_option("--theme", options.theme,
                 "light or dark (default: the last chosen, or the desktop's)")
      ->check(CLI::IsMember({"light", "dark"}));
  cli.add_option("--chart", options.chart, "Chart to begin with")->type_name("NAME");
  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli.exit(error) == 0 ? 0 : 2;
  }
  try {
    return Run(options, argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "stallcast-gui: {}\n", error.what());
    return error.usage() ? 2 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "stallcast-gui: {}\n", error.what());
    return 1;
  }
}
