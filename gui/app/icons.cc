// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/icons.h"

#include <QPainter>
#include <QPixmap>
#include <QSvgRenderer>

namespace stallcast::gui {
namespace {

// Strokes in a square of 24, as SVG paths.
struct Drawing {
  const char* command;
  const char* path;
};
constexpr Drawing kDrawings[] = {
    {"open", "M3 19V5h6l2 3h10v11z"},
    {"undo_view", "M9 5L4 10l5 5M4 10h10a5 5 0 0 1 0 10h-4"},
    {"redo_view", "M15 5l5 5-5 5M20 10H10a5 5 0 0 0 0 10h4"},
    {"show_all", "M3 4v16M21 4v16M6 12h12M9 9l-3 3 3 3M15 9l3 3-3 3"},
    {"previous_step", "M15 5l-7 7 7 7"},
    {"next_step", "M9 5l7 7-7 7"},
    {"search", "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13M15.5 15.5L21 21"},
    {"toggle_color", "M4 20V11h4v9zM10 20V4h4v16zM16 20v-6h4v6z"},
    {"toggle_waits", "M3 18c8 0 6-12 16-12M14 2l5 4-5 4"},
    {"add_note", "M6 21V4h12l-3 4 3 4H6"},
    {"pin_A", "M9 3h6l-1 7 4 4H6l4-4zM12 14v7"},
    {"what_helps", "M4 4v16M4 6h14v3H4zM4 11h9v3H4zM4 16h5v3H4z"},
    {"run_sweep", "M7 4l12 8-12 8z"},
    {"save_report", "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6"},
    {"commands", "M4 6h16M4 12h16M4 18h16"},
};

}  // namespace

QIcon IconOf(const QString& command, const QColor& color) {
  QIcon icon;
  for (const Drawing& drawing : kDrawings) {
    if (command != QLatin1String(drawing.command)) continue;
    const QByteArray svg =
        QStringLiteral(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'><path d='%1' fill='none' "
            "stroke='%2' stroke-width='1.8' stroke-linejoin='round' stroke-linecap='round'/></svg>")
            .arg(QLatin1String(drawing.path), color.name())
            .toUtf8();
    QSvgRenderer renderer(svg);
    for (const int size : {18, 36, 54}) {
      QPixmap pixmap(size, size);
      pixmap.fill(Qt::transparent);
      QPainter painter(&pixmap);
      renderer.render(&painter);
      icon.addPixmap(pixmap);
    }
  }
  return icon;
}

}  // namespace stallcast::gui
