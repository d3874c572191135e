// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/replay_panel.h"

#include <fmt/format.h>

#include <QHeaderView>
#include <QLabel>
#include <QScrollArea>
#include <QTreeWidget>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/timeline/words.h"
#include "gui/whatif/control_row.h"
#include "traces/common/error.h"
#include "traces/common/factor.h"

namespace stallcast::gui {
namespace {

constexpr double kReach = 16;  // a slider goes so many times below and above what was recorded

QString From(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

QString Ms(Picoseconds time) { return QString::number(Milliseconds(time), 'f', 2); }

double FactorOf(const std::string& text) {
  const std::string factor = text.ends_with('x') ? text : text + 'x';
  const auto value = ParseFactor(factor);
  if (!value) throw UsageError(fmt::format("'{}' is no factor", text), "setting", "give 2x or 0.5");
  return *value;
}

std::string FactorText(double value) { return fmt::format("{:.4g}x", value); }

Control SettingControl(std::string_view name, std::string_view help) {
  Control control{.path = std::string(name),
                  .label = From(fmt::format("{} ({})", help, name)),
                  .help = QStringLiteral("As a factor on what was recorded"),
                  .default_value = QStringLiteral("1x")};
  control.parse = FactorOf;
  control.format = FactorText;
  control.low = 1 / kReach;
  control.high = kReach;
  control.logarithmic = true;
  return control;
}

QLabel* Heading(const QString& text, const QString& tip, QWidget* parent) {
  auto* label = new QLabel(text, parent);
  label->setProperty("role", "heading");
  label->setIndent(0);
  label->setToolTip(tip);
  return label;
}

// A table as high as its rows, whose first column takes the room that numbers leave.
QTreeWidget* Table(const char* name, const QStringList& header, int numbers_from, QWidget* parent) {
  auto* table = new QTreeWidget(parent);
  table->setObjectName(QLatin1String(name));
  table->setHeaderLabels(header);
  table->setRootIsDecorated(false);
  table->setUniformRowHeights(true);
  table->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  table->setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  table->header()->setStretchLastSection(false);
  table->header()->setMinimumSectionSize(1);
  table->header()->setSectionResizeMode(QHeaderView::ResizeToContents);
  table->header()->setSectionResizeMode(0, QHeaderView::Stretch);
  for (int column = numbers_from; column < header.size(); ++column) {
    table->headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  }
  return table;
}

void AddRow(QTreeWidget* table, const QStringList& cells, int numbers_from) {
  auto* item = new QTreeWidgetItem(table, cells);
  for (int column = numbers_from; column < cells.size(); ++column) {
    item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  }
}

void FitHeight(QTreeWidget* table) {
  const int rows = std::max(1, table->topLevelItemCount());
  const int row = std::max(table->sizeHintForRow(0), table->fontMetrics().height());
  table->setFixedHeight(table->header()->sizeHint().height() + rows * row +
                        2 * table->frameWidth() + 2);
}

// Exposed time by kind, and what is left of it.
std::map<std::string, Picoseconds> ExposedOf(const sim::TimelineSummary& summary) {
  std::map<std::string, Picoseconds> exposed;
  for (const auto& [kind, of] : summary.kinds) exposed[kind] = of.exposed;
  exposed["nothing runs"] = summary.nothing;
  return exposed;
}

Picoseconds At(const std::map<std::string, Picoseconds>& times, const std::string& kind) {
  const auto found = times.find(kind);
  return found == times.end() ? Picoseconds{0} : found->second;
}

}  // namespace

ReplayPanel::ReplayPanel(QWidget* parent) : QWidget(parent) {
  auto* body = new QWidget;
  auto* column = new QVBoxLayout(body);
  column->setContentsMargins(8, 4, 8, 4);
  column->setSpacing(6);

  column->addWidget(Heading(QStringLiteral("Changes"),
                            QStringLiteral("They add up in the order of the list"), body));
  list_ = new ChangeList(body);
  column->addWidget(list_);
  connect(list_, &ChangeList::Changed, this, [this](const ChangeList::Changes& changes) {
    ReplayRequest next = request_;
    next.changes = changes;
    Use(std::move(next));
  });

  column->addWidget(Heading(
      QStringLiteral("Largest exposed time, ms a step"),
      QStringLiteral("A click shows these ops; a double click adds a change that removes them"),
      body));
  ranking_ = new QLabel(QStringLiteral("Ranking the ops"), body);
  ranking_->setProperty("role", "muted");
  ranking_->setWordWrap(true);
  column->addWidget(ranking_);
  top_ = Table("top",
               {QStringLiteral("op"), QStringLiteral("kind"), QStringLiteral("exposed"),
                QStringLiteral("gain")},
               2, body);
  top_->setAccessibleName(QStringLiteral("Ops with the largest exposed time"));
  top_->headerItem()->setToolTip(
      2, QStringLiteral("While these ops run and no compute lane computes, as recorded"));
  top_->headerItem()->setToolTip(3, QStringLiteral("What the recorded step loses without these"));
  top_->hide();
  column->addWidget(top_);
  const auto chosen = [this](QTreeWidgetItem* item) -> const sim::ReplayTop* {
    const int row = top_->indexOfTopLevelItem(item);
    return ranked_ && row >= 0 ? &(*ranked_)[static_cast<size_t>(row)] : nullptr;
  };
  connect(top_, &QTreeWidget::itemClicked, this, [this, chosen](QTreeWidgetItem* item) {
    const sim::ReplayTop* ops = chosen(item);
    if (ops) Q_EMIT Chosen(QString::fromStdString(ops->name), QString::fromStdString(ops->lane));
  });
  connect(top_, &QTreeWidget::itemActivated, this, [this, chosen](QTreeWidgetItem* item) {
    const sim::ReplayTop* ops = chosen(item);
    const auto filter = ops ? ReplayFilterOf(ops->name, ops->lane) : std::nullopt;
    if (filter) AddChange("remove " + *filter);
  });

  column->addWidget(Heading(QStringLiteral("Machine"),
                            QStringLiteral("Factors on what was recorded; applied first"), body));
  for (const auto& [name, help] : sim::ReplaySettings()) {
    // A setting that stands for several has them as sliders.
    const std::string prefix = std::string(name) + '.';
    const bool several = std::ranges::any_of(
        sim::ReplaySettings(), [&](const auto& other) { return other.first.starts_with(prefix); });
    if (several) continue;
    auto* row = new ControlRow(SettingControl(name, help), body);
    row->Show(std::nullopt);
    connect(row, &ControlRow::Changed, this, &ReplayPanel::Set);
    column->addWidget(row);
    settings_[std::string(name)] = row;
  }

  column->addWidget(
      Heading(QStringLiteral("Where a step goes, ms"),
              QStringLiteral("By kind: time in which no compute lane computes while it runs, and "
                             "its part of the critical path"),
              body));
  parts_ = Table("parts",
                 {QStringLiteral("kind"), QStringLiteral("exposed"), QStringLiteral("was"),
                  QStringLiteral("path"), QStringLiteral("was")},
                 1, body);
  parts_->setSelectionMode(QAbstractItemView::NoSelection);
  parts_->setFocusPolicy(Qt::NoFocus);
  parts_->setAccessibleName(QStringLiteral("Exposed time and critical path by kind"));
  column->addWidget(parts_);
  column->addStretch(1);

  auto* scroll = new QScrollArea(this);
  scroll->setWidget(body);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setFocusPolicy(Qt::NoFocus);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(scroll);
}

void ReplayPanel::Clear() {
  ranked_.reset();
  top_->clear();
  top_->hide();
  ranking_->setText(QStringLiteral("Ranking the ops"));
  ranking_->show();
  parts_->clear();
  FitHeight(parts_);
  SetRequest({});
}

void ReplayPanel::SetRequest(const ReplayRequest& request) {
  request_ = request;
  list_->SetChanges(request.changes);
  for (const auto& [name, row] : settings_) {
    const auto found = request.settings.find(name);
    row->Show(found == request.settings.end() ? std::nullopt : std::optional(found->second));
    row->SetError({});
  }
}

void ReplayPanel::Use(ReplayRequest next) {
  if (next == request_) return;
  SetRequest(next);
  Q_EMIT Changed(request_);
}

void ReplayPanel::Set(const std::string& name, const std::optional<std::string>& text) {
  ReplayRequest next = request_;
  try {
    next.settings.erase(name);
    if (text && FactorOf(*text) != 1) {
      next.settings[name] = sim::ParseReplayChange(fmt::format("set {} {}", name, *text)).argument;
    }
  } catch (const Error& error) {
    settings_.at(name)->SetError(QString::fromStdString(error.problem() + "; " + error.remedy()));
    return;
  }
  Use(std::move(next));
}

void ReplayPanel::Reset() { Use({}); }

ControlRow* ReplayPanel::setting(const std::string& name) const {
  const auto found = settings_.find(name);
  return found == settings_.end() ? nullptr : found->second;
}

void ReplayPanel::Show(const ReplayResult& result) {
  list_->SetWords(result.of->words);
  list_->ShowError({});
  QStringList effects, tips;
  const size_t settings = result.request.settings.size();
  for (size_t i = settings; i < result.effects.size(); ++i) {
    const ReplayResult::Effect& effect = result.effects[i];
    const double ms = Milliseconds(effect.step);
    effects << QStringLiteral("%1%2 ms").arg(ms > 0 ? "+" : "").arg(ms, 0, 'f', 2);
    tips
        << QStringLiteral("%1 ops; the step, behind the changes before").arg(CountText(effect.ops));
  }
  list_->SetEffects(effects, tips);

  const auto exposed = ExposedOf(result.figures.summary);
  const auto was = ExposedOf(result.of->unchanged.summary);
  const auto& path = result.figures.critical;
  const auto& path_was = result.of->unchanged.critical;
  std::vector<std::pair<std::string, Picoseconds>> kinds;
  const auto add = [&](const std::map<std::string, Picoseconds>& times) {
    for (const auto& [kind, time] : times) {
      const auto known =
          std::ranges::find(kinds, kind, &std::pair<std::string, Picoseconds>::first);
      if (known == kinds.end()) {
        kinds.emplace_back(kind, time);
      } else {
        known->second = std::max(known->second, time);
      }
    }
  };
  for (const auto* times : {&exposed, &was, &path, &path_was}) add(*times);
  std::ranges::stable_sort(kinds, [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kMostKinds = 8;
  constexpr Picoseconds kLeast{5'000'000};  // else all its numbers are 0.00
  parts_->clear();
  for (size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i) {
    const auto& [kind, most] = kinds[i];
    if (most < kLeast) break;
    AddRow(parts_,
           {Text(kind), Ms(At(exposed, kind)), Ms(At(was, kind)), Ms(At(path, kind)),
            Ms(At(path_was, kind))},
           1);
  }
  FitHeight(parts_);
}

void ReplayPanel::ShowTop(const SharedTop& top) {
  if (ranked_ == top) return;
  ranked_ = top;
  top_->clear();
  for (const sim::ReplayTop& ops : *top) {
    AddRow(top_, {ShortName(ops.name), Text(ops.kind), Ms(ops.exposed), Ms(ops.gain)}, 2);
    top_->topLevelItem(top_->topLevelItemCount() - 1)
        ->setToolTip(0, QStringLiteral("%1\n%2, %3 a step, busy %4 ms")
                            .arg(Text(ops.name), Text(ops.lane))
                            .arg(ops.ops, 0, 'g', 4)
                            .arg(Ms(ops.busy)));
  }
  top_->setVisible(!top->empty());
  ranking_->setVisible(top->empty());
  ranking_->setText(QStringLiteral("No step holds work of a GPU"));
  FitHeight(top_);
}

void ReplayPanel::ShowError(const Error& error) {
  list_->ShowError(QString::fromStdString(error.problem() + "; " + error.remedy()));
}

}  // namespace stallcast::gui
