// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/scene.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "gui/timeline/columns.h"
#include "gui/timeline/legend.h"
#include "gui/timeline/words.h"
#include "traces/common/parallel.h"

namespace stallcast::gui {
namespace {

using traces::Role;
using Kind = Ink::Kind;

// Logical pixels.
constexpr int kLeastLabel = 30, kTickSpacing = 90, kLeastTicks = 60, kStepLabel = 34, kPadding = 4;

QString OriginText(traces::Timeline::Origin origin) {
  switch (origin) {
    case traces::Timeline::Origin::kImported:
      return QStringLiteral("Imported");
    case traces::Timeline::Origin::kPredicted:
      return QStringLiteral("Predicted");
    case traces::Timeline::Origin::kMeasured:
      return QStringLiteral("Measured");
  }
  return {};
}

class Drawing {
 public:
  Drawing(const SceneInput& input, const std::array<std::vector<Bar>, 2>& minimap)
      : in_(input), layout_(*input.layout), minimap_(minimap) {}

  Scene Run() {
    Background();
    Minimap();
    Steps();
    Lanes();
    Ruler();
    DrawLegend();
    return std::move(scene_);
  }

 private:
  Frame& out() { return scene_.frame; }
  int Px(double logical) const { return in_.Px(logical); }
  int X(Picoseconds axis) const { return ColumnOf(axis, in_.visible, layout_); }

  void AddLabel(Box box, const QString& text, TextStyle style, Ink ink,
                Label::Align align = Label::Align::kLeft) {
    const QString fitting = Elided(text, box.width(), style, *in_.measure);
    if (!fitting.isEmpty()) out().labels.push_back({box, fitting, style, ink, align});
  }

  void Background() {
    out().fills.push_back({{0, 0, layout_.legend.x1, layout_.legend.y1}, {Kind::kWindow}});
    for (Side side : kSides) {
      const Box& caption = layout_.caption[static_cast<size_t>(side)];
      if (caption.empty()) continue;
      const traces::Timeline& t = in_.pair->model(side)->timeline();
      out().fills.push_back({caption, {Kind::kPanel}});
      const bool replay = side == Side::kPredicted && in_.pair->replay();
      const QString origin = replay ? QStringLiteral("Replayed") : OriginText(t.origin);
      const Box name{Px(8), caption.y0, layout_.chart_x0, caption.y1};
      AddLabel(name, origin, TextStyle::kBold, {Kind::kText});
      AddLabel({layout_.chart_x0 + Px(kPadding), caption.y0, caption.x1 - Px(kPadding), caption.y1},
               Text(t.title), TextStyle::kNormal, {Kind::kMuted});
    }
  }

  void Minimap() {
    const Box& box = layout_.minimap;
    out().fills.push_back({{0, box.y0, layout_.legend.x1, box.y1}, {Kind::kPanel}});
    const int margin = Px(4);
    const bool both = in_.pair->both();
    const int height = (box.height() - 2 * margin) / (both ? 2 : 1);
    int y = box.y0 + margin;
    for (Side side : kSides) {
      if (!in_.pair->model(side)) continue;
      const Box row{box.x0, y, box.x1, y + height - 1};
      out().fills.push_back({row, {Kind::kLane}});
      for (const Bar& bar : minimap_[static_cast<size_t>(side)]) {
        out().bars.push_back({{row.x0 + bar.x0, row.y0, std::min(row.x1, row.x0 + bar.x1), row.y1},
                              Ink::Role(bar.role),
                              BarShape::Kind::kMinimap,
                              side,
                              bar.quarters,
                              false,
                              false,
                              0,
                              0,
                              Ink::Role(bar.second),
                              bar.eighths});
      }
      y += height;
    }
    AddLabel({Px(8), box.y0, box.x0, box.y1}, QStringLiteral("Overview"), TextStyle::kSmall,
             {Kind::kMuted});
  }

