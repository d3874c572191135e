#include "traces/convert/slice_set.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "traces/common/error.h"
#include "traces/common/median.h"
#include "traces/convert/ranges.h"
#include "traces/reorder.h"

namespace stallcast::traces::convert {
namespace {

constexpr size_t kMaxLanes = std::numeric_limits<uint16_t>::max();
constexpr int64_t kMaxRows = std::numeric_limits<uint32_t>::max();

// Times further than this from most others are no times of this run. Twice this, and a duration on
// top, fit into 64 bits of picoseconds.
constexpr int64_t kReachNs = int64_t{20} * 24 * 3600 * 1'000'000'000;
constexpr int64_t kMaxDurationPs = int64_t{1} << 62;

int64_t DistanceNs(int64_t a, int64_t b) {
  const uint64_t distance = a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                  : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
  return static_cast<int64_t>(
      std::min<uint64_t>(distance, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

// Picoseconds between two instants, at most kMaxDurationPs and at least its negative.
int64_t Between(Instant from, Instant to) {
  constexpr int64_t kMostNs = kMaxDurationPs / 1000;
  if (DistanceNs(from.ns, to.ns) >= kMostNs) {
    return from < to ? kMaxDurationPs : -kMaxDurationPs;
  }
  return (to.ns - from.ns) * 1000 + to.ps - from.ps;
}

bool OnGpu(SliceKind kind) { return kind == SliceKind::kRun || kind == SliceKind::kRunRange; }

}  // namespace

size_t SliceSet::NameHash::operator()(std::string_view name) const {
  return XXH3_64bits(name.data(), name.size());
}

SliceSet::SliceSet() { heads_.emplace_back(); }

uint32_t SliceSet::Intern(std::string_view name) {
  if (const auto known = name_index_.find(name); known != name_index_.end()) return known->second;
  names_.emplace_back(name);
  const auto index = static_cast<uint32_t>(names_.size() - 1);
  name_index_.emplace(names_.back(), index);
  return index;
}

int SliceSet::AddTimeline() {
  heads_.emplace_back();
  return timelines() - 1;
}

uint16_t SliceSet::AddLane(Lane lane) {
  if (lanes_.size() == kMaxLanes) {
    lanes_overflow_ = true;
    return static_cast<uint16_t>(kMaxLanes - 1);
  }
  lanes_.push_back(std::move(lane));
  return static_cast<uint16_t>(lanes_.size() - 1);
}

size_t SliceSet::Add(const Slice& slice) {
  if (std::ssize(kind_) == kMaxRows) {
    throw Error("holds more slices than a timeline can", fmt::format("slice {}", kMaxRows),
                "record a shorter run");
  }
  all_.lane.push_back(slice.lane);
  all_.op.push_back(slice.op);
  all_.step.push_back(slice.step);
  all_.layer.push_back(slice.layer);
  all_.role.push_back(slice.role);
  all_.name.push_back(slice.name);
  all_.start.emplace_back(slice.start.ns);
  all_.duration.emplace_back(slice.duration_ps);
  all_.bytes.push_back(slice.bytes);
  start_ps_.push_back(slice.start.ps);
  correlation_.push_back(slice.correlation);
  kind_.push_back(slice.kind);
  largest_op_ = std::max(largest_op_, slice.op);
  if (slice.duration_ps == kOpen) {
    ++open_;
    last_ = std::max(last_, slice.start);
  } else if (slice.duration_ps < 0) {
    ++negative_;
    all_.duration.back() = Picoseconds(0);
  } else {
    all_.duration.back() = Picoseconds(std::min(slice.duration_ps, kMaxDurationPs));
  }
  return kind_.size() - 1;
}

void SliceSet::End(size_t row, Instant end) {
  last_ = std::max(last_, end);
  const int64_t duration = Between(start(row), end);
  if (duration < 0) ++negative_;
  all_.duration[row] = Picoseconds(std::max<int64_t>(0, duration));
  --open_;
}

void SliceSet::Join(size_t call, size_t run) {
  if (correlation_[call] < 0) correlation_[call] = static_cast<int64_t>(call);
  if (correlation_[run] < 0) correlation_[run] = correlation_[call];
}

void SliceSet::EndOpenSlices(ReadReport* report) {
  if (open_ > 0) {
    for (size_t row = 0; row < rows(); ++row) {
      if (all_.duration[row].count() != kOpen) continue;
      all_.duration[row] = Picoseconds(std::max<int64_t>(0, Between(start(row), last_)));
    }
    report->problems.push_back(
        fmt::format("{} slices have no end; they are drawn to the last time known", open_));
  }
  if (negative_ > 0) {
    report->problems.push_back(
        fmt::format("{} slices end before they begin; their duration is taken as 0", negative_));
  }
}

// Turns nanoseconds of any clock into picoseconds since the earliest start, and brings the rows
// into order of start within each lane (of all rows, where they are not in order already).
void SliceSet::PlaceInTime(ReadReport* report) {
  if (rows() == 0) return;
  std::vector<int64_t> sample;
  const size_t stride = rows() / 65'536 + 1;
  for (size_t row = 0; row < rows(); row += stride) sample.push_back(all_.start[row].count());
  const int64_t middle = Median(std::move(sample));

  std::vector<uint32_t> order;
  order.reserve(rows());
  Instant first{std::numeric_limits<int64_t>::max(), 0};
  int64_t without_time = 0;
  for (size_t row = 0; row < rows(); ++row) {
    if (DistanceNs(all_.start[row].count(), middle) <= kReachNs) {
      order.push_back(static_cast<uint32_t>(row));
      first = std::min(first, start(row));
    } else if (all_.start[row].count() == 0) {
      ++without_time;
    }
  }
  const auto lost = static_cast<int64_t>(rows() - order.size());
  if (lost > without_time) {
    report->problems.push_back(fmt::format(
        "{} slices lie more than 20 days from the others and are left out", lost - without_time));
  }
  if (without_time > 0) {
    report->zero_stamps += without_time;
    report->problems.push_back(
        fmt::format("{} slices have no time (their stamp is 0) and are left out", without_time));
  }
  origin_ = first;
  for (const uint32_t row : order) {
    const Instant at = start(row);
    all_.start[row] = Picoseconds((at.ns - first.ns) * 1000 + at.ps - first.ps);
  }
  start_ps_ = {};

  std::vector<Picoseconds> latest(lanes_.size(), Picoseconds::min());
  const bool sorted = std::ranges::all_of(order, [&](uint32_t row) {
    return std::exchange(latest[all_.lane[row]], all_.start[row]) <= all_.start[row];
  });
  if (!sorted) {
    std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
      return std::tuple(all_.start[a], -all_.duration[a], a) <
             std::tuple(all_.start[b], -all_.duration[b], b);
    });
  } else if (lost == 0) {
    return;
  }
  if (!row_flows_.empty()) {
    constexpr uint32_t kGone = std::numeric_limits<uint32_t>::max();
    std::vector<uint32_t> place(rows(), kGone);  // by the number before rows are left out below
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<uint32_t>(i);
    for (RowPair& flow : row_flows_) flow = {place[flow.from], place[flow.to]};
    std::erase_if(row_flows_, [&](const RowPair& f) { return f.from == kGone || f.to == kGone; });
  }
  Reorder(all_, order);
  Reorder(correlation_, order);
  Reorder(kind_, order);
}

// Steps and layers of host rows, from ranges; those of GPU rows follow from their calls, or where
// there is none, from ranges on the GPU.
void SliceSet::FindNumbers(const ImportOptions& options) {
  std::vector<std::optional<NumberedName>> steps(names_.size()), layers(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    steps[i] = options.step_range.empty() ? StepName(names_[i])
                                          : FamilyName(names_[i], options.step_range);
    layers[i] = LayerName(names_[i]);
  }
  const auto is_range = [&](size_t row) {
    return kind_[row] != SliceKind::kCall && kind_[row] != SliceKind::kRun && all_.op[row] < 0;
  };
  std::map<std::string_view, int64_t> families;
  for (size_t row = 0; row < rows(); ++row) {
    const auto& name = steps[all_.name[row]];
    if (name && is_range(row)) ++families[name->family];
  }
  const auto most = std::ranges::max_element(families, {}, [](const auto& f) { return f.second; });
  const std::string_view family = families.empty() ? std::string_view() : most->first;

  // By lane, and for a whole timeline: of the host, of the GPU.
  struct Places {
    std::vector<NumberedRanges> lane, host, gpu;
  };
  Places step_places, layer_places;
  for (Places* places : {&step_places, &layer_places}) {
    places->lane.resize(lanes_.size());
    places->host.resize(heads_.size());
    places->gpu.resize(heads_.size());
  }
  bool any = false;
  int32_t counted = 0;
  const auto add = [&](Places* places, size_t row, int32_t number) {
    any = true;
    const Picoseconds end = all_.start[row] + all_.duration[row];
    const auto timeline = static_cast<size_t>(lanes_[all_.lane[row]].timeline);
    NumberedRanges& all = OnGpu(kind_[row]) ? places->gpu[timeline] : places->host[timeline];
    all.Add(all_.start[row], end, number);
    places->lane[all_.lane[row]].Add(all_.start[row], end, number);
  };
  for (size_t row = 0; row < rows(); ++row) {
    if (!is_range(row)) continue;
    const auto& step = steps[all_.name[row]];
    if (step && step->family == family) {
      add(&step_places, row, step->number < 0 ? counted++ : step->number);
    }
    const auto& layer = layers[all_.name[row]];
    if (layer && std::in_range<int16_t>(layer->number)) add(&layer_places, row, layer->number);
  }
  if (!any) return;
  for (Places* places : {&step_places, &layer_places}) {
    for (auto* ranges : {&places->lane, &places->host, &places->gpu}) {
      for (NumberedRanges& r : *ranges) r.Arrange();
    }
  }
  const auto at = [&](const Places& places, size_t row) {
    const uint16_t lane = all_.lane[row];
    const auto timeline = static_cast<size_t>(lanes_[lane].timeline);
    const Picoseconds time = all_.start[row];
    if (!places.lane[lane].empty()) return places.lane[lane].At(time);
    return (OnGpu(kind_[row]) ? places.gpu : places.host)[timeline].At(time);
  };
  for (size_t row = 0; row < rows(); ++row) {
    if (all_.step[row] < 0) all_.step[row] = at(step_places, row);
    if (all_.layer[row] < 0) all_.layer[row] = static_cast<int16_t>(at(layer_places, row));
  }
}

// Gives calls and what they started their ops, and the latter the step and layer of the former.
void SliceSet::JoinCalls() {
  struct Joined {
    int64_t correlation;
    uint32_t row;
    bool operator<(const Joined& other) const {
      return correlation != other.correlation ? correlation < other.correlation : row < other.row;
    }
  };
  std::vector<Joined> joined;
  for (size_t row = 0; row < rows(); ++row) {
    if (correlation_[row] >= 0 && all_.op[row] < 0) {
      joined.push_back({correlation_[row], static_cast<uint32_t>(row)});
    }
  }
  correlation_ = {};
  std::sort(joined.begin(), joined.end());
  for (size_t begin = 0; begin < joined.size();) {
    size_t end = begin;
    size_t runs = 0;
    const uint32_t* call = nullptr;
    for (; end < joined.size() && joined[end].correlation == joined[begin].correlation; ++end) {
      if (OnGpu(kind_[joined[end].row])) {
        ++runs;
      } else if (call == nullptr) {
        call = &joined[end].row;
      }
    }
    const int64_t op = ++largest_op_;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t row = joined[i].row;
      if (!OnGpu(kind_[row])) {
        all_.op[row] = op;
        continue;
      }
      const bool own = runs > 1 && call != nullptr;
      all_.op[row] = own || call == nullptr ? ++largest_op_ : op;
      if (own) HeadOf(row).flows.push_back({op, all_.op[row]});
      if (call == nullptr) continue;
      if (all_.step[*call] >= 0) all_.step[row] = all_.step[*call];
      if (all_.layer[*call] >= 0) all_.layer[row] = all_.layer[*call];
    }
    begin = end;
  }
  for (size_t row = 0; row < rows(); ++row) {
    if (kind_[row] == SliceKind::kRun) OpOf(row);
  }
}

int64_t SliceSet::OpOf(size_t row) {
  if (all_.op[row] < 0) all_.op[row] = ++largest_op_;
  return all_.op[row];
}

void SliceSet::JoinFlows() {
  const auto join = [&](size_t from, size_t to) {
    if (&HeadOf(from) != &HeadOf(to)) return;
    const TimelineFlow flow{OpOf(from), OpOf(to)};
    if (flow.from_op != flow.to_op) HeadOf(from).flows.push_back(flow);
  };
  for (const RowPair& flow : row_flows_) join(flow.from, flow.to);
  if (end_flows_.empty()) return;

  // Rows of the lanes that flows end on, in order of start.
  std::vector<bool> wanted(lanes_.size());
  for (const EndPair& flow : end_flows_) wanted[flow.from.lane] = wanted[flow.to.lane] = true;
  std::vector<std::vector<uint32_t>> rows_of(lanes_.size());
  for (size_t row = 0; row < rows(); ++row) {
    if (wanted[all_.lane[row]]) rows_of[all_.lane[row]].push_back(static_cast<uint32_t>(row));
  }
  int64_t lost = 0;
  for (const EndPair& flow : end_flows_) {
    const int timeline = lanes_[flow.from.lane].timeline;
    if (flow.from.op >= 0 && flow.to.op >= 0 && lanes_[flow.to.lane].timeline == timeline) {
      head(timeline).flows.push_back({flow.from.op, flow.to.op});
      continue;
    }
    const std::optional<size_t> from = RowAt(flow.from, rows_of[flow.from.lane]);
    const std::optional<size_t> to = RowAt(flow.to, rows_of[flow.to.lane]);
    if (from && to) {
      join(*from, *to);
    } else {
      ++lost;
    }
  }
  if (lost > 0) {
    heads_[0].notes.push_back(
        fmt::format("{} flows begin or end where there is no slice and are left out", lost));
  }
}

std::optional<size_t> SliceSet::RowAt(const FlowEnd& end,
                                      const std::vector<uint32_t>& lane_rows) const {
  constexpr int kMostNested = 256;  // looked at, so that a hostile file cannot cost square time
  const Picoseconds time(Between(origin_, end.time));
  const auto start = [&](uint32_t row) { return all_.start[row]; };
  if (end.next) {
    const auto next = std::ranges::lower_bound(lane_rows, time, {}, start);
    return next == lane_rows.end() ? std::nullopt : std::optional<size_t>(*next);
  }
  auto row = std::ranges::upper_bound(lane_rows, time, {}, start);
  for (int i = 0; i < kMostNested && row != lane_rows.begin(); ++i) {
    --row;
    if (all_.start[*row] + all_.duration[*row] >= time) return *row;
  }
  return std::nullopt;
}

// Where no lane is said to compute: of the streams of a timeline, the one busiest with kernels.
void SliceSet::MarkCompute() {
  std::vector<bool> known(heads_.size());
  for (const Lane& lane : lanes_) {
    if (lane.compute) known[static_cast<size_t>(lane.timeline)] = true;
  }
  std::vector<double> busy(lanes_.size());
  for (size_t row = 0; row < rows(); ++row) {
    if (kind_[row] == SliceKind::kRun && all_.bytes[row] == 0) {
      busy[all_.lane[row]] += Seconds(all_.duration[row]);
    }
  }
  for (size_t timeline = 0; timeline < heads_.size(); ++timeline) {
    if (known[timeline] || heads_[timeline].origin != Timeline::Origin::kImported) continue;
    Lane* busiest = nullptr;
    double most = 0;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].timeline != static_cast<int>(timeline) || busy[i] <= most) continue;
      most = busy[i];
      busiest = &lanes_[i];
    }
    if (busiest != nullptr) busiest->compute = true;
  }
}

