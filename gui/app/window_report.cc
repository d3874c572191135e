// SPDX-License-Identifier: GPL-3.0-or-later
// What is on the screen as one HTML file that needs no other.
#include <QBuffer>
#include <QDateTime>
#include <QFileDialog>
#include <QFileInfo>
#include <QJsonArray>
#include <QLabel>
#include <QPainter>
#include <QPixmap>
#include <QSaveFile>
#include <QStatusBar>

#include "gui/app/caveat_banner.h"
#include "gui/app/main_window.h"
#include "gui/charts/chart_geometry.h"
#include "gui/charts/chart_painter.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/summary_card.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

constexpr QSize kChartSize(960, 420);
constexpr qreal kSharp = 2;

QString Quoted(const QString& text) {
  static const QString kPlain = QStringLiteral("-_./=+,:@%");
  const bool plain = !text.isEmpty() && std::all_of(text.begin(), text.end(), [](QChar c) {
    return (c.unicode() < 128 && c.isLetterOrNumber()) || kPlain.contains(c);
  });
  if (plain) return text;
  QString quoted = text;
  return '\'' + quoted.replace('\'', QStringLiteral("'\\''")) + '\'';
}

// What gives the same prediction.
QString CommandLine(const PredictionResult& result) {
  const sim::PredictRequest& request = result.request;
  QStringList words{QStringLiteral("stallcast"), QStringLiteral("predict"), result.trace};
  const auto add = [&](const char* option, const QString& value) {
    words << QLatin1String(option) << value;
  };
  add("--method", QString::fromStdString(request.method));
  if (!request.model.empty()) add("--model", QString::fromStdString(request.model));
  add("--machine", QString::fromStdString(request.machine));
  if (request.batch != 1) add("--batch", QString::number(request.batch));
  if (request.context != 0) add("--context", QString::number(request.context));
  if (request.steps != 0) add("--steps", QString::number(request.steps));
  if (request.tensor_parallel != 1) add("--tp", QString::number(request.tensor_parallel));
  for (const auto& [name, value] : request.model_options) {
    words << QString::fromStdString("--" + name) << QString::fromStdString(value);
  }
  if (request.repeat_heads) words << QStringLiteral("--repeat-heads");
  if (request.host) add("--host", QString::fromLatin1(plan::Name(*request.host).data()));
  if (request.as_run) words << QStringLiteral("--as-run");
  for (const auto& [name, value] : request.params) {
    add("-p", QString::fromStdString(name + "=" + value));
  }
  for (const auto& [path, value] : request.machine_overrides) {
    add("--set", QString::fromStdString(path + "=" + value));
  }
  for (QString& word : words) word = Quoted(word);
  return words.join(' ');
}

QString CommandLine(const ReplayRequest& request, const QString& recording) {
  QStringList words{QStringLiteral("stallcast"), QStringLiteral("replay"), recording};
  for (const auto& [name, value] : request.settings) {
    words << QStringLiteral("--set") << QString::fromStdString(name + "=" + value);
  }
  for (const ReplayRequest::Change& change : request.changes) {
    if (change.on) words << QStringLiteral("--change") << QString::fromStdString(change.text);
  }
  for (QString& word : words) word = Quoted(word);
  return words.join(' ');
}

QString Image(const QImage& image, const QString& what) {
  QBuffer buffer;
  buffer.open(QIODevice::WriteOnly);
  image.save(&buffer, "PNG");
  return QStringLiteral("<img alt=\"%1\" src=\"data:image/png;base64,%2\">\n")
      .arg(what.toHtmlEscaped(), QString::fromLatin1(buffer.data().toBase64()));
}

QString ChartImage(const Chart& chart, const QWidget& like) {
  QImage image(kChartSize * kSharp, QImage::Format_RGB32);
  image.setDevicePixelRatio(kSharp);
  QPainter painter(&image);
  Paint(painter, chart, LayOut(chart, kChartSize, like.font()), ChartTheme::From(like.palette()),
        like.font());
  painter.end();
  return Image(image, chart.title);
}

QString Heading(const char* text) {
  return QStringLiteral("<h2>%1</h2>\n").arg(QLatin1String(text));
}