  // Every other step is shaded; where a side's step is over before the other's, its lanes say so.
  void Steps() {
    const auto& stretches = in_.alignment->stretches;
    if (stretches.empty()) return;
    const auto first = std::upper_bound(
        stretches.begin(), stretches.end(), in_.visible.begin,
        [](Picoseconds t, const Alignment::Stretch& s) { return t < s.axis.begin; });
    auto from = first == stretches.begin() ? first : std::prev(first);
    const auto to = std::lower_bound(
        stretches.begin(), stretches.end(), in_.visible.end,
        [](const Alignment::Stretch& s, Picoseconds t) { return s.axis.begin < t; });
    const auto count = to - from;
    if (count <= 0 || layout_.chart_width() / count < Px(6)) return;
    for (auto s = from; s != to; ++s) {
      const int x0 = std::max(X(s->axis.begin), layout_.chart_x0);
      const int x1 = std::min(X(s->axis.end), layout_.chart_x1);
      for (Side side : kSides) {
        const Box& region = layout_.region[static_cast<size_t>(side)];
        if (region.empty()) continue;
        if ((s - stretches.begin()) % 2 != 0) {
          out().fills.push_back({{x0, region.y0, x1, region.y1}, {Kind::kBand}});
        }
        if (s->axis.begin >= in_.visible.begin) {
          out().lines.push_back({x0, region.y0, x0, region.y1, {Kind::kGrid}});
        }
      }
    }
    slack_from_ = from - stretches.begin();
    slack_to_ = to - stretches.begin();
  }

  // Fills it in, and keeps where it is for the lane's ops.
  void Slack(Side side, const Box& lane) {
    slack_.clear();
    const auto& stretches = in_.alignment->stretches;
    const AxisMap& map = in_.map(side);
    for (auto s = slack_from_; s < slack_to_; ++s) {
      const Alignment::Stretch& stretch = stretches[static_cast<size_t>(s)];
      if (static_cast<size_t>(s) + 1 >= stretches.size()) break;  // nothing follows that waits
      const Picoseconds end = map.EndToAxis(map.FromAxis(stretch.axis.end));
      const Box box{std::max(X(end), layout_.chart_x0), lane.y0,
                    std::min(X(stretch.axis.end), layout_.chart_x1), lane.y1};
      if (box.width() < 2) continue;
      out().fills.push_back({box, {Kind::kSlack}, true});
      slack_.push_back(box);
    }
  }

  // Of the slack that a lane's op goes on over, the ones in its box.
  std::vector<Box> GapsOf(const Box& op) const {
    std::vector<Box> gaps;
    auto gap = std::upper_bound(slack_.begin(), slack_.end(), op.x0,
                                [](int x, const Box& slack) { return x < slack.x0; });
    for (; gap != slack_.end() && gap->x1 <= op.x1; ++gap) gaps.push_back(Intersection(*gap, op));
    return gaps;
  }

  struct Job {
    const LaneBox* lane;
    const LaneRow* row;
    int32_t track = -1;
    std::vector<Bar> bars;
  };

  void Lanes() {
    if (layout_.lanes.empty()) return;
    const int32_t width = layout_.chart_width();
    const std::array columns = {Columns(in_.visible, width, in_.alignment->predicted),
                                Columns(in_.visible, width, in_.alignment->measured),
                                Columns(in_.visible, width, in_.alignment->ghost)};
    std::vector<Job> jobs;
    for (const LaneBox& lane : layout_.lanes) {
      for (const LaneRow& row : lane.rows) {
        if (row.kind == LaneRow::Kind::kTraffic) {
          if (!row.shown.empty()) Rate(lane, row, columns[Index(lane.side)]);
          continue;
        }
        for (int32_t k = 0; k < row.tracks && !row.shown.empty(); ++k) {
          jobs.push_back({&lane, &row, row.track + k, {}});
        }
      }
    }
    ParallelFor(std::ssize(jobs), [&](int, int64_t i) {
      Job& job = jobs[static_cast<size_t>(i)];
      const TimelineModel& model = *in_.pair->model(job.lane->side);
      switch (job.row->kind) {
        case LaneRow::Kind::kOps:
          job.bars = BarsOf(model.Ops(job.track), columns[Index(job.lane->side)]);
          break;
        case LaneRow::Kind::kExposed:
          job.bars = BarsOf(model.ExposureTrack(job.lane->lane), columns[Index(job.lane->side)]);
          break;
        case LaneRow::Kind::kGhost:
          job.bars = BarsOf(in_.ghost->Ops(job.track), columns[2]);
          break;
        case LaneRow::Kind::kTraffic:
          break;
      }
    });
    for (const LaneBox& lane : layout_.lanes) Header(lane);
    for (Side side : kSides) ScrollMark(side);
    for (const Job& job : jobs) Row(job);
  }

