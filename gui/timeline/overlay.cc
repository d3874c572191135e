// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/overlay.h"

#include <QStringList>
#include <algorithm>
#include <array>
#include <cmath>

#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

using traces::Role;
using Kind = Ink::Kind;

constexpr int kMostArrows = 400;

// A table of texts on a panel.
struct Card {
  struct Cell {
    QString text;
    TextStyle style = TextStyle::kSmall;
    Ink ink = {Kind::kText};
  };
  std::vector<std::vector<Cell>> rows;  // a row of one cell spans all columns

  void Add(const QString& text, TextStyle style = TextStyle::kSmall, Ink ink = {Kind::kText}) {
    rows.push_back({{text, style, ink}});
  }
  void Add(const QString& name, const std::vector<QString>& values) {
    std::vector<Cell> row = {{name, TextStyle::kSmall, {Kind::kMuted}}};
    for (const QString& value : values) row.push_back({value, TextStyle::kSmall, {Kind::kText}});
    rows.push_back(std::move(row));
  }
};

class Overlay {
 public:
  explicit Overlay(const OverlayInput& input) : in_(input), scene_(*input.scene) {}

  Frame Run() {
    MinimapWindow();
    Area();
    if (in_.all_waits) AllWaits();
    if (in_.selected) {
      Highlight(*in_.selected, {Kind::kAccent}, 2);
      MarkTwinOutside(*in_.selected);
    }
    if (in_.hover.kind == Hit::Kind::kOp) {
      const OpRef hovered{in_.hover.side, in_.hover.first};
      if (hovered != in_.selected) Highlight(hovered, {Kind::kHover}, 1);
    }
    if (in_.selected) {
      Waits(*in_.selected);
    } else if (in_.hover.kind == Hit::Kind::kOp) {
      Waits({in_.hover.side, in_.hover.first});
    } else if (in_.hover.kind == Hit::Kind::kExposed) {
      CauseOfExposure();
    }
    Measure();
    HoverCard();
    return std::move(out_);
  }

 private:
  const Layout& layout() const { return *scene_.layout; }
  int Px(double logical) const { return scene_.Px(logical); }
  Box Chart() const {
    const Layout& l = layout();
    return {l.chart_x0, l.minimap.y1, l.chart_x1, l.legend.y0};
  }
  Picoseconds Start(OpRef op) const {
    return scene_.map(op.side).ToAxis(scene_.pair->model(op.side)->Start(op.row));
  }

  void MinimapWindow() {
    const AxisRange whole = scene_.alignment->whole;
    if (whole.length().count() <= 0) return;
    const Box& box = layout().minimap;
    const int x0 = std::max(box.x0, ColumnOf(scene_.visible.begin, whole, layout()));
    const int x1 =
        std::min(box.x1, std::max(ColumnOf(scene_.visible.end, whole, layout()), x0 + Px(3)));
    const int inset = Px(2);
    out_.fills.push_back({{x0, box.y0 + inset, x1, box.y1 - inset}, {Kind::kArea}});
    out_.outlines.push_back({{x0, box.y0 + inset, x1, box.y1 - inset}, {Kind::kAccent}, Px(1)});
  }

  void Highlight(OpRef op, Ink ink, int thickness) {
    const std::optional<OpRef> twin = scene_.pair->Twin(op);
    std::array<std::optional<Box>, 2> boxes = {Rows(op, ink, thickness),
                                               twin ? Rows(*twin, ink, thickness) : std::nullopt};
    if (!boxes[0] || !boxes[1]) return;
    // A line over the ruler leads from one to the other.
    const Box& a = boxes[0]->y0 < boxes[1]->y0 ? *boxes[0] : *boxes[1];
    const Box& b = boxes[0]->y0 < boxes[1]->y0 ? *boxes[1] : *boxes[0];
    out_.lines.push_back({a.x0, a.y1, a.x0, layout().ruler.y0, ink});
    out_.lines.push_back({b.x0, layout().ruler.y1, b.x0, b.y0, ink});
    out_.lines.push_back({a.x0, layout().ruler.y0, b.x0, layout().ruler.y0, ink});
    out_.lines.push_back({b.x0, layout().ruler.y0, b.x0, layout().ruler.y1, ink});
  }

