#include "traces/convert/slice_set.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "traces/common/error.h"
#include "traces/convert/kernel_kinds.h"
#include "traces/convert/layout.h"
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

size_t SliceSet::Begin(uint64_t key, Slice slice) {
  slice.duration_ps = kOpen;
  const size_t row = Add(slice);
  marks_.push_back({key, slice.start, row, false});
  return row;
}

size_t SliceSet::EndOf(uint64_t key, Instant time, std::optional<uint32_t> name) {
  ends_.push_back({name, kNoRow});
  marks_.push_back({key, time, ends_.size() - 1, true});
  return ends_.size() - 1;
}

void SliceSet::PairEnds() {
  constexpr size_t kMostNested = 256;  // looked through for a name: a hostile file costs no square
  std::ranges::stable_sort(marks_, [](const Mark& a, const Mark& b) {
    if (a.key != b.key) return a.key < b.key;
    return a.time < b.time;
  });
  std::vector<size_t> open;
  for (size_t i = 0; i < marks_.size(); ++i) {
    const Mark& mark = marks_[i];
    if (i > 0 && marks_[i - 1].key != mark.key) open.clear();
    if (!mark.end) {
      open.push_back(mark.at);
      continue;
    }
    EndEvent& end = ends_[mark.at];
    if (open.empty()) {
      ++ends_without_begin_;
      continue;
    }
    size_t at = open.size() - 1;
    if (end.name) {
      const size_t first = open.size() > kMostNested ? open.size() - kMostNested : 0;
      for (size_t k = open.size(); k-- > first;) {
        if (all_.name[open[k]] != *end.name) continue;
        at = k;
        break;
      }
    }
    end.row = open[at];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    End(end.row, mark.time);
  }
  marks_ = {};
}

void SliceSet::Join(size_t call, size_t run) {
  if (correlation_[call] < 0) correlation_[call] = static_cast<int64_t>(call);
  if (correlation_[run] < 0) correlation_[run] = correlation_[call];
}