// Fills the lanes of the heads; for each of the set's lanes gives its place among them.
std::vector<uint16_t> SliceSet::ArrangeLanes() {
  if (lanes_overflow_)
    lanes_.back() = {.name = "all further lanes", .timeline = lanes_.back().timeline};
  std::vector<bool> used(lanes_.size());
  for (const uint16_t lane : all_.lane) used[lane] = true;
  std::vector<uint16_t> order;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (used[i] || lanes_[i].keep_empty) order.push_back(static_cast<uint16_t>(i));
  }
  std::ranges::stable_sort(order, [&](uint16_t a, uint16_t b) {
    return std::tie(lanes_[a].order, lanes_[a].name) < std::tie(lanes_[b].order, lanes_[b].name);
  });
  std::vector<uint16_t> place(lanes_.size());
  std::map<std::pair<int, int64_t>, uint16_t> merged;
  for (const uint16_t i : order) {
    const Lane& lane = lanes_[i];
    std::vector<TimelineLane>& lanes = heads_[static_cast<size_t>(lane.timeline)].lanes;
    place[i] = static_cast<uint16_t>(lanes.size());
    if (lane.part_of >= 0) {
      const auto [first, fresh] = merged.try_emplace({lane.timeline, lane.part_of}, place[i]);
      place[i] = first->second;
      if (!fresh) continue;
    }
    lanes.push_back({lane.name, lane.kind, lane.compute});
  }
  return place;
}