  // Where to find the twin when it is left or right of what is shown.
  void MarkTwinOutside(OpRef op) {
    const std::optional<OpRef> twin = scene_.pair->Twin(op);
    if (!twin) return;
    const Picoseconds at = Start(*twin);
    const bool left = at < scene_.visible.begin;
    if (!left && at < scene_.visible.end) return;
    const QString away = TimeText(std::chrono::abs(at - Start(op)));
    Card card;
    card.Add(left ? QStringLiteral("◂ twin, %1 earlier").arg(away)
                  : QStringLiteral("twin, %1 later ▸").arg(away));
    const Layout& l = layout();
    const int y = twin->side == Side::kPredicted ? l.ruler.y0 - Px(44) : l.ruler.y1 + Px(14);
    // The right edge of the chart is past what fits: Draw() takes it back.
    Draw(card, left ? l.chart_x0 + Px(4) : l.chart_x1, y, l.chart_x1 - Px(4));
  }

  // Outlines all rows of the op; returns the box of the first.
  std::optional<Box> Rows(OpRef op, Ink ink, int thickness) {
    const TimelineModel& model = *scene_.pair->model(op.side);
    constexpr size_t kMost = 200;
    const std::span<const uint32_t> like = model.RowsLike(op.row);
    for (size_t i = 0; i < std::min(like.size(), kMost); ++i) {
      if (like[i] == op.row) continue;
      if (const auto box = BoxOf(scene_, {op.side, like[i]})) {
        out_.outlines.push_back({*box, ink, Px(1)});
      }
    }
    const std::optional<Box> box = BoxOf(scene_, op);
    if (box) out_.outlines.push_back({*box, ink, Px(thickness)});
    return box;
  }

  // Where a row is at a time, on the middle of its track; nothing when that is not on the screen.
  std::optional<std::pair<int, int>> Place(Side side, int64_t row, Picoseconds axis) const {
    const LaneRow* at = layout().RowOf(side, scene_.pair->model(side)->TrackOf(row));
    if (at == nullptr || at->shown.empty()) return std::nullopt;
    const int x = ColumnOf(axis, scene_.visible, layout());
    return std::pair(std::clamp(x, layout().chart_x0, layout().chart_x1 - 1),
                     (at->shown.y0 + at->shown.y1) / 2);
  }

  // From the end of what was waited for to where the wait was over: the start of what waited, or,
  // when that began to wait before (the host in a synchronization), the same moment.
  void AddArrow(Side side, Wait wait, Ink ink) {
    const TimelineModel& model = *scene_.pair->model(side);
    const AxisMap& map = scene_.map(side);
    const Picoseconds end = map.EndToAxis(model.End(wait.from));
    const Picoseconds start = map.ToAxis(model.Start(wait.to));
    const Picoseconds over = std::clamp(end, start, map.EndToAxis(model.End(wait.to)));
    const auto from = Place(side, wait.from, std::min(end, over)), to = Place(side, wait.to, over);
    if (!from || !to || *from == *to) return;
    const bool outside =
        from->first == to->first && (end < scene_.visible.begin || start >= scene_.visible.end);
    if (!outside) out_.arrows.push_back({from->first, from->second, to->first, to->second, ink});
  }

  void Waits(OpRef op) {
    const TimelineModel& model = *scene_.pair->model(op.side);
    for (const Wait& wait : WaitsInto(model, op.row)) AddArrow(op.side, wait, {Kind::kAccent});
    for (const Wait& wait : WaitsFrom(model, op.row)) AddArrow(op.side, wait, {Kind::kMuted});
    // From its call to its run.
    const int64_t id = model.timeline().op[static_cast<size_t>(op.row)];
    if (id < 0) return;
    int64_t call = -1, run = -1;
    for (uint32_t row : model.ops().RowsOf(id)) {
      if (model.timeline().step[row] != model.timeline().step[static_cast<size_t>(op.row)])
        continue;
      int64_t& of_kind = model.IsCall(row) ? call : run;
      if (of_kind < 0) of_kind = row;
    }
    if (call >= 0 && run >= 0) AddArrow(op.side, {call, run}, {Kind::kMuted});
  }

  void AllWaits() {
    for (const BarShape& bar : in_.base->bars) {
      if (bar.kind != BarShape::Kind::kOp || bar.merged || bar.last <= bar.first) continue;
      const TimelineModel& model = *scene_.pair->model(bar.side);
      if (model.IsCall(bar.first) &&
          model.timeline().role[static_cast<size_t>(bar.first)] == Role::kHost) {
        continue;  // its run waits
      }
      for (const Wait& wait : WaitsInto(model, bar.first)) {
        if (std::ssize(out_.arrows) >= kMostArrows) return;
        AddArrow(bar.side, wait, {Kind::kMuted});
      }
    }
  }

  void CauseOfExposure() {
    const Exposure exposure = scene_.pair->model(in_.hover.side)->exposure(in_.hover.first);
    if (exposure.cause < 0) return;
    Rows({in_.hover.side, exposure.cause}, {Kind::kAccent}, 2);
  }