void SliceSet::EndOpenSlices(ReadReport* report) {
  if (ends_without_begin_ > 0) {
    report->problems.push_back(fmt::format("{} {} of slices without a beginning left out",
                                           ends_without_begin_,
                                           ends_without_begin_ == 1 ? "end" : "ends"));
  }
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
  // One of the times: the mean of two that lie far from each other is near none.
  const auto half = sample.begin() + std::ssize(sample) / 2;
  std::ranges::nth_element(sample, half);
  const int64_t middle = *half;

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

// Roles by name of work on a GPU, and of lanes on which all is such work.
void SliceSet::NameRoles() {
  std::vector<std::optional<Role>> role_of(names_.size());
  for (size_t row = 0; row < rows(); ++row) {
    const Lane& lane = lanes_[all_.lane[row]];
    if (lane.ours) continue;
    if (lane.runs && kind_[row] == SliceKind::kPlain) kind_[row] = SliceKind::kRun;
    if (kind_[row] != SliceKind::kRun || all_.role[row] != Role::kOther) continue;
    std::optional<Role>& role = role_of[all_.name[row]];
    if (!role) role = RoleOf(KindOfKernel(names_[all_.name[row]]));
    all_.role[row] = *role;
  }
}

// Numbers the processes of lanes anew: where several make calls, each is one with the GPU work that
// it started; else all lanes are of process 0. Work on a GPU is of the process that has calls with
// its correlations and, of several, most of them before it.
void SliceSet::FindProcesses() {
  std::map<int64_t, int64_t> number;
  for (size_t row = 0; row < rows(); ++row) {
    const Lane& lane = lanes_[all_.lane[row]];
    if (kind_[row] == SliceKind::kCall && lane.process >= 0) number.emplace(lane.process, 0);
  }
  if (number.size() < 2) {
    for (Lane& lane : lanes_) lane.process = 0;
    return;
  }
  int64_t next = 0;
  for (auto& [process, value] : number) value = next++;

  struct Call {
    int64_t correlation, process;
    Picoseconds start;
  };
  std::vector<Call> calls;
  for (size_t row = 0; row < rows(); ++row) {
    const Lane& lane = lanes_[all_.lane[row]];
    if (kind_[row] != SliceKind::kCall || correlation_[row] < 0 || lane.process < 0) continue;
    calls.push_back({correlation_[row], number.at(lane.process), all_.start[row]});
  }
  std::ranges::sort(calls, {}, &Call::correlation);
  struct Votes {
    int64_t before = 0;
    double delay = 0;
  };
  std::map<std::pair<uint16_t, int64_t>, Votes> votes;  // by lane and process
  for (size_t row = 0; row < rows(); ++row) {
    const uint16_t lane = all_.lane[row];
    if (!OnGpu(kind_[row]) || lanes_[lane].process >= 0 || correlation_[row] < 0) continue;
    auto call = std::ranges::lower_bound(calls, correlation_[row], {}, &Call::correlation);
    for (; call != calls.end() && call->correlation == correlation_[row]; ++call) {
      if (call->start > all_.start[row]) continue;
      Votes& of = votes[{lane, call->process}];
      ++of.before;
      of.delay += Seconds(all_.start[row] - call->start);
    }
  }
  std::map<uint16_t, std::pair<int64_t, Votes>> best;  // by lane
  std::map<int64_t, int64_t> of_gpu;                   // for its lanes without correlations
  for (const auto& [key, of] : votes) {
    auto [known, fresh] = best.try_emplace(key.first, key.second, of);
    const Votes& most = known->second.second;
    if (of.before > most.before || (of.before == most.before && of.delay < most.delay)) {
      known->second = {key.second, of};
    }
  }
  for (const auto& [lane, process] : best) {
    if (lanes_[lane].gpu >= 0) of_gpu.try_emplace(lanes_[lane].gpu, process.first);
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const auto known = number.find(lane.process);
    const auto voted = best.find(static_cast<uint16_t>(i));
    const auto gpu = of_gpu.find(lane.gpu);
    lane.process = lane.process >= 0     ? (known == number.end() ? next : known->second)
                   : voted != best.end() ? voted->second.first
                   : gpu != of_gpu.end() ? gpu->second
                                         : next;
  }
}

// By row, the step of a range that is one; -1 for all others. Ranges of one name with numbers that
// rise are steps by these numbers; others are counted on their lane, and of nested ones the outer
// ones alone.
std::vector<int32_t> SliceSet::StepOfRanges(const ImportOptions& options) const {
  std::vector<std::optional<NumberedName>> step_name(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    step_name[i] = options.step_range.empty() ? StepName(names_[i])
                                              : FamilyName(names_[i], options.step_range);
    if (!step_name[i] && options.step_range.empty()) step_name[i] = ServerStepName(names_[i]);
  }
  struct Family {
    std::map<uint16_t, std::vector<uint32_t>> rows;  // by lane, in order of time
    int64_t ranges = 0;
    bool rises = true;
  };
  std::map<std::string_view, Family> families;
  for (size_t row = 0; row < rows(); ++row) {
    const auto& name = step_name[all_.name[row]];
    if (!name || !IsRange(row)) continue;
    // Of calls and functions only numbers make a step.
    const bool range = kind_[row] == SliceKind::kRange || kind_[row] == SliceKind::kRunRange;
    if (options.step_range.empty() && name->number < 0 && !range) continue;
    Family& family = families[name->family];
    family.rows[all_.lane[row]].push_back(static_cast<uint32_t>(row));
    ++family.ranges;
  }
  if (families.empty()) {
    if (!options.step_range.empty()) throw NoSuchRange(options.step_range);
    return {};
  }
  const Family* chosen = nullptr;
  for (auto& [name, family] : families) {
    for (auto& [lane, rows_of] : family.rows) {
      std::ranges::stable_sort(rows_of, [&](uint32_t a, uint32_t b) {
        return std::tuple(all_.start[a], -all_.duration[a]) <
               std::tuple(all_.start[b], -all_.duration[b]);
      });
      int32_t before = -1;
      for (const uint32_t row : rows_of) {
        const int32_t number = step_name[all_.name[row]]->number;
        family.rises &= number > before;
        before = number;
      }
    }
    const auto rank = [](const Family& f) { return std::pair(f.rises, f.ranges); };
    if (chosen == nullptr || rank(family) > rank(*chosen)) chosen = &family;
  }
  std::vector<int32_t> step_of(rows(), -1);
  for (const auto& [lane, rows_of] : chosen->rows) {
    int32_t counted = 0;
    Picoseconds end = Picoseconds::min();
    for (const uint32_t row : rows_of) {
      if (chosen->rises) {
        step_of[row] = step_name[all_.name[row]]->number;
      } else if (all_.start[row] >= end) {
        step_of[row] = counted++;
        end = all_.start[row] + all_.duration[row];
      }
    }
  }
  if (chosen->rises) return step_of;
  // Counted on several threads of a process: those with most of them are the steps.
  std::map<std::pair<int64_t, bool>, size_t> most;
  const auto place = [&](uint16_t lane) {
    return std::pair(lanes_[lane].process, OnGpu(kind_[chosen->rows.at(lane).front()]));
  };
  for (const auto& [lane, rows_of] : chosen->rows) {
    size_t& count = most[place(lane)];
    count = std::max(count, rows_of.size());
  }
  for (const auto& [lane, rows_of] : chosen->rows) {
    if (rows_of.size() == most.at(place(lane))) continue;
    for (const uint32_t row : rows_of) step_of[row] = -1;
  }
  return step_of;
}

Error SliceSet::NoSuchRange(const std::string& name) const {
  std::map<std::string, int64_t> families;
  for (size_t row = 0; row < rows(); ++row) {
    if (kind_[row] != SliceKind::kRange && kind_[row] != SliceKind::kRunRange) continue;
    if (IsOurs(row) || all_.role[row] == Role::kSync) continue;
    ++families[std::string(WithoutNumber(names_[all_.name[row]]))];
  }
  std::vector<std::pair<std::string, int64_t>> sorted(families.begin(), families.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kMost = 8;
  std::string known;
  for (size_t i = 0; i < std::min(kMost, sorted.size()); ++i) {
    known += fmt::format("{}{} ({})", i == 0 ? "" : ", ", sorted[i].first, sorted[i].second);
  }
  if (sorted.size() > kMost) known += ", ...";
  return Error(fmt::format("no range is named '{}'", name), "--step-range",
               known.empty() ? "the file has no ranges: leave it out" : "there are " + known);
}

// Steps and layers of host rows, from ranges of their process; those of GPU rows follow from their
// calls, or where there is none, from ranges on the GPU.
void SliceSet::FindNumbers(const ImportOptions& options) {
  std::vector<std::optional<NumberedName>> layers(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) layers[i] = LayerName(names_[i]);
  const std::vector<int32_t> step_of = StepOfRanges(options);

  // By lane, and for a whole process: of the host, of the GPU.
  int64_t processes = 0;
  for (const Lane& lane : lanes_) processes = std::max(processes, lane.process + 1);
  struct Places {
    std::vector<NumberedRanges> lane, host, gpu;
  };
  Places step_places, layer_places;
  for (Places* places : {&step_places, &layer_places}) {
    places->lane.resize(lanes_.size());
    places->host.resize(static_cast<size_t>(processes));
    places->gpu.resize(static_cast<size_t>(processes));
  }
  bool any = false;
  const auto add = [&](Places* places, size_t row, int32_t number) {
    any = true;
    const Picoseconds end = all_.start[row] + all_.duration[row];
    const auto process = static_cast<size_t>(lanes_[all_.lane[row]].process);
    NumberedRanges& all = OnGpu(kind_[row]) ? places->gpu[process] : places->host[process];
    all.Add(all_.start[row], end, number);
    places->lane[all_.lane[row]].Add(all_.start[row], end, number);
  };
  for (size_t row = 0; row < rows(); ++row) {
    if (!IsRange(row)) continue;
    if (!step_of.empty() && step_of[row] >= 0) add(&step_places, row, step_of[row]);
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
    const auto process = static_cast<size_t>(lanes_[lane].process);
    const Picoseconds time = all_.start[row];
    if (!places.lane[lane].empty()) return places.lane[lane].At(time);
    return (OnGpu(kind_[row]) ? places.gpu : places.host)[process].At(time);
  };
  for (size_t row = 0; row < rows(); ++row) {
    if (IsOurs(row)) continue;
    if (all_.step[row] < 0) all_.step[row] = at(step_places, row);
    if (all_.layer[row] < 0) all_.layer[row] = static_cast<int16_t>(at(layer_places, row));
  }
}

// Gives calls and what they started their ops, and the latter the step and layer of the former.
void SliceSet::JoinCalls() {
  struct Joined {
    int64_t process, correlation;
    uint32_t row;
    auto operator<=>(const Joined&) const = default;
  };
  std::vector<Joined> joined;
  for (size_t row = 0; row < rows(); ++row) {
    if (correlation_[row] >= 0 && all_.op[row] < 0) {
      const int64_t process = lanes_[all_.lane[row]].process;
      joined.push_back({process, correlation_[row], static_cast<uint32_t>(row)});
    }
  }
  correlation_ = {};
  std::sort(joined.begin(), joined.end());
  for (size_t begin = 0; begin < joined.size();) {
    size_t end = begin;
    size_t runs = 0;
    const uint32_t* call = nullptr;
    for (; end < joined.size() && joined[end].correlation == joined[begin].correlation &&
           joined[end].process == joined[begin].process;
         ++end) {
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

// Of the streams of each GPU, the one busiest with kernels that compute: neither copies nor
// communication.
void SliceSet::MarkCompute() {
  std::vector<double> busy(lanes_.size());
  for (size_t row = 0; row < rows(); ++row) {
    if (kind_[row] != SliceKind::kRun || MovesData(all_.role[row])) continue;
    const std::string& name = names_[all_.name[row]];
    if (name.starts_with("Mem") || all_.bytes[row] != 0) continue;
    busy[all_.lane[row]] += Seconds(all_.duration[row]);
  }
  std::map<std::pair<int, int64_t>, size_t> busiest;  // by timeline and GPU
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (lane.ours || busy[i] == 0) continue;
    const auto [known, fresh] = busiest.try_emplace({lane.timeline, lane.gpu}, i);
    if (busy[i] > busy[known->second]) known->second = i;
  }
  for (const auto& [gpu, lane] : busiest) lanes_[lane].compute = true;
}

// A stream runs its work one after the other, but for kernels that are launched to begin while the
// one ahead ends; a time that overflowed makes one lie over many.
void SliceSet::NoteOverlaps() {
  constexpr Picoseconds kBeginsEarly{10'000'000};
  std::map<uint16_t, std::pair<Picoseconds, int64_t>> lanes;  // latest end, rows that begin before
  for (size_t row = 0; row < rows(); ++row) {
    if (kind_[row] != SliceKind::kRun || IsOurs(row)) continue;
    auto& [end, early] = lanes[all_.lane[row]];
    if (all_.start[row] + kBeginsEarly < end && all_.duration[row].count() > 0) ++early;
    end = std::max(end, all_.start[row] + all_.duration[row]);
  }
  for (const auto& [lane, of] : lanes) {
    if (of.second == 0) continue;
    head(lanes_[lane].timeline)
        .notes.push_back(fmt::format("{}: {} {} before what is ahead on the stream has ended",
                                     lanes_[lane].name, of.second,
                                     of.second == 1 ? "slice begins" : "slices begin"));
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
    if (used[i] || lanes_[i].ours) order.push_back(static_cast<uint16_t>(i));
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
  NameRoles();
  FindProcesses();
  FindNumbers(options);
  JoinCalls();
  JoinFlows();
  MarkCompute();
  NoteOverlaps();
  report->records += static_cast<int64_t>(rows());
  std::vector<bool> ours(heads_.size());
  for (const Lane& lane : lanes_) {
    if (lane.ours) ours[static_cast<size_t>(lane.timeline)] = true;
  }
  std::vector<Timeline> timelines = Split();
  for (size_t i = 0; i < timelines.size() && i < ours.size(); ++i) {
    if (ours[i]) DirectFlowsByEnds(&timelines[i]);
  }
  return timelines;
}

}  // namespace stallcast::traces::convert
