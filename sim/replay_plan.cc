#include "sim/replay_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "traces/common/error.h"
#include "traces/convert/kernel_kinds.h"

namespace stallcast::sim {
namespace {

using traces::LaneKind;
using traces::Role;
using traces::Timeline;

constexpr int64_t kMicrosecond = 1'000'000;
// A copy's start and tail, a share of its time that no link speeds up.
constexpr int64_t kCopyFixed = 2 * kMicrosecond;
// An op that begins so much later than anything known would have it waits for something else.
constexpr int64_t kUnexplained = 5 * kMicrosecond;
// How close behind an op's end another begins that waited for it.
constexpr int64_t kJustBehind = 8 * kMicrosecond;
// What an event takes from the end of what it is recorded behind.
constexpr int64_t kEvent = 2 * kMicrosecond;
// A host thread that waits takes so long to go on, and such a call at least.
constexpr int64_t kWake = 5 * kMicrosecond;

int64_t Percentile(std::vector<int64_t> values, double share, int64_t fallback) {
  if (values.empty()) return fallback;
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

struct OpKey {
  int64_t op;
  int32_t step;
  bool operator==(const OpKey&) const = default;
};
struct OpKeyHash {
  size_t operator()(const OpKey& key) const {
    return static_cast<size_t>(key.op) * 0x9e3779b97f4a7c15u ^ static_cast<size_t>(key.step);
  }
};

class PlanMaker {
 public:
  PlanMaker(const Timeline& t, const ReplayMachine& machine) : t_(t) {
    plan_.recording = &t;
    plan_.machine = machine;
  }

  ReplayPlan Make() {
    AddOps();
    JoinCalls();
    SetCopies();
    FindUsual();
    FindSyncs();
    FindNamedWaits();
    FindUnnamedWaits();
    SetLags();
    FindMeetings();
    StoreWaits();
    Note();
    return std::move(plan_);
  }

 private:
  std::string_view NameOf(int64_t row) const { return t_.names[t_.name[static_cast<size_t>(row)]]; }
  ReplayOp& At(int64_t op) { return plan_.ops[static_cast<size_t>(op)]; }

  // The GPU that a lane is of, by its name: "GPU 1 stream 7", "[TP01] GPU 0 stream 7".
  uint8_t GpuOf(uint16_t lane) {
    const std::string& name = t_.lanes[lane].name;
    const size_t at = name.find(" stream ");
    const std::string gpu = at == std::string::npos ? "" : name.substr(0, at);
    const auto known = gpus_.try_emplace(gpu, std::min<size_t>(gpus_.size(), 255)).first;
    return static_cast<uint8_t>(known->second);
  }

  uint16_t KindOf(int64_t row, bool host) {
    const auto i = static_cast<size_t>(row);
    const auto key = std::tuple(t_.name[i], t_.role[i], host);
    if (const auto known = kind_of_.find(key); known != kind_of_.end()) return known->second;
    const std::string kind = host && !IsWork(t_, row) ? "host" : KindOfRow(t_, row);
    const auto at = std::ranges::find(plan_.kinds, kind);
    const auto index = static_cast<uint16_t>(at - plan_.kinds.begin());
    if (at == plan_.kinds.end()) plan_.kinds.push_back(kind);
    kind_of_[key] = index;
    return index;
  }

  // Whether a row of that name is a copy of an engine, and no kernel that reads the host's memory.
  bool IsCopy(uint32_t name) {
    if (is_copy_.empty()) is_copy_.assign(t_.names.size(), 2);
    if (is_copy_[name] == 2) {
      const traces::KernelKind kind = traces::KindOfKernel(t_.names[name]);
      is_copy_[name] = kind == traces::KernelKind::kCopyToGpu ||
                               kind == traces::KernelKind::kCopyToHost || t_.names[name] == "copy"
                           ? 1
                           : 0;
    }
    return is_copy_[name] == 1;
  }

  // Rows of host threads with an op, not within one another, and work on GPUs, by recorded begin.
  void AddOps() {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < t_.rows(); ++row) {
      const auto i = static_cast<size_t>(row);
      const bool host = t_.lanes[t_.lane[i]].kind == LaneKind::kHost;
      if (host ? t_.op[i] >= 0 : IsWork(t_, row)) rows.push_back(row);
    }
    std::ranges::stable_sort(rows, [&](int64_t a, int64_t b) {
      const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
      // Of those that begin together the host's come first, and the longer.
      const auto host = [&](size_t r) { return t_.lanes[t_.lane[r]].kind == LaneKind::kHost; };
      return std::tuple(t_.start[i], !host(i), -t_.duration[i]) <
             std::tuple(t_.start[j], !host(j), -t_.duration[j]);
    });
    std::vector<int64_t> last(t_.lanes.size(), -1);
    op_of_row_.assign(static_cast<size_t>(t_.rows()), -1);
    for (const int64_t row : rows) {
      const auto i = static_cast<size_t>(row);
      ReplayOp op;
      op.row = row;
      op.lane = t_.lane[i];
      op.host = t_.lanes[op.lane].kind == LaneKind::kHost;
      op.start = t_.start[i].count();
      op.end = op.start + t_.duration[i].count();
      op.duration = op.end - op.start;
      op.kind = KindOf(row, op.host);
      op.behind = last[op.lane];
      if (op.host) {
        if (op.behind >= 0 && op.start < At(op.behind).end) {  // within the call before
          op_of_row_[i] = op.behind;
          continue;
        }
      } else {
        op.gpu = GpuOf(op.lane);
        if (t_.role[i] == Role::kRecall) op.way = CopyWay::kToGpu;
        if (t_.role[i] == Role::kOffload) op.way = CopyWay::kToHost;
        op.engine = op.way != CopyWay::kNone && IsCopy(t_.name[i]);
        ++found_.work;
        found_.busy += static_cast<double>(op.duration) * 1e-12;
      }
      op_of_row_[i] = std::ssize(plan_.ops);
      last[op.lane] = op_of_row_[i];
      plan_.ops.push_back(op);
    }
    if (found_.work == 0) {
      throw Error("holds no work of a GPU", t_.title, "record kernels and copies too");
    }
    waits_.resize(plan_.ops.size());
  }

  void JoinCalls() {
    std::unordered_map<OpKey, int64_t, OpKeyHash> call_of;
    const auto works = static_cast<size_t>(found_.work);
    call_of.reserve(2 * (plan_.ops.size() - works));
    first_run_.reserve(works);
    runs_of_.reserve(works);
    for (int64_t row = 0; row < t_.rows(); ++row) {
      const auto i = static_cast<size_t>(row);
      if (t_.op[i] < 0 || t_.lanes[t_.lane[i]].kind != LaneKind::kHost) continue;
      call_of.try_emplace({t_.op[i], t_.step[i]}, op_of_row_[i]);
      call_of.try_emplace({t_.op[i], -2}, op_of_row_[i]);
    }
    std::unordered_map<int64_t, int64_t> launched_by;  // an op by a graph's launch
    for (const traces::TimelineFlow& flow : t_.flows) {
      if (call_of.contains({flow.from_op, -2})) launched_by.try_emplace(flow.to_op, flow.from_op);
    }
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      ReplayOp& op = At(k);
      if (op.host) continue;
      const auto i = static_cast<size_t>(op.row);
      first_run_.try_emplace({t_.op[i], t_.step[i]}, k);
      auto call = call_of.find({t_.op[i], t_.step[i]});
      if (call == call_of.end() && t_.origin == Timeline::Origin::kImported) {
        call = call_of.find({t_.op[i], -2});
      }
      if (call == call_of.end()) {
        const auto launch = launched_by.find(t_.op[i]);
        if (launch != launched_by.end()) call = call_of.find({launch->second, -2});
      }
      // A clock that is off by more than the call takes tells nothing.
      if (call != call_of.end() && call->second >= 0 && At(call->second).start <= op.start &&
          call->second < k) {
        op.call = call->second;
        runs_of_[op.call].push_back(k);
      } else {
        ++found_.without_call;
      }
    }
  }