  // How fast bytes went over the link or through memory, column by column, up to the fastest one on
  // the screen.
  void Rate(const LaneBox& lane, const LaneRow& row, const gui::Columns& columns) {
    const Way way = row.way;
    const TimelineModel& model = *in_.pair->model(lane.side);
    std::vector<double> rates(static_cast<size_t>(columns.width()));
    double before = model.TrafficBefore(way, columns.ClockAt(0)), most = 0;
    for (int32_t c = 0; c < columns.width(); ++c) {
      const double after = model.TrafficBefore(way, columns.ClockAt(c + 1));
      const double seconds = Seconds(columns.ClockAt(c + 1) - columns.ClockAt(c));
      const double rate = seconds > 0 ? (after - before) / seconds : 0;
      rates[static_cast<size_t>(c)] = rate;
      most = std::max(most, rate);
      before = after;
    }
    constexpr std::array kRoleOf{Role::kRecall, Role::kOffload, Role::kAttention};
    const Role role = kRoleOf[static_cast<size_t>(way)];
    const int height = row.box.height();
    int from = 0, level = 0;
    const auto flush = [&](int to) {
      const Box box{layout_.chart_x0 + from, row.box.y1 - level, layout_.chart_x0 + to, row.box.y1};
      const Box shown = Intersection(box, row.shown);
      if (level > 0 && !shown.empty()) out().fills.push_back({shown, Ink::Role(role)});
      from = to;
    };
    for (int32_t c = 0; c < columns.width(); ++c) {
      const double share = most > 0 ? rates[static_cast<size_t>(c)] / most : 0;
      const int here = static_cast<int>(std::ceil(share * height));
      if (here == level) continue;
      flush(c);
      level = here;
    }
    flush(columns.width());
    if (row.shown != row.box) return;
    constexpr std::array kNames{"to GPU", "to host", "GPU memory"};
    const QString to = QString::fromLatin1(kNames[static_cast<size_t>(way)]);
    const Box header{Px(kFoldMark), row.box.y0, layout_.chart_x0 - Px(6), row.box.y1};
    QString text = most > 0 ? QStringLiteral("%1 ≤ %2").arg(to, RateText(most))
                            : QStringLiteral("%1: none").arg(to);
    // The rate and its unit say more than the direction, which the row's place and colour say too.
    if (in_.measure->Width(text, TextStyle::kSmall) > header.width()) {
      text = QStringLiteral("≤ %1").arg(RateText(most));
    }
    AddLabel(header, text, TextStyle::kSmall, {Kind::kMuted}, Label::Align::kRight);
  }

  // Right of the chart: which part of a side's lanes is in view, when not all are.
  void ScrollMark(Side side) {
    const Box& region = layout_.region[Index(side)];
    const int limit = layout_.scroll_limit[Index(side)];
    if (limit == 0) return;
    const bool upwards = side == Side::kPredicted && in_.pair->both();
    const int height = region.height();
    const int64_t whole = int64_t{height} + limit;
    const int scroll = layout_.scroll[Index(side)];
    const int hidden = upwards ? limit - scroll : scroll;  // above what is in view
    const Box track{layout_.chart_x1 + Px(1), region.y0, layout_.legend.x1 - Px(1), region.y1};
    out().fills.push_back({track, {Kind::kLane}});
    const int y0 = region.y0 + static_cast<int>(int64_t{hidden} * height / whole);
    const int y1 = y0 + std::max(Px(4), static_cast<int>(int64_t{height} * height / whole));
    out().fills.push_back({{track.x0, y0, track.x1, std::min(y1, region.y1)}, {Kind::kMuted}});
  }

  static size_t Index(Side side) { return static_cast<size_t>(side); }