  void Area() {
    if (!in_.area) return;
    const Box box = Intersection(*in_.area, Chart());
    if (box.empty()) return;
    out_.fills.push_back({box, {Kind::kArea}});
    out_.outlines.push_back({box, {Kind::kAccent}, Px(1)});
    if (in_.sums) SumsCard(*in_.sums, box);
  }

  void SumsCard(const AreaSums& sums, const Box& area) {
    Card card;
    card.Add(TimeText(sums.range.length()) + QStringLiteral(" selected"), TextStyle::kBold);
    const bool both = sums.predicted && sums.measured;
    const AreaSums::Roles none{};
    const AreaSums::Roles& p = sums.predicted ? *sums.predicted : none;
    const AreaSums::Roles& m = sums.measured ? *sums.measured : none;
    if (both) {
      card.Add({}, {QStringLiteral("predicted"), QStringLiteral("waited"),
                    QStringLiteral("measured"), QStringLiteral("waited")});
    } else {
      card.Add({}, {QStringLiteral("busy"), QStringLiteral("waited"), QStringLiteral("ops"),
                    QStringLiteral("bytes")});
    }
    const auto time = [](Picoseconds t) { return t.count() == 0 ? QString() : TimeText(t); };
    for (size_t r = 0; r < p.size(); ++r) {
      if (p[r].ops + m[r].ops == 0 && (p[r].exposed + m[r].exposed).count() == 0) continue;
      const QString name = Text(std::string(Name(static_cast<Role>(r))));
      if (both) {
        card.Add(name, {time(p[r].busy), time(p[r].exposed), time(m[r].busy), time(m[r].exposed)});
      } else {
        const AreaSums::Role& role = sums.predicted ? p[r] : m[r];
        card.Add(name, {time(role.busy), time(role.exposed), CountText(role.ops),
                        role.bytes > 0 ? BytesText(role.bytes) : QString()});
      }
    }
    Draw(card, area.x1 + Px(8), area.y0, area.x0 - Px(8));
  }

  void Measure() {
    if (!in_.measure) return;
    const Box chart = Chart();
    const auto x_of = [&](Picoseconds axis) {
      return std::clamp(ColumnOf(axis, scene_.visible, layout()), chart.x0, chart.x1 - 1);
    };
    const int a = x_of(std::min(in_.measure->from, in_.measure->to));
    const int b = x_of(std::max(in_.measure->from, in_.measure->to));
    for (int x : {a, b}) out_.lines.push_back({x, chart.y0, x, chart.y1, {Kind::kAccent}});
    const int y = layout().ruler.y0 - Px(1);
    out_.lines.push_back({a, y, b, y, {Kind::kAccent}});
    Card card;
    card.Add(TimeText(std::chrono::abs(in_.measure->to - in_.measure->from)), TextStyle::kBold);
    Draw(card, b + Px(6), y - Px(28), a - Px(6));
  }

  static QString Facts(const OpFacts& op) {
    QString text = Text(std::string(Name(op.role))) + QStringLiteral(" on ") + Text(op.lane);
    if (op.step >= 0) text += QStringLiteral("   step %1").arg(op.step);
    if (op.layer >= 0) text += QStringLiteral("   layer %1").arg(op.layer);
    if (op.op >= 0) text += QStringLiteral("   op %1").arg(op.op);
    if (op.rows > 1) text += QStringLiteral("   %1 rows").arg(CountText(op.rows));
    return text;
  }

