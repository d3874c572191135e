// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/charts/chart_export.h"

#include <fmt/format.h>

#include <QBuffer>
#include <QFileInfo>
#include <QImage>
#include <QPageSize>
#include <QPainter>
#include <QPdfWriter>
#include <QSaveFile>
#include <QSvgGenerator>
#include <algorithm>

#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

constexpr double kPngScale = 2;
constexpr int kPointsPerInch = 72;

// A whole file or none.
void Write(const QString& path, const QByteArray& bytes) {
  QSaveFile file(path);
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size() || !file.commit()) {
    throw Error(fmt::format("cannot be written: {}", file.errorString().toStdString()),
                path.toStdString(), "choose another place");
  }
}

}  // namespace

QString ChartFileFilter() {
  return QStringLiteral("Image (*.png);;Vector drawing (*.svg);;Document (*.pdf);;Data (*.csv)");
}

void SaveChart(const Chart& chart, const QString& path, QSizeF size, const ChartTheme& theme,
               const QFont& font) {
  // A picture that leaves the window says itself what it is of.
  if (!chart.subject.isEmpty()) {
    size.setHeight(std::max<double>(size.height(), FullHeight(chart, font)));
  }
  const QString ending = QFileInfo(path).suffix().toLower();
  if (ending == QLatin1String("csv")) return Write(path, ToCsv(chart).toUtf8());

  const auto paint = [&](QPainter& painter) {
    Paint(painter, chart, LayOut(chart, size, font), theme, font);
  };
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  if (ending == QLatin1String("png")) {
    QImage image((size * kPngScale).toSize(), QImage::Format_RGB32);
    image.setDevicePixelRatio(kPngScale);
    {
      QPainter painter(&image);
      paint(painter);
    }
    image.save(&buffer, "PNG");
  } else if (ending == QLatin1String("svg")) {
    QSvgGenerator generator;
    generator.setOutputDevice(&buffer);
    generator.setSize(size.toSize());
    generator.setViewBox(QRectF(QPointF(0, 0), size));
    generator.setTitle(chart.title);
    QPainter painter(&generator);
    paint(painter);
  } else if (ending == QLatin1String("pdf")) {
    QPdfWriter writer(&buffer);
    writer.setTitle(chart.title);
    writer.setResolution(kPointsPerInch);
    writer.setPageSize(QPageSize(size, QPageSize::Point));
    writer.setPageMargins(QMarginsF());
    QPainter painter(&writer);
    paint(painter);
  } else {
    throw UsageError(fmt::format("unknown ending `{}`", ending.toStdString()), path.toStdString(),
                     "use .png, .svg, .pdf or .csv");
  }
  Write(path, buffer.data());
}

}  // namespace stallcast::gui