  void Header(const LaneBox& lane) {
    if (lane.shown_header.empty()) return;
    const traces::TimelineLane& of =
        in_.pair->model(lane.side)->timeline().lanes[static_cast<size_t>(lane.lane)];
    if (lane.pinned) {
      const Box& h = lane.shown_header;
      out().fills.push_back({{0, h.y0, Px(3), h.y1}, {Kind::kAccent}});
    }
    bool named = false;
    for (const LaneRow& row : lane.rows) {
      // A row cut by scrolling has no room for a text.
      if (row.shown != row.box) continue;
      const Box box{Px(kFoldMark), row.box.y0, layout_.chart_x0 - Px(6), row.box.y1};
      if (row.kind == LaneRow::Kind::kGhost) {
        if (box.height() >= in_.measure->Height(TextStyle::kSmall)) {
          AddLabel(box, in_.ghost_name, TextStyle::kSmall, {Kind::kMuted}, Label::Align::kRight);
        }
      } else if (row.kind == LaneRow::Kind::kExposed) {
        AddLabel(box, QStringLiteral("waits for"), TextStyle::kSmall, {Kind::kMuted},
                 Label::Align::kRight);
      } else if (row.kind == LaneRow::Kind::kOps && !named) {
        out().labels.push_back({{Px(5), box.y0, box.x0, box.y1},
                                lane.folded ? QStringLiteral("▸") : QStringLiteral("▾"),
                                TextStyle::kSmall,
                                {Kind::kMuted},
                                Label::Align::kLeft});
        AddLabel(box, Text(of.name), lane.folded ? TextStyle::kSmall : TextStyle::kNormal,
                 {Kind::kText});
        named = true;
      }
    }
  }

  bool Dimmed(Side side, int64_t first, int64_t last) const {
    const FilterMask* mask = in_.masks[Index(side)];
    return mask != nullptr && mask->Count(first, last) == 0;
  }

  Ink InkOf(Side side, Role role, int64_t first, int64_t last) const {
    if (in_.color == ColorBy::kRole || !in_.pair->both()) return Ink::Role(role);
    const double residual = last - first == 1 ? in_.pair->Residual({side, first})
                                              : in_.pair->MeanResidual(side, first, last);
    if (std::isnan(residual)) return {Kind::kNoTwin};
    return {Kind::kResidual, ResidualShade(residual)};
  }

  void Row(const Job& job) {
    const Side side = job.lane->side;
    const LaneRow& row = *job.row;
    const bool ghost = row.kind == LaneRow::Kind::kGhost;
    const bool first = job.track == row.track;
    if (row.kind == LaneRow::Kind::kOps && first) {
      out().fills.push_back({row.shown, {Kind::kLane}});
    }
    if (!ghost && first) Slack(side, row.shown);
    int64_t offset = 0;
    BarShape::Kind kind = BarShape::Kind::kOp;
    const TimelineModel& model = *in_.pair->model(side);
    if (row.kind == LaneRow::Kind::kOps) {
      offset = model.Ops(job.track).first_row();
    } else if (ghost) {
      offset = in_.ghost->Ops(job.track).first_row();
      kind = BarShape::Kind::kGhost;
    } else {
      offset = model.ExposureTrack(job.lane->lane).first_row();
      kind = BarShape::Kind::kExposed;
    }
    const int inset = kind == BarShape::Kind::kExposed ? Px(2) : 0;
    for (const Bar& bar : job.bars) {
      BarShape shape;
      shape.box = {layout_.chart_x0 + bar.x0, row.box.y0 + inset, layout_.chart_x0 + bar.x1,
                   row.box.y1 - inset};
      shape.box = Intersection(shape.box, row.shown);
      if (shape.box.empty()) continue;
      shape.kind = kind;
      shape.side = side;
      shape.quarters = bar.quarters;
      shape.merged = bar.merged();
      shape.first = bar.first + offset;
      shape.last = bar.last + offset;
      const bool ops = kind == BarShape::Kind::kOp;
      shape.ink = ops ? InkOf(side, bar.role, shape.first, shape.last) : Ink::Role(bar.role);
      shape.second = shape.ink;
      if (shape.ink.kind == Kind::kRole) {
        shape.second = Ink::Role(bar.second);
        shape.eighths = bar.eighths;
      }
      shape.dimmed = ops && Dimmed(side, shape.first, shape.last);
      out().bars.push_back(shape);
      Box before_gaps = shape.box;
      if (ops) {
        const std::vector<Box> gaps = GapsOf(shape.box);
        for (const Box& gap : gaps) {
          out().gaps.push_back({gap, {Kind::kLane}});
          out().gaps.push_back({gap, {Kind::kSlack}, true});
        }
        if (!gaps.empty()) before_gaps.x1 = gaps.front().x0;
      }
      const bool room =
          row.tracks == 1 && row.shown == row.box && before_gaps.width() >= Px(kLeastLabel);
      if (!shape.merged && !ghost && room) {
        BarLabel(shape, before_gaps, model);
      }
    }
  }