  Card OpCard(OpRef ref) const {
    const OpDetails details = Describe(*scene_.pair, ref);
    Card card;
    card.Add(ShortName(details.op.name), TextStyle::kBold);
    card.Add(Facts(details.op), TextStyle::kSmall, {Kind::kMuted});
    const bool predicted = ref.side == Side::kPredicted;
    const OpFacts* p = predicted ? &details.op : (details.twin ? &*details.twin : nullptr);
    const OpFacts* m = predicted ? (details.twin ? &*details.twin : nullptr) : &details.op;
    const bool both = p != nullptr && m != nullptr;
    const auto row = [&](const QString& name, auto&& text, bool worth) {
      if (!worth) return;
      std::vector<QString> values;
      if (p != nullptr) values.push_back(text(*p));
      if (m != nullptr) values.push_back(text(*m));
      card.Add(name, values);
    };
    if (both) {
      card.Add({}, {QStringLiteral("predicted"), QStringLiteral("measured")});
    } else if (scene_.pair->both()) {
      card.Add(predicted ? QStringLiteral("no measured op is its twin")
                         : QStringLiteral("no predicted op is its twin"),
               TextStyle::kSmall, {Kind::kMuted});
    }
    row(
        QStringLiteral("duration"), [](const OpFacts& f) { return TimeText(f.duration); }, true);
    if (both) {
      card.Add(QStringLiteral("residual"),
               {SignedTimeText(*details.residual), SignedShareText(details.relative_residual)});
    }
    row(
        details.op.step >= 0 ? QStringLiteral("start in step") : QStringLiteral("start"),
        [](const OpFacts& f) { return SignedTimeText(f.start_in_step); }, true);
    row(
        QStringLiteral("lane idle before"),
        [](const OpFacts& f) { return TimeText(f.idle_before); },
        (p && p->idle_before.count() > 0) || (m && m->idle_before.count() > 0));
    const bool moves = (p && p->bytes > 0) || (m && m->bytes > 0);
    row(
        QStringLiteral("bytes"),
        [](const OpFacts& f) {
          return f.planned_bytes ? QStringLiteral("as planned") : BytesText(f.bytes);
        },
        moves);
    row(
        QStringLiteral("rate"), [](const OpFacts& f) { return RateText(f.rate()); }, moves);
    if (!details.op.waits.empty()) {
      constexpr size_t kMost = 3;
      QStringList names;
      for (size_t i = 0; i < std::min(kMost, details.op.waits.size()); ++i) {
        names.push_back(ShortName(details.op.waits[i]));
      }
      if (details.op.waits.size() > kMost) {
        names.push_back(QStringLiteral("%1 more").arg(details.op.waits.size() - kMost));
      }
      card.Add(QStringLiteral("waited for ") + names.join(QStringLiteral(", ")), TextStyle::kSmall,
               {Kind::kMuted});
    }
    return card;
  }

  Card MergedCard() const {
    const TimelineModel& model = *scene_.pair->model(in_.hover.side);
    Card card;
    card.Add(CountText(in_.hover.last - in_.hover.first) + QStringLiteral(" ops"),
             TextStyle::kBold);
    const Track track = model.Ops(model.TrackOf(in_.hover.first));
    const RoleSums sums =
        track.Sum(in_.hover.first - track.first_row(), in_.hover.last - track.first_row());
    for (size_t r = 0; r < sums.size(); ++r) {
      if (sums[r] > 0) {
        card.Add(Text(std::string(Name(static_cast<Role>(r)))), {TimeText(Picoseconds(sums[r]))});
      }
    }
    const double residual =
        scene_.pair->MeanResidual(in_.hover.side, in_.hover.first, in_.hover.last);
    if (!std::isnan(residual))
      card.Add(QStringLiteral("mean residual"), {SignedShareText(residual)});
    card.Add(QStringLiteral("zoom in to see each"), TextStyle::kSmall, {Kind::kMuted});
    return card;
  }

  Card ExposedCard() const {
    const TimelineModel& model = *scene_.pair->model(in_.hover.side);
    Card card;
    if (in_.hover.last - in_.hover.first > 1) {
      card.Add(CountText(in_.hover.last - in_.hover.first) + QStringLiteral(" waits"),
               TextStyle::kBold);
      RoleSums sums{};
      constexpr int64_t kMost = 1'000'000;
      const int64_t last = std::min(in_.hover.last, in_.hover.first + kMost);
      for (int64_t i = in_.hover.first; i < last; ++i) {
        const Exposure e = model.exposure(i);
        sums[static_cast<size_t>(e.role)] += e.duration.count();
      }
      for (size_t r = 0; r < sums.size(); ++r) {
        if (sums[r] > 0) {
          card.Add(Text(std::string(Name(static_cast<Role>(r)))), {TimeText(Picoseconds(sums[r]))});
        }
      }
      return card;
    }
    const Exposure exposure = model.exposure(in_.hover.first);
    card.Add(QStringLiteral("waits for ") + Text(std::string(Name(exposure.role))),
             TextStyle::kBold);
    card.Add(QStringLiteral("exposed"), {TimeText(exposure.duration)});
    if (exposure.cause >= 0) {
      const traces::Timeline& t = model.timeline();
      card.Add(QStringLiteral("cause"), {ShortName(model.NameOf(exposure.cause))});
      card.Add(QStringLiteral("on"),
               {Text(t.lanes[t.lane[static_cast<size_t>(exposure.cause)]].name)});
    } else {
      card.Add(QStringLiteral("its cause is not in the file"), TextStyle::kSmall, {Kind::kMuted});
    }
    return card;
  }