std::vector<Timeline> SliceSet::Split() {
  const std::vector<uint16_t> place = ArrangeLanes();
  if (heads_.size() == 1) {
    for (uint16_t& lane : all_.lane) lane = place[lane];
    all_.origin = heads_[0].origin;
    all_.title = std::move(heads_[0].title);
    all_.notes = std::move(heads_[0].notes);
    all_.lanes = std::move(heads_[0].lanes);
    all_.flows = std::move(heads_[0].flows);
    all_.names.assign(names_.begin(), names_.end());
    heads_[0] = std::move(all_);
    return std::move(heads_);
  }
  std::map<std::pair<int, uint32_t>, uint32_t> name_of;  // by timeline and the set's name
  for (size_t row = 0; row < rows(); ++row) {
    Timeline& timeline = HeadOf(row);
    const auto [name, fresh] =
        name_of.try_emplace({lanes_[all_.lane[row]].timeline, all_.name[row]},
                            static_cast<uint32_t>(timeline.names.size()));
    if (fresh) timeline.names.push_back(names_[all_.name[row]]);
    timeline.lane.push_back(place[all_.lane[row]]);
    timeline.op.push_back(all_.op[row]);
    timeline.step.push_back(all_.step[row]);
    timeline.layer.push_back(all_.layer[row]);
    timeline.role.push_back(all_.role[row]);
    timeline.name.push_back(name->second);
    timeline.start.push_back(all_.start[row]);
    timeline.duration.push_back(all_.duration[row]);
    timeline.bytes.push_back(all_.bytes[row]);
  }
  return std::move(heads_);
}

std::vector<Timeline> SliceSet::Finish(const ImportOptions& options, ReadReport* report) {
  EndOpenSlices(report);
  PlaceInTime(report);
  FindNumbers(options);
  JoinCalls();
  JoinFlows();
  MarkCompute();
  report->records += static_cast<int64_t>(rows());
  return Split();
}

}  // namespace stallcast::traces::convert