  // What copies would take alone, from what they took beside copies of the other direction.
  void SetCopies() {
    std::map<std::pair<uint8_t, CopyWay>, std::vector<int64_t>> copies;
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      if (At(k).way != CopyWay::kNone) copies[{At(k).gpu, At(k).way}].push_back(k);
    }
    for (auto& [key, ops] : copies) {
      double overlap = 0, all = 0;
      int64_t until = std::numeric_limits<int64_t>::min();
      for (const int64_t k : ops) {
        overlap += static_cast<double>(
            std::clamp<int64_t>(until - At(k).start, 0, At(k).end - At(k).start));
        all += static_cast<double>(At(k).duration);
        until = std::max(until, At(k).end);
      }
      if (overlap > 0.02 * all) {
        found_.engines_overlap = true;
        for (const int64_t k : ops) At(k).engine = false;
      }
    }
    for (auto& [key, ops] : copies) {
      const bool to_gpu = key.second == CopyWay::kToGpu;
      const auto other = copies.find({key.first, to_gpu ? CopyWay::kToHost : CopyWay::kToGpu});
      const double slow = to_gpu ? plan_.machine.both_h2d : plan_.machine.both_d2h;
      size_t from = 0;
      for (const int64_t k : ops) {
        ReplayOp& op = At(k);
        double beside = 0;
        if (other != copies.end()) {
          const std::vector<int64_t>& others = other->second;
          while (from < others.size() && At(others[from]).end <= op.start) ++from;
          int64_t until = op.start;
          for (size_t i = from; i < others.size() && At(others[i]).start < op.end; ++i) {
            const int64_t begin = std::max(until, At(others[i]).start);
            const int64_t end = std::min(op.end, At(others[i]).end);
            if (end <= begin) continue;
            beside += static_cast<double>(end - begin);
            until = end;
          }
        }
        op.duration -= static_cast<int64_t>((1 - slow) * beside);
        op.fixed = std::min(kCopyFixed, op.duration / 2);
      }
    }
  }