  void BarLabel(const BarShape& shape, Box box, const TimelineModel& model) {
    box.x0 += Px(kPadding);
    box.x1 -= Px(2);
    const bool op = shape.kind == BarShape::Kind::kOp;
    const TextStyle style = op ? TextStyle::kNormal : TextStyle::kSmall;
    if (box.height() < in_.measure->Height(style)) return;
    Ink ink = {Kind::kText};
    QString name, time;
    if (op) {
      ink = shape.ink.kind == Kind::kRole       ? Ink{Kind::kOnRole, shape.ink.value}
            : shape.ink.kind == Kind::kResidual ? Ink{Kind::kOnResidual, shape.ink.value}
                                                : Ink{Kind::kText};
      if (shape.dimmed) ink = {Kind::kMuted};
      name = ShortName(model.NameOf(shape.first));
      time = TimeText(model.timeline().duration[static_cast<size_t>(shape.first)]);
    } else {
      const Exposure exposure = model.exposure(shape.first);
      name = Text(std::string(Name(exposure.role)));
      time = TimeText(exposure.duration);
    }
    const QString both = name + QStringLiteral("  ") + time;
    const bool fits = in_.measure->Width(both, style) <= box.width();
    AddLabel(box, fits ? both : name, style, ink);
  }

  // How long a side takes for a stretch: slack and what follows the last one do not count.
  Picoseconds TimeOf(Side side, const Alignment::Stretch& stretch) const {
    const TimelineModel& model = *in_.pair->model(side);
    if (in_.alignment->by == Alignment::By::kStep) {
      if (const auto* step = model.FindStep(stretch.step)) return step->end - step->begin;
    }
    const AxisMap& map = in_.map(side);
    return std::min(map.FromAxis(stretch.axis.end), model.end()) - map.FromAxis(stretch.axis.begin);
  }

  QString StepText(const Alignment::Stretch& stretch, int level) const {
    const bool range = in_.alignment->by == Alignment::By::kRange;
    QString number = QString::number(stretch.step);
    QString text = (range ? QStringLiteral("range ") : QStringLiteral("step ")) + number;
    if (level == 0) return number;
    if (level == 1) return text;
    std::array<Picoseconds, 2> time{};
    if (stretch.predicted) time[0] = TimeOf(Side::kPredicted, stretch);
    if (stretch.measured) time[1] = TimeOf(Side::kMeasured, stretch);
    if (!stretch.predicted || !stretch.measured) {
      if (in_.pair->both()) {
        text += stretch.predicted ? QStringLiteral(", predicted only")
                                  : QStringLiteral(", measured only");
        if (level == 2) return text;
      }
      return text + QStringLiteral("   ") + TimeText(time[stretch.predicted ? 0 : 1]);
    }
    const sim::TimePair pair{{time[0]}, {time[1]}};
    if (level == 2) return text + QStringLiteral("   ") + SignedShareText(pair.relative());
    return QStringLiteral("%1   %2 %3   measured %4   %5")
        .arg(text, in_.pair->replay() ? QStringLiteral("replayed") : QStringLiteral("predicted"),
             TimeText(time[0]), TimeText(time[1]), SignedShareText(pair.relative()));
  }