  void HoverCard() {
    if (in_.cursor_x < 0) return;
    Card card;
    switch (in_.hover.kind) {
      case Hit::Kind::kNone:
        return;
      case Hit::Kind::kOp:
        card = OpCard({in_.hover.side, in_.hover.first});
        break;
      case Hit::Kind::kMerged:
        card = MergedCard();
        break;
      case Hit::Kind::kExposed:
        card = ExposedCard();
        break;
    }
    Draw(card, in_.cursor_x + Px(16), in_.cursor_y + Px(16), in_.cursor_x - Px(16));
  }

  // Left edge at x0, or right edge at `x1` where it would not fit; kept inside the picture.
  void Draw(const Card& card, int x0, int y, int x1) {
    const TextMeasure& measure = *scene_.measure;
    std::vector<int> columns;
    int single = 0, height = 0;
    const int gap = Px(14), margin = Px(8), line_gap = Px(2);
    for (const auto& row : card.rows) {
      int line = 0;
      for (size_t c = 0; c < row.size(); ++c) {
        const int width = measure.Width(row[c].text, row[c].style) + 1;
        line = std::max(line, measure.Height(row[c].style));
        if (row.size() == 1) {
          single = std::max(single, width);
          continue;
        }
        if (columns.size() <= c) columns.resize(c + 1);
        columns[c] = std::max(columns[c], width);
      }
      height += line + line_gap;
    }
    int table = columns.empty() ? 0 : gap * static_cast<int>(columns.size() - 1);
    for (int width : columns) table += width;
    const Box whole{0, 0, layout().legend.x1, layout().legend.y1};
    const int inner = std::min(std::max(single, table), whole.x1 - 2 * margin - Px(4));
    const int width = inner + 2 * margin;
    height += 2 * margin - line_gap;
    if (x0 + width > whole.x1 - Px(2)) x0 = std::max(Px(2), x1 - width);
    if (x0 + width > whole.x1 - Px(2)) x0 = std::max(Px(2), whole.x1 - Px(2) - width);
    y = std::max(Px(2), std::min(y, whole.y1 - height - Px(2)));
    out_.panels.push_back({{x0, y, x0 + width, y + height}, {Kind::kPanel}});
    int row_y = y + margin;
    for (const auto& row : card.rows) {
      int line = 0;
      for (const auto& cell : row) line = std::max(line, measure.Height(cell.style));
      int x = x0 + margin;
      for (size_t c = 0; c < row.size(); ++c) {
        const int cell_width = row.size() == 1 ? inner : columns[c];
        const QString text = Elided(row[c].text, cell_width, row[c].style, measure);
        if (!text.isEmpty()) {
          out_.labels.push_back({{x, row_y, x + cell_width, row_y + line},
                                 text,
                                 row[c].style,
                                 row[c].ink,
                                 c == 0 ? Label::Align::kLeft : Label::Align::kRight});
        }
        x += cell_width + gap;
      }
      row_y += line + line_gap;
    }
  }

  const OverlayInput& in_;
  const SceneInput& scene_;
  Frame out_;
};

}  // namespace

Hit HitAt(const Frame& frame, int x, int y) {
  // In a folded lane what is drawn last lies above.
  for (auto it = frame.bars.rbegin(); it != frame.bars.rend(); ++it) {
    const BarShape& bar = *it;
    if (!bar.box.Contains(x, y) || bar.last <= bar.first) continue;
    if (bar.kind == BarShape::Kind::kExposed) {
      return {Hit::Kind::kExposed, bar.side, bar.first, bar.last};
    }
    if (bar.kind == BarShape::Kind::kOp) {
      return {bar.merged ? Hit::Kind::kMerged : Hit::Kind::kOp, bar.side, bar.first, bar.last};
    }
  }
  return {};
}

std::optional<Box> BoxOf(const SceneInput& scene, OpRef op) {
  const TimelineModel& model = *scene.pair->model(op.side);
  const Layout& layout = *scene.layout;
  const LaneRow* row = layout.RowOf(op.side, model.TrackOf(op.row));
  if (row == nullptr) return std::nullopt;
  const AxisMap& map = scene.map(op.side);
  const int x0 = ColumnOf(map.ToAxis(model.Start(op.row)), scene.visible, layout);
  const int x1 =
      std::max(x0 + 1, ColumnOf(map.EndToAxis(model.End(op.row)), scene.visible, layout));
  const Box box = Intersection({x0, row->box.y0, x1, row->box.y1}, row->shown);
  if (box.empty()) return std::nullopt;
  return box;
}

Frame DrawOverlay(const OverlayInput& input) { return Overlay(input).Run(); }

}  // namespace stallcast::gui