  // Usual times from a call to its op where the stream was idle, and between ops of a busy stream.
  void FindUsual() {
    std::vector<int64_t> launches, gaps;
    for (const ReplayOp& op : plan_.ops) {
      if (op.host || op.call < 0) continue;
      const int64_t called = At(op.call).start;
      const int64_t free = op.behind < 0 ? op.start : At(op.behind).end;
      if (op.behind < 0 || free + 20 * kMicrosecond < called) launches.push_back(op.start - called);
      if (op.behind >= 0 && called + 50 * kMicrosecond < free && op.start >= free) {
        gaps.push_back(op.start - free);
      }
    }
    plan_.launch = Percentile(std::move(launches), 0.25, 4 * kMicrosecond);
    plan_.gap = Percentile(std::move(gaps), 0.5, kMicrosecond);
  }

  static bool Contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }

  // The last op of each stream that was called before `time`; of one stream where `lane` is given.
  struct Issued {
    int64_t called;
    int64_t op;
  };
  void IndexIssued() {
    issued_.assign(t_.lanes.size(), {});
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      const ReplayOp& op = At(k);
      if (op.host) continue;
      issued_[op.lane].push_back({op.call < 0 ? op.start : At(op.call).start, k});
    }
    for (auto& ops : issued_) std::ranges::stable_sort(ops, {}, &Issued::called);
  }
  int64_t LastIssued(size_t lane, int64_t time) const {
    const auto& ops = issued_[lane];
    const auto after = std::ranges::upper_bound(ops, time, {}, &Issued::called);
    return after == ops.begin() ? -1 : std::prev(after)->op;
  }
  int64_t NextIssued(size_t lane, int64_t time) const {
    const auto& ops = issued_[lane];
    const auto next = std::ranges::upper_bound(ops, time, {}, &Issued::called);
    return next == ops.end() ? -1 : next->op;
  }

  // The stream lanes that a call's synchronisation record is of; none: not told.
  std::optional<size_t> StreamOfWaits(const std::string& name) {
    constexpr std::string_view kWaits = " waits";
    if (!name.ends_with(kWaits)) return std::nullopt;
    const std::string stream = name.substr(0, name.size() - kWaits.size());
    for (size_t lane = 0; lane < t_.lanes.size(); ++lane) {
      if (t_.lanes[lane].name == stream && t_.lanes[lane].kind == LaneKind::kStream) return lane;
    }
    return std::nullopt;
  }

  void FindSyncs() {
    IndexIssued();
    std::unordered_map<int64_t, std::pair<size_t, std::string_view>> record;  // by op id
    for (size_t row = 0; row < t_.start.size(); ++row) {
      const traces::TimelineLane& lane = t_.lanes[t_.lane[row]];
      if (lane.kind != LaneKind::kOther || t_.role[row] != Role::kSync || t_.op[row] < 0) continue;
      if (const auto stream = StreamOfWaits(lane.name)) {
        record.try_emplace(t_.op[row], *stream, NameOf(static_cast<int64_t>(row)));
      }
    }
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      ReplayOp& op = At(k);
      if (!op.host) continue;
      const auto i = static_cast<size_t>(op.row);
      const std::string_view name = NameOf(op.row);
      const auto known = record.find(t_.op[i]);
      if (known != record.end() && Contains(known->second.second, "ait")) {
        stream_waits_.push_back({k, known->second.first});
        continue;
      }
      if (Contains(name, "StreamWaitEvent") || Contains(name, "told to wait")) {
        // In our recordings it has the number of the op that waits.
        const auto run = first_run_.find({t_.op[i], t_.step[i]});
        if (run != first_run_.end()) {
          stream_waits_.push_back({k, At(run->second).lane});
        } else {
          unnamed_waits_.push_back(k);
        }
        continue;
      }
      const bool sync = Contains(name, "Synchronize") || t_.role[i] == Role::kSync;
      if (sync) {
        AddSync(k, known == record.end() ? std::nullopt : std::optional(known->second.first));
      } else if (Contains(name, "emcpy")) {
        AddBlockingCopy(k);
      }
    }
  }

  void AddSync(int64_t k, std::optional<size_t> stream) {
    ReplayOp& op = At(k);
    const std::string_view name = NameOf(op.row);
    const bool device =
        Contains(name, "DeviceSync") || Contains(name, "CtxSync") || Contains(name, "ContextSync");
    std::vector<int64_t> awaited;
    if (stream) {
      awaited.push_back(LastIssued(*stream, op.start));
    } else if (device) {
      for (size_t lane = 0; lane < t_.lanes.size(); ++lane) {
        awaited.push_back(LastIssued(lane, op.start));
      }
    } else {
      // Of what was issued before, what ended last while the thread waited.
      int64_t best = -1;
      for (size_t lane = 0; lane < t_.lanes.size(); ++lane) {
        const auto& ops = issued_[lane];
        auto at = std::ranges::upper_bound(ops, op.start, {}, &Issued::called);
        for (int looked = 0; looked < 64 && at != ops.begin(); ++looked) {
          --at;
          const ReplayOp& ran = At(at->op);
          if (ran.end <= op.start) break;
          if (ran.end > op.end + kMicrosecond) continue;
          if (best < 0 || ran.end > At(best).end) best = at->op;
          break;
        }
      }
      awaited.push_back(best);
      if (best >= 0) ++found_.waits_inferred;
    }
    bool waited = false;
    int64_t latest = -1;
    for (const int64_t of : awaited) {
      if (of < 0 || At(of).end > op.end + kMicrosecond) continue;
      waited |= At(of).end > op.start;
      if (latest < 0 || At(of).end > At(latest).end) latest = of;
    }
    for (const int64_t of : awaited) {
      if (of < 0 || At(of).end > op.end + kMicrosecond) continue;
      const int64_t tail = std::max<int64_t>(0, op.end - At(of).end);
      waits_[static_cast<size_t>(k)].push_back(
          {of, of == latest && waited ? tail : std::min(tail, kWake)});
    }
    op.sync = true;
    if (waited) op.duration = std::min(op.duration, kWake);
  }

  // A copy that has ended when its call returns held the thread up.
  void AddBlockingCopy(int64_t k) {
    const auto runs = runs_of_.find(k);
    if (runs == runs_of_.end()) return;
    const int64_t run = runs->second.back();
    if (At(run).end > At(k).end) return;
    // It begins within the call: what the thread did before it, it did alone.
    blocking_.push_back({k, run, At(k).end - At(run).end});
    ++found_.blocking;
  }

  void FindNamedWaits() {
    // What flows say: of predictions all waits.
    std::unordered_map<int64_t, std::vector<int64_t>> runs;  // by op id
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      const ReplayOp& op = At(k);
      if (!op.host) runs[t_.op[static_cast<size_t>(op.row)]].push_back(k);
    }
    for (const traces::TimelineFlow& flow : t_.flows) {
      const auto from = runs.find(flow.from_op), to = runs.find(flow.to_op);
      if (from == runs.end() || to == runs.end()) continue;
      if (from->second.size() > 1 || to->second.size() > 1) continue;
      AddWait(from->second[0], to->second[0], true);
    }
    // cudaStreamWaitEvent: the stream's next op, for what another stream had been given and ended
    // last before that op began; each further call for another stream.
    for (const auto& [call, stream] : stream_waits_) {
      const int64_t time = At(call).start;
      const int64_t to = NextIssued(stream, time);
      if (to < 0) continue;
      int64_t best = -1;
      for (size_t lane = 0; lane < t_.lanes.size(); ++lane) {
        if (lane == stream) continue;
        const int64_t from = LastEnded(lane, time, At(to).start);
        if (from < 0 || At(from).gpu != At(to).gpu || Waits(to, lane)) continue;
        if (best < 0 || At(from).end > At(best).end) best = from;
      }
      if (best >= 0) AddWait(best, to, false);
    }
  }

  // Calls of cudaStreamWaitEvent that no record tells the streams of. Those at one place of the
  // program are of the same two streams. These fit where the op that would wait never began before
  // the awaited one's end. Of several that fit, those are taken that were seen to hold an op up, or
  // else that hand a copy's data over.
  void FindUnnamedWaits() {
    if (unnamed_waits_.empty()) return;
    std::vector<size_t> streams;
    for (size_t lane = 0; lane < issued_.size(); ++lane) {
      if (!issued_[lane].empty()) streams.push_back(lane);
    }
    for (const std::vector<int64_t>& calls : PlacesOfUnnamedWaits()) {
      std::map<std::pair<size_t, size_t>, WaitEvidence> pairs;  // what waits, what is awaited
      for (const int64_t call : calls) {
        const int64_t time = At(call).start;
        for (const size_t waiting : streams) {
          const int64_t to = NextIssued(waiting, time);
          for (const size_t awaited : streams) {
            if (awaited == waiting) continue;
            const int64_t from = to < 0 ? -1 : LastIssued(awaited, time);
            AddEvidence(from, to, &pairs[{waiting, awaited}]);
          }
        }
      }
      const auto best = std::ranges::max_element(
          pairs, {}, [&](const auto& pair) { return pair.second.Weight(std::ssize(calls)); });
      if (best == pairs.end() || best->second.Weight(std::ssize(calls)) == std::pair(0.0, 0.0)) {
        found_.waits_unknown += std::ssize(calls);
        continue;
      }
      for (const int64_t call : calls) {
        const int64_t time = At(call).start;
        const int64_t to = NextIssued(best->first.first, time);
        const int64_t from = LastIssued(best->first.second, time);
        if (from >= 0 && to >= 0) AddWait(from, to, false);
      }
    }
  }

  // How the times of two streams speak for a wait of one for the other.
  struct WaitEvidence {
    int64_t refuted = 0;
    int64_t held_up = 0;  ///< the op began as the awaited one ended, and else would have before
    int64_t hands_over =
        0;  ///< the awaited op copies what a kernel reads, or computes what a copy does
    // What is larger is likelier; (0, 0): nothing speaks for it.
    std::pair<double, double> Weight(int64_t calls) const {
      constexpr double kChance = 0.05;  // of ops that begin by chance as another ends
      if (refuted > 0) return {0, 0};
      const double share = static_cast<double>(held_up) / static_cast<double>(calls);
      return {share > kChance ? share : 0, static_cast<double>(hands_over)};
    }
  };

  void AddEvidence(int64_t from, int64_t to, WaitEvidence* evidence) {
    if (from < 0 || to < 0 || At(from).gpu != At(to).gpu) return;
    const ReplayOp& waits = At(to);
    const ReplayOp& awaited = At(from);
    if (awaited.end > waits.start + kMicrosecond) {
      ++evidence->refuted;
      return;
    }
    for (const ReplayWait& wait : waits_[static_cast<size_t>(to)]) {
      if (wait.op == from) return;  // that it waits for it is known: the call is another's
    }
    int64_t ready = waits.call < 0 ? waits.start : At(waits.call).start + plan_.launch;
    if (waits.behind >= 0) ready = std::max(ready, At(waits.behind).end + plan_.gap);
    if (awaited.end > ready + kEvent && waits.start < awaited.end + kJustBehind) {
      ++evidence->held_up;
    }
    const bool brings = awaited.way == CopyWay::kToGpu &&
                        (waits.way == CopyWay::kNone || t_.lanes[waits.lane].compute);
    const bool takes = awaited.way == CopyWay::kNone && waits.way == CopyWay::kToHost;
    if (brings || takes) ++evidence->hands_over;
  }

  // The calls by place: which launches of a thread are before and behind, and how many such calls
  // are between. Places in order of their first call.
  std::vector<std::vector<int64_t>> PlacesOfUnnamedWaits() {
    using Launch = std::pair<uint16_t, uint32_t>;  // stream and name
    struct Thread {
      Launch last{0, 0};
      std::vector<int64_t> calls;  // since
    };
    std::vector<Thread> threads(t_.lanes.size());
    std::vector<std::vector<int64_t>> places;
    std::map<std::tuple<Launch, Launch, size_t>, size_t> place_of;
    size_t next = 0;
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      if (!At(k).host) continue;
      Thread& thread = threads[At(k).lane];
      if (next < unnamed_waits_.size() && unnamed_waits_[next] == k) {
        thread.calls.push_back(k);
        ++next;
        continue;
      }
      const auto runs = runs_of_.find(k);
      if (runs == runs_of_.end()) continue;
      const ReplayOp& run = At(runs->second.front());
      const Launch launch{run.lane, t_.name[static_cast<size_t>(run.row)]};
      for (size_t i = 0; i < thread.calls.size(); ++i) {
        const auto [place, added] =
            place_of.try_emplace(std::tuple(thread.last, launch, i), places.size());
        if (added) places.emplace_back();
        places[place->second].push_back(thread.calls[i]);
      }
      thread = {launch, {}};
    }
    return places;
  }

  // Of a lane's ops that were called before `called`, the last that had ended by `time`.
  int64_t LastEnded(size_t lane, int64_t called, int64_t time) const {
    constexpr int kMostLooked = 64;
    const auto& ops = issued_[lane];
    auto at = std::ranges::upper_bound(ops, called, {}, &Issued::called);
    for (int looked = 0; looked < kMostLooked && at != ops.begin(); ++looked) {
      --at;
      if (plan_.ops[static_cast<size_t>(at->op)].end <= time) return at->op;
    }
    return -1;
  }
  bool Waits(int64_t op, size_t lane) const {
    return std::ranges::any_of(waits_[static_cast<size_t>(op)], [&](const ReplayWait& wait) {
      return plan_.ops[static_cast<size_t>(wait.op)].lane == lane;
    });
  }

  void AddWait(int64_t from, int64_t to, bool named) {
    if (from >= to || At(from).end > At(to).start || At(from).lane == At(to).lane) return;
    auto& waits = waits_[static_cast<size_t>(to)];
    for (const ReplayWait& wait : waits) {
      if (wait.op == from) return;
    }
    waits.push_back({from, std::min(kEvent, At(to).start - At(from).end)});
    ++(named ? found_.waits_named : found_.waits_inferred);
  }

  // Lags such that everything begins when it did: what would let an op begin last has the rest.
  void SetLags() {
    std::vector<std::pair<int64_t, int64_t>> ends;  // of work, for waits that nothing names
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      if (!At(k).host) ends.emplace_back(At(k).end, k);
    }
    std::ranges::sort(ends);
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      ReplayOp& op = At(k);
      if (op.host) {
        op.behind_lag = op.behind < 0 ? op.start : op.start - At(op.behind).end;
        continue;
      }
      SetLagsOfWork(k, op, ends);
    }
  }

  void SetLagsOfWork(int64_t k, ReplayOp& op,
                     const std::vector<std::pair<int64_t, int64_t>>& ends) {
    auto& waits = waits_[static_cast<size_t>(k)];
    const auto latest = [&] {
      int64_t time = std::numeric_limits<int64_t>::min();
      if (op.behind >= 0) time = std::max(time, At(op.behind).end + plan_.gap);
      if (op.call >= 0) time = std::max(time, At(op.call).start + plan_.launch);
      for (const ReplayWait& wait : waits) time = std::max(time, At(wait.op).end + wait.lag);
      return time;
    };
    const bool nothing = op.behind < 0 && op.call < 0 && waits.empty();
    if (!nothing && op.start - latest() > kUnexplained) {
      const auto after = std::ranges::upper_bound(ends, std::pair(op.start, k));
      for (auto at = after; at != ends.begin();) {
        --at;
        if (at->first < op.start - kJustBehind) break;
        const ReplayOp& other = At(at->second);
        if (at->second >= k || other.lane == op.lane || other.gpu != op.gpu) continue;
        AddWait(at->second, k, false);
        break;
      }
    }
    if (nothing) {
      op.behind_lag = op.start;  // from the beginning of the recording
      return;
    }
    const int64_t known = latest();
    const int64_t rest = op.start - known;
    if (rest > kUnexplained) found_.unexplained += static_cast<double>(rest) * 1e-12;
    // The binding one has what is left; where the op began before it usually would, all have less.
    const auto lag = [&](int64_t time, int64_t usual) {
      const bool binds = time + usual == known;
      return binds ? usual + rest : std::min(usual, op.start - time);
    };
    if (op.behind >= 0) {
      const ReplayOp& before = At(op.behind);
      if (op.start < before.end) {
        op.behind_start = true;
        op.behind_lag = op.start - before.start;
      } else {
        op.behind_lag = lag(before.end, plan_.gap);
      }
    }
    if (op.call >= 0) op.call_lag = std::max<int64_t>(0, lag(At(op.call).start, plan_.launch));
    for (ReplayWait& wait : waits) {
      wait.lag = std::max<int64_t>(0, lag(At(wait.op).end, wait.lag));
    }
  }

  // The i-th collective of each GPU, where all have as many: each ends so long behind the last
  // one's begin as it did.
  void FindMeetings() {
    const auto communication = std::ranges::find(plan_.kinds, "communication");
    if (communication == plan_.kinds.end()) return;
    const auto kind = static_cast<uint16_t>(communication - plan_.kinds.begin());
    std::map<uint8_t, std::vector<int64_t>> of_gpu;
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      if (!At(k).host && At(k).kind == kind) of_gpu[At(k).gpu].push_back(k);
    }
    if (of_gpu.size() < 2) return;
    const size_t count = of_gpu.begin()->second.size();
    for (const auto& [gpu, ops] : of_gpu) {
      if (ops.size() != count) return;
    }
    for (size_t i = 0; i < count; ++i) {
      int64_t last = 0, first_end = std::numeric_limits<int64_t>::max();
      for (const auto& [gpu, ops] : of_gpu) {
        last = std::max(last, At(ops[i]).start);
        first_end = std::min(first_end, At(ops[i]).end);
      }
      if (last >= first_end) continue;  // not the same collective
      for (const auto& [gpu, ops] : of_gpu) {
        ReplayOp& op = At(ops[i]);
        op.meeting = static_cast<int32_t>(i);
        op.duration = op.end - last;
      }
    }
  }

  void StoreWaits() {
    for (const auto& [call, run, tail] : blocking_) {
      // Its call ends behind the copy: an op of the host that comes after it, in place of its time.
      ReplayOp& op = At(call);
      op.sync = true;
      op.duration = std::max<int64_t>(0, std::min(op.duration, At(run).start - op.start));
      waits_[static_cast<size_t>(call)].push_back({run, tail});
    }
    for (size_t k = 0; k < plan_.ops.size(); ++k) {
      plan_.ops[k].first_wait = static_cast<uint32_t>(plan_.waits.size());
      plan_.ops[k].waits = static_cast<uint32_t>(waits_[k].size());
      plan_.waits.insert(plan_.waits.end(), waits_[k].begin(), waits_[k].end());
    }
  }

  void Note() {
    std::vector<std::string>& notes = plan_.notes;
    if (found_.waits_inferred > 0) {
      notes.push_back(fmt::format(
          "{} waits are inferred from the order of calls and times, as the recording does not name "
          "what they wait for; {} are as recorded",
          found_.waits_inferred, found_.waits_named));
    }
    if (found_.waits_unknown > 0) {
      notes.push_back(fmt::format(
          "{} calls let a stream wait, and neither the recording nor its times tell which; without "
          "effect here (record with synchronisation events)",
          found_.waits_unknown));
    }
    if (found_.without_call > 0) {
      notes.push_back(fmt::format(
          "{} of {} ops of GPUs have no call in the recording: they follow on their stream",
          found_.without_call, found_.work));
    }
    if (found_.unexplained > 0) {
      notes.push_back(
          fmt::format("{:.3f} ms of idle streams have no cause that is recorded ({:.1f} % of the "
                      "{:.3f} ms that "
                      "they work); it stays as it was",
                      found_.unexplained * 1e3,
                      100 * found_.unexplained / std::max(found_.busy, 1e-12), found_.busy * 1e3));
    }
    int64_t threads = 0;
    std::vector<bool> seen(t_.lanes.size());
    for (const ReplayOp& op : plan_.ops) {
      if (op.host && !seen[op.lane]) ++threads, seen[op.lane] = true;
    }
    if (threads > 1) {
      notes.push_back(fmt::format(
          "{} host threads: what they wait for of one another is not recorded; each keeps its own "
          "times between calls",
          threads));
    }
    if (found_.engines_overlap) {
      notes.push_back("copies of one direction overlap in the recording: they share no engine");
    }
    notes.push_back(fmt::format("copies meet on the link of {}", plan_.machine.name));
  }

  struct Blocking {
    int64_t call, run, tail;
  };
  const Timeline& t_;
  ReplayPlan plan_;
  ReplayFindings found_;
  std::map<std::string, size_t> gpus_;
  std::map<std::tuple<uint32_t, Role, bool>, uint16_t> kind_of_;
  std::vector<int64_t> op_of_row_;
  std::vector<uint8_t> is_copy_;                // by name; 2: not known yet
  std::vector<std::vector<ReplayWait>> waits_;  // by op
  std::unordered_map<int64_t, std::vector<int64_t>> runs_of_;
  std::vector<std::vector<Issued>> issued_;  // by lane
  std::unordered_map<OpKey, int64_t, OpKeyHash> first_run_;
  std::vector<std::pair<int64_t, size_t>> stream_waits_;  // calls, and the stream that waits
  std::vector<int64_t> unnamed_waits_;                    // calls whose streams are not told
  std::vector<Blocking> blocking_;
};

}  // namespace

ReplayPlan MakeReplayPlan(const Timeline& recording, const ReplayMachine& machine) {
  return PlanMaker(recording, machine).Make();
}

}  // namespace stallcast::sim