  void Ruler() {
    const Box& ruler = layout_.ruler;
    out().fills.push_back({{0, ruler.y0, layout_.legend.x1, ruler.y1}, {Kind::kPanel}});
    const int middle = ruler.y0 + ruler.height() / 2;
    const Box upper{layout_.chart_x0, ruler.y0, layout_.chart_x1, middle};
    const Box lower{layout_.chart_x0, middle, layout_.chart_x1, ruler.y1};
    const auto& stretches = in_.alignment->stretches;
    const bool by_range = in_.alignment->by == Alignment::By::kRange;
    AddLabel({Px(8), upper.y0, layout_.chart_x0 - Px(6), upper.y1},
             stretches.empty() ? QStringLiteral("time")
             : by_range        ? QStringLiteral("by range")
                               : QStringLiteral("by step"),
             TextStyle::kSmall, {Kind::kMuted});
    AddLabel({Px(8), lower.y0, layout_.chart_x0 - Px(6), lower.y1},
             TimeText(in_.visible.length()) + QStringLiteral(" wide"), TextStyle::kSmall,
             {Kind::kMuted});
    if (stretches.empty()) {
      Ticks(Picoseconds{0}, in_.visible.begin, in_.visible.end, lower);
      return;
    }
    // Where steps are narrow, every 2nd, 5th, ... has its number.
    auto from = std::upper_bound(
        stretches.begin(), stretches.end(), in_.visible.begin,
        [](Picoseconds t, const Alignment::Stretch& s) { return t < s.axis.begin; });
    if (from != stretches.begin()) --from;
    const auto to = std::lower_bound(
        stretches.begin(), stretches.end(), in_.visible.end,
        [](const Alignment::Stretch& s, Picoseconds t) { return s.axis.begin < t; });
    const int64_t count = std::max<int64_t>(1, to - from);
    const int64_t most = std::max(1, layout_.chart_width() / Px(kStepLabel));
    const int64_t every = RoundStep(Picoseconds((count + most - 1) / most)).count();
    int free = upper.x0;  // right of the last label
    for (auto s = from; s != to; ++s) {
      const int begin = X(s->axis.begin), end = X(s->axis.end);
      const int x0 = std::max(begin, upper.x0), x1 = std::min(end, upper.x1);
      if (begin >= upper.x0 && every == 1) {
        out().lines.push_back({begin, ruler.y0, begin, ruler.y1, {Kind::kGrid}});
      }
      if (x1 - x0 >= Px(kLeastTicks)) {
        Ticks(s->axis.begin, std::max(s->axis.begin, in_.visible.begin),
              std::min(s->axis.end, in_.visible.end), lower);
      }
      if (every > 1 && s->step % every != 0) continue;
      const Box box{std::max(x0 + Px(kPadding), free), upper.y0, every == 1 ? x1 - Px(2) : upper.x1,
                    upper.y1};
      for (int level = every == 1 ? 3 : 0; level >= 0; --level) {
        const QString text = StepText(*s, level);
        const int width = in_.measure->Width(text, TextStyle::kSmall);
        if (width > box.width()) continue;
        out().labels.push_back({{box.x0, box.y0, box.x0 + width + 1, box.y1},
                                text,
                                TextStyle::kSmall,
                                {Kind::kText},
                                Label::Align::kLeft});
        free = box.x0 + width + Px(kPadding);
        break;
      }
    }
  }

  // Ticks of [begin, end), counted from `zero`.
  void Ticks(Picoseconds zero, Picoseconds begin, Picoseconds end, const Box& box) {
    const Picoseconds per_spacing(in_.visible.length().count() / layout_.chart_width() *
                                  Px(kTickSpacing));
    const Picoseconds step = RoundStep(std::max(per_spacing, Picoseconds{1}));
    int64_t n = (begin - zero).count() / step.count();
    const int limit = std::min(X(end), box.x1);
    for (; zero + n * step < end; ++n) {
      const Picoseconds at = zero + n * step;
      if (at < begin) continue;
      const int x = X(at);
      if (x < box.x0 || x >= box.x1) continue;
      out().lines.push_back({x, box.y0, x, box.y0 + Px(5), {Kind::kMuted}});
      const QString text = TickText(n * step, step);
      const int width = in_.measure->Width(text, TextStyle::kSmall);
      const Box label{x + Px(3), box.y0, x + Px(3) + width + 1, box.y1};
      if (label.x1 > limit) continue;
      out().labels.push_back({label, text, TextStyle::kSmall, {Kind::kMuted}, Label::Align::kLeft});
    }
  }

