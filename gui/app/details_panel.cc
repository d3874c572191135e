// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/details_panel.h"

#include <QLabel>
#include <algorithm>

#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

QString From(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

// A name may be a signature of any length: lines may break inside it.
QString Breakable(const QString& name) {
  QString text = name.toHtmlEscaped();
  for (const char* mark : {"_", "::", ",", "("}) {
    text.replace(QLatin1String(mark), QLatin1String(mark) + QChar(0x200b));
  }
  return text;
}

// Rows of a table: what, then a column a side.
class Table {
 public:
  void Add(const QString& what, const QStringList& cells) {
    rows_ += QStringLiteral("<tr><td>%1&nbsp;&nbsp;</td>").arg(what);
    for (QString cell : cells) {
      // A number stays with its unit.
      rows_ +=
          QStringLiteral("<td align='right'>&nbsp;%1</td>").arg(cell.replace(' ', QChar::Nbsp));
    }
    rows_ += QStringLiteral("</tr>");
  }
  QString Html() const {
    return QStringLiteral("<table cellspacing='0' cellpadding='1'>%1</table>").arg(rows_);
  }

 private:
  QString rows_;
};

QString SideName(Side side) {
  return side == Side::kPredicted ? QStringLiteral("predicted") : QStringLiteral("measured");
}

QString OpHtml(const OpDetails& details) {
  const OpFacts& op = details.op;
  std::vector<const OpFacts*> sides = {&op};
  if (details.twin) sides.push_back(&*details.twin);
  std::sort(sides.begin(), sides.end(),
            [](const OpFacts* a, const OpFacts* b) { return a->ref.side < b->ref.side; });
  const auto cells = [&](auto text) {
    QStringList all;
    for (const OpFacts* side : sides) all << text(*side);
    return all;
  };
  Table table;
  table.Add({}, cells([](const OpFacts& f) { return "<b>" + SideName(f.ref.side) + "</b>"; }));
  table.Add("duration", cells([](const OpFacts& f) { return TimeText(f.duration); }));
  table.Add("start in step", cells([](const OpFacts& f) { return TimeText(f.start_in_step); }));
  table.Add("wait before", cells([](const OpFacts& f) { return TimeText(f.idle_before); }));
  if (op.bytes > 0 || (details.twin && details.twin->bytes > 0)) {
    table.Add("bytes", cells([](const OpFacts& f) {
                return f.planned_bytes ? QStringLiteral("as planned") : BytesText(f.bytes);
              }));
    table.Add("rate", cells([](const OpFacts& f) { return RateText(f.rate()); }));
  }
  table.Add("lane", cells([](const OpFacts& f) { return From(f.lane).toHtmlEscaped(); }));
  QStringList facts{From(traces::Name(op.role))};
  if (op.step >= 0) facts << QStringLiteral("step %1").arg(op.step);
  if (op.layer >= 0) facts << QStringLiteral("layer %1").arg(op.layer);
  if (op.op >= 0) facts << QStringLiteral("op %1").arg(op.op);
  if (op.rows > 1) facts << QStringLiteral("%1 rows").arg(op.rows);
  QString html =
      QStringLiteral("<p><b>%1</b><br>%2</p>%3")
          .arg(Breakable(ShortName(op.name)), facts.join(QStringLiteral(" · ")), table.Html());
  if (details.residual) {
    html += QStringLiteral("<p>residual <b>%1</b>, %2 of measured</p>")
                .arg(SignedTimeText(*details.residual), SignedShareText(details.relative_residual));
  }
  for (const OpFacts* side : sides) {
    if (side->waits.empty()) continue;
    QStringList waits;
    for (const std::string& wait : side->waits) waits << Breakable(ShortName(wait));
    html += QStringLiteral("<p>waited (%1) for %2</p>")
                .arg(SideName(side->ref.side), waits.join(QStringLiteral(", ")));
  }
  for (const OpFacts* side : sides) {
    if (ShortName(side->name) == From(side->name)) continue;
    html +=
        QStringLiteral("<p>%1: %2</p>").arg(SideName(side->ref.side), Breakable(From(side->name)));
  }
  return html;
}

// Zeros would hide what is there.
template <class Quantity, class Words>
QString OrNothing(Quantity quantity, Words&& words) {
  return quantity == Quantity{} ? QString() : words(quantity);
}

QString AreaHtml(const AreaSums& area) {
  QString html = QStringLiteral("<p><b>Area</b> of %1</p>").arg(TimeText(area.range.length()));
  const auto add = [&](const char* name, const std::optional<AreaSums::Roles>& roles) {
    if (!roles) return;
    Table table;
    table.Add(QStringLiteral("<b>%1</b>").arg(QLatin1String(name)),
              {QStringLiteral("busy"), QStringLiteral("exposed"), QStringLiteral("bytes"),
               QStringLiteral("ops")});
    for (int r = 0; r < traces::kRoles; ++r) {
      const AreaSums::Role& role = (*roles)[static_cast<size_t>(r)];
      if (role.ops == 0 && role.exposed.count() == 0) continue;
      table.Add(From(traces::Name(static_cast<traces::Role>(r))),
                {OrNothing(role.busy, TimeText), OrNothing(role.exposed, TimeText),
                 OrNothing(role.bytes, BytesText), CountText(role.ops)});
    }
    html += table.Html() + QStringLiteral("<br>");
  };
  add("predicted", area.predicted);
  add("measured", area.measured);
  return html;
}

}  // namespace

DetailsPanel::DetailsPanel(QWidget* parent) : QScrollArea(parent) {
  text_ = new QLabel(this);
  text_->setTextFormat(Qt::RichText);
  text_->setWordWrap(true);
  text_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
  text_->setMargin(8);
  text_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  setWidget(text_);
  setWidgetResizable(true);
  setFrameShape(QFrame::NoFrame);
  Tell();
}

void DetailsPanel::Select(const std::optional<OpDetails>& op) {
  selected_ = op;
  Tell();
}

void DetailsPanel::Hover(const std::optional<OpDetails>& op) {
  hovered_ = op;
  Tell();
}

void DetailsPanel::SelectArea(const std::optional<AreaSums>& area) {
  area_ = area;
  Tell();
}

QString DetailsPanel::text() const { return text_->text(); }

void DetailsPanel::Tell() {
  if (hovered_) {
    text_->setText(OpHtml(*hovered_));
  } else if (area_) {
    text_->setText(AreaHtml(*area_));
  } else if (selected_) {
    text_->setText(OpHtml(*selected_));
  } else {
    text_->setText(QStringLiteral(
        "<p>Point at an op to see what it is; click to keep it; drag over an area for its sums by "
        "role.</p>"));
  }
}

}  // namespace stallcast::gui
