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
// Logical pixels.
constexpr int kCardMargin = 8, kCardGap = 14, kCardLineGap = 2;

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
    Notes();
    if (in_.selected) {
      Highlight(*in_.selected, {Kind::kAccent});
      MarkTwinOutside(*in_.selected);
    }
    const std::optional<OpRef> hovered = Hovered();
    if (hovered && hovered != in_.selected) Highlight(*hovered, {Kind::kHover});
    if (in_.selected) {
      Waits(*in_.selected);
    } else if (hovered) {
      Waits(*hovered);
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

  // Of the ghost's, the same op of now.
  std::optional<OpRef> Hovered() const {
    if (in_.hover.kind == Hit::Kind::kOp) return OpRef{in_.hover.side, in_.hover.first};
    if (in_.hover.kind != Hit::Kind::kGhost || scene_.ghost == nullptr) return std::nullopt;
    const auto row = SameOp(*scene_.ghost, in_.hover.first, *scene_.pair->model(in_.hover.side));
    return row ? std::optional(OpRef{in_.hover.side, *row}) : std::nullopt;
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

  void Highlight(OpRef op, Ink ink) {
    const std::optional<OpRef> twin = scene_.pair->Twin(op);
    std::array<std::optional<Box>, 2> boxes = {Rows(op, ink),
                                               twin ? Rows(*twin, ink) : std::nullopt};
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
  std::optional<Box> Rows(OpRef op, Ink ink) {
    const TimelineModel& model = *scene_.pair->model(op.side);
    constexpr size_t kMost = 200;
    const std::span<const uint32_t> like = model.RowsLike(op.row);
    for (size_t i = 0; i < std::min(like.size(), kMost); ++i) {
      if (like[i] == op.row) continue;
      if (const auto box = BoxOf(scene_, {op.side, like[i]})) {
        out_.outlines.push_back({*box, ink, Px(1), true});
      }
    }
    const std::optional<Box> box = BoxOf(scene_, op);
    if (box) out_.outlines.push_back({*box, ink, Px(2), true});
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
        if (std::ssize(out_.arrows) >= kMostArrows) return SayCut();
        AddArrow(bar.side, wait, {Kind::kMuted});
      }
    }
  }

  // That waits further right have no arrow.
  void SayCut() {
    Card card;
    card.Add(QStringLiteral("%1 waits are drawn, more are not: zoom in").arg(kMostArrows));
    Draw(card, layout().chart_x1, layout().legend.y0 - Px(34), layout().chart_x1 - Px(4));
  }

  void Notes() {
    if (scene_.notes == nullptr) return;
    for (const AxisNote& note : *scene_.notes) {
      const auto at = PlaceOf(*scene_.alignment, note);
      if (!at || *at < scene_.visible.begin || *at >= scene_.visible.end) continue;
      const int x = ColumnOf(*at, scene_.visible, layout());
      out_.lines.push_back({x, Chart().y0, x, Chart().y1, {Kind::kAccent}});
      Card card;
      card.Add(QStringLiteral("⚑ ") + note.text);
      Draw(card, x + Px(1), Chart().y0 + Px(2), layout().chart_x1 - Px(4));
    }
  }

  void CauseOfExposure() {
    const Exposure exposure = scene_.pair->model(in_.hover.side)->exposure(in_.hover.first);
    if (exposure.cause < 0) return;
    Rows({in_.hover.side, exposure.cause}, {Kind::kAccent});
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
    std::optional<OpFacts> ghost;
    if (p != nullptr && scene_.ghost != nullptr) {
      const TimelineModel& model = *scene_.pair->model(Side::kPredicted);
      if (const auto same = SameOp(model, p->ref.row, *scene_.ghost)) {
        ghost = FactsOf(*scene_.ghost, {Side::kPredicted, *same});
      }
    }
    const auto row = [&](const QString& name, auto&& text, bool worth) {
      if (!worth) return;
      std::vector<QString> values;
      if (p != nullptr) values.push_back(text(*p));
      if (m != nullptr) values.push_back(text(*m));
      if (ghost) values.push_back(text(*ghost));
      card.Add(name, values);
    };
    if (both || ghost) {
      std::vector<QString> heads;
      if (p != nullptr) heads.push_back(both ? QStringLiteral("predicted") : QStringLiteral("now"));
      if (m != nullptr) heads.push_back(QStringLiteral("measured"));
      if (ghost) heads.push_back(scene_.ghost_name);
      card.Add({}, heads);
    }
    if (!both && scene_.pair->both()) {
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

  // Of an op that this prediction does not have.
  Card GhostCard() const {
    const OpFacts facts = FactsOf(*scene_.ghost, {in_.hover.side, in_.hover.first});
    Card card;
    card.Add(ShortName(facts.name), TextStyle::kBold);
    card.Add(Facts(facts), TextStyle::kSmall, {Kind::kMuted});
    card.Add({}, {scene_.ghost_name});
    card.Add(QStringLiteral("duration"), {TimeText(facts.duration)});
    card.Add(QStringLiteral("start in step"), {SignedTimeText(facts.start_in_step)});
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
    std::vector<Box> seen;  // what the card is about
    switch (in_.hover.kind) {
      case Hit::Kind::kNone:
        return;
      case Hit::Kind::kOp:
      case Hit::Kind::kGhost: {
        const std::optional<OpRef> op = Hovered();
        card = op ? OpCard(*op) : GhostCard();
        const std::optional<OpRef> twin = op ? scene_.pair->Twin(*op) : std::nullopt;
        for (const std::optional<OpRef>& lit : {op, twin}) {
          if (!lit) continue;
          if (const auto box = BoxOf(scene_, *lit)) seen.push_back(*box);
        }
        break;
      }
      case Hit::Kind::kMerged:
        card = MergedCard();
        break;
      case Hit::Kind::kExposed:
        card = ExposedCard();
        break;
    }
    DrawBeside(card, seen);
  }

  // What a card takes on the picture.
  struct CardSize {
    std::vector<int> columns;
    int inner = 0, width = 0, height = 0;
  };
  CardSize SizeOf(const Card& card) const {
    const TextMeasure& measure = *scene_.measure;
    CardSize size;
    int single = 0;
    for (const auto& row : card.rows) {
      int line = 0;
      for (size_t c = 0; c < row.size(); ++c) {
        const int width = measure.Width(row[c].text, row[c].style) + 1;
        line = std::max(line, measure.Height(row[c].style));
        if (row.size() == 1) {
          single = std::max(single, width);
          continue;
        }
        if (size.columns.size() <= c) size.columns.resize(c + 1);
        size.columns[c] = std::max(size.columns[c], width);
      }
      size.height += line + Px(kCardLineGap);
    }
    int table = size.columns.empty() ? 0 : Px(kCardGap) * static_cast<int>(size.columns.size() - 1);
    for (int width : size.columns) table += width;
    size.inner = std::min(std::max(single, table), Whole().width() - 2 * Px(kCardMargin));
    size.width = size.inner + 2 * Px(kCardMargin);
    size.height += 2 * Px(kCardMargin) - Px(kCardLineGap);
    return size;
  }

  // Where cards may be.
  Box Whole() const {
    return {Px(2), Px(2), layout().legend.x1 - Px(2), layout().legend.y1 - Px(2)};
  }

  // Left edge at x0, or right edge at `x1` where it would not fit; kept inside the picture.
  void Draw(const Card& card, int x0, int y, int x1) {
    const CardSize size = SizeOf(card);
    const Box whole = Whole();
    if (x0 + size.width > whole.x1) x0 = std::max(whole.x0, x1 - size.width);
    if (x0 + size.width > whole.x1) x0 = std::max(whole.x0, whole.x1 - size.width);
    Put(card, size, x0, std::max(whole.y0, std::min(y, whole.y1 - size.height)));
  }

  // Where it leaves these and the ruler free, or else these; just beside the cursor where there is
  // no such place.
  void DrawBeside(const Card& card, std::vector<Box> seen) {
    const CardSize size = SizeOf(card);
    const int away = Px(16), rim = Px(6);  // past what outlines add
    const int x = in_.cursor_x, y = in_.cursor_y;
    for (Box& box : seen) box = {box.x0 - rim, box.y0 - rim, box.x1 + rim, box.y1 + rim};
    seen.insert(seen.begin(), {x - away, y - away, x + away, y + away});
    std::vector<Box> and_ruler = seen;
    and_ruler.push_back(layout().ruler);
    auto place = NearestPlace(size, and_ruler);
    if (!place) place = NearestPlace(size, seen);
    if (place) {
      Put(card, size, place->x0, place->y0);
    } else {
      Draw(card, x + away, y + away, x - away);
    }
  }

  // Beside some of these boxes and over none, as near to the cursor as can be.
  std::optional<Box> NearestPlace(const CardSize& size, const std::vector<Box>& free) const {
    const int x = in_.cursor_x, y = in_.cursor_y;
    std::optional<Box> best;
    const auto distance = [&](const Box& b) {
      return std::hypot(std::max({b.x0 - x, x - b.x1, 0}), std::max({b.y0 - y, y - b.y1, 0}));
    };
    const auto try_at = [&](int x0, int y0) {
      const Box place{x0, y0, x0 + size.width, y0 + size.height};
      const bool covers = std::any_of(free.begin(), free.end(),
                                      [&](const Box& box) { return box.Overlaps(place); });
      if (covers || Intersection(place, Whole()) != place) return;
      if (!best || distance(place) < distance(*best)) best = place;
    };
    for (const Box& beside : free) {
      for (const Box& over : free) {
        for (const int x0 : {beside.x1, beside.x0 - size.width}) {
          for (const int y0 : {over.y1, over.y0 - size.height}) try_at(x0, y0);
        }
      }
    }
    return best;
  }

  void Put(const Card& card, const CardSize& size, int x0, int y) {
    const TextMeasure& measure = *scene_.measure;
    out_.panels.push_back({{x0, y, x0 + size.width, y + size.height}, {Kind::kPanel}});
    int row_y = y + Px(kCardMargin);
    for (const auto& row : card.rows) {
      int line = 0;
      for (const auto& cell : row) line = std::max(line, measure.Height(cell.style));
      int x = x0 + Px(kCardMargin);
      for (size_t c = 0; c < row.size(); ++c) {
        const int cell_width = row.size() == 1 ? size.inner : size.columns[c];
        const QString text = Elided(row[c].text, cell_width, row[c].style, measure);
        if (!text.isEmpty()) {
          out_.labels.push_back({{x, row_y, x + cell_width, row_y + line},
                                 text,
                                 row[c].style,
                                 row[c].ink,
                                 c == 0 ? Label::Align::kLeft : Label::Align::kRight});
        }
        x += cell_width + Px(kCardGap);
      }
      row_y += line + Px(kCardLineGap);
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
    if (bar.kind == BarShape::Kind::kGhost && !bar.merged) {
      return {Hit::Kind::kGhost, bar.side, bar.first, bar.last};
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