  void DrawLegend() {
    const Box& box = layout_.legend;
    out().fills.push_back({box, {Kind::kPanel}});
    const int swatch = Px(Legend::kSwatch);
    const Legend legend = MakeLegend(*in_.pair, in_.color, in_.pair->both() || in_.ghost != nullptr,
                                     box.width(), in_.scale, *in_.measure);
    for (const LegendEntry& entry : legend.entries) {
      const Box whole{entry.box.x0, box.y0 + entry.box.y0, entry.box.x1, box.y0 + entry.box.y1};
      if (whole.y1 > box.y1) break;  // the window is too low for it
      const int y = whole.y0 + (whole.height() - swatch) / 2;
      const Box sample{whole.x0, y, whole.x0 + swatch, y + swatch};
      if (entry.ink.kind == Kind::kSlack) {
        out().fills.push_back({sample, entry.ink, true});
      } else {
        out().bars.push_back({sample, entry.ink, BarShape::Kind::kSample, Side::kPredicted, 4,
                              false, false, 0, 0, entry.ink});
      }
      out().labels.push_back({{sample.x1 + Px(kPadding), whole.y0, whole.x1, whole.y1},
                              entry.text,
                              TextStyle::kSmall,
                              {Kind::kText},
                              Label::Align::kLeft});
      if (entry.ink.kind == Kind::kRole) {
        const auto role = static_cast<Role>(entry.ink.value);
        scene_.legend.push_back({whole, role});
        if (in_.chosen_role == role) {
          const int rim = Px(2);
          const Box frame{whole.x0 - rim, whole.y0, whole.x1 + rim, whole.y1};
          out().outlines.push_back({frame, {Kind::kAccent}, Px(1)});
        }
      }
    }
  }

  const SceneInput& in_;
  const Layout& layout_;
  const std::array<std::vector<Bar>, 2>& minimap_;
  Scene scene_;
  std::ptrdiff_t slack_from_ = 0, slack_to_ = 0;  // stretches whose slack is drawn
  std::vector<Box> slack_;                        // of the lane whose rows are drawn, ascending
};

}  // namespace

int SceneInput::Px(double logical) const { return static_cast<int>(std::lround(logical * scale)); }

std::array<std::vector<Bar>, 2> MinimapBars(const TimelinePair& pair, const Alignment& alignment,
                                            int width) {
  std::array<std::vector<Bar>, 2> bars;
  if (alignment.whole.length().count() < width) return bars;
  for (Side side : kSides) {
    const TimelineModel* model = pair.model(side).get();
    if (model == nullptr || model->rows() == 0) continue;
    const auto& lanes = model->timeline().lanes;
    size_t chosen = 0;
    const auto better = [&](size_t a, size_t b) {
      return std::tuple(lanes[a].compute && model->lanes()[a].rows > 0, model->lanes()[a].rows) >
             std::tuple(lanes[b].compute && model->lanes()[b].rows > 0, model->lanes()[b].rows);
    };
    for (size_t l = 1; l < lanes.size(); ++l) {
      if (better(l, chosen)) chosen = l;
    }
    const Columns columns(alignment.whole, width,
                          side == Side::kPredicted ? alignment.predicted : alignment.measured);
    bars[static_cast<size_t>(side)] =
        BarsOf(model->Ops(model->lanes()[chosen].first_track), columns);
  }
  return bars;
}

Scene Draw(const SceneInput& input, const std::array<std::vector<Bar>, 2>& minimap) {
  return Drawing(input, minimap).Run();
}

int ColumnOf(Picoseconds axis, AxisRange visible, const Layout& layout) {
  const double share = static_cast<double>((axis - visible.begin).count()) /
                       static_cast<double>(visible.length().count());
  const double x = std::floor(share * layout.chart_width() + 1e-9);
  return layout.chart_x0 + static_cast<int>(std::clamp(x, -1e6, 1e6));
}

Picoseconds AxisAt(double x, AxisRange visible, const Layout& layout) {
  const double share = (x - layout.chart_x0) / layout.chart_width();
  return visible.begin +
         Picoseconds(static_cast<int64_t>(share * static_cast<double>(visible.length().count())));
}

}  // namespace stallcast::gui