constexpr auto kHead =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%1</title>\n<style>"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;"
    "color:#1b1f24;background:#fff}img{max-width:100%;border:1px solid #d3d7dd}"
    "table{border-collapse:collapse}td,th{padding:2px 10px;border-bottom:1px solid #d3d7dd;"
    "text-align:right}td:first-child,th:first-child{text-align:left}"
    "pre{background:#f3f4f6;padding:8px;white-space:pre-wrap}h1{font-size:1.6em}"
    "h2{font-size:1.2em;margin-top:1.6em}</style></head><body>\n";

}  // namespace

void MainWindow::SaveReportTo(const QString& path) {
  const auto pair = timeline_->pair();
  if (!pair && !result_) {
    throw Error("there is nothing to report", path.toStdString(), "open or predict a timeline");
  }
  const QString title = windowTitle();
  QString html = QString(QLatin1String(kHead)).arg(title.toHtmlEscaped());
  html += QStringLiteral("<h1>%1</h1>\n<p>Stallcast, %2</p>\n")
              .arg(title.toHtmlEscaped(),
                   QDateTime::currentDateTime().toString(QStringLiteral("yyyy-MM-dd hh:mm")));
  html += Heading("Result");
  html += QStringLiteral("<p>%1</p>\n").arg(summary_->text().toHtmlEscaped());
  if (result_ && !predicted_) {
    html += Heading("How to get the same");
    html += QStringLiteral("<pre>%1</pre>\n").arg(CommandLine(*result_).toHtmlEscaped());
  }
  if (replayed_) {
    html += Heading("How to get the same");
    html += QStringLiteral("<pre>%1</pre>\n")
                .arg(CommandLine(replayed_->request, files_->files()[measured_->file]->path)
                         .toHtmlEscaped());
  }
  html += Heading("Files");
  html += QStringLiteral("<ul>");
  for (const SharedFile& file : files_->files()) {
    html += QStringLiteral("<li>%1</li>").arg(file->path.toHtmlEscaped());
  }
  html += QStringLiteral("</ul>\n");
  html += Heading("Caveats");
  html += QStringLiteral("<ul>");
  for (const Caveat& caveat : caveats_->caveats()) {
    for (const QString& line : caveat.lines) {
      html += QStringLiteral("<li>%1</li>").arg(line.toHtmlEscaped());
    }
  }
  html += QStringLiteral("</ul>\n");
  if (pair) {
    html += Heading("Timeline");
    html += Image(timeline_->grab().toImage(), QStringLiteral("Timeline"));
    const QJsonArray notes = timeline_->SaveState()["notes"].toArray();
    if (!notes.isEmpty()) html += QStringLiteral("<ul>");
    for (const auto& note : notes) {
      const QJsonObject json = note.toObject();
      html += QStringLiteral("<li>step %1, %2 µs: %3</li>")
                  .arg(json["step"].toInt())
                  .arg(json["offset_ps"].toString().toDouble() / 1e6, 0, 'f', 1)
                  .arg(json["text"].toString().toHtmlEscaped());
    }
    if (!notes.isEmpty()) html += QStringLiteral("</ul>\n");
  }
  html += Heading("Charts");
  for (const ChartsPanel::Kind kind : ChartsPanel::Kinds()) {
    const Chart chart = charts_->ChartOf(kind);
    if (chart.HasData()) html += ChartImage(chart, *charts_);
  }
  html += Heading("Figures");
  html += comparison_->ToHtml();
  html += QStringLiteral("</body></html>\n");

  QSaveFile file(path);
  const QByteArray bytes = html.toUtf8();
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size() || !file.commit()) {
    throw Error("cannot be written: " + file.errorString().toStdString(), path.toStdString(),
                "choose another place");
  }
}

void MainWindow::AskForReportName() {
  const QString path =
      QFileDialog::getSaveFileName(this, QStringLiteral("Save Report"),
                                   QStringLiteral("report.html"), QStringLiteral("HTML (*.html)"));
  if (path.isEmpty()) return;
  try {
    SaveReportTo(path);
    statusBar()->showMessage(QStringLiteral("Report written to %1").arg(path), 8000);
  } catch (const Error& error) {
    Tell(error);
  }
}

}  // namespace stallcast::gui
