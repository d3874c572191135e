#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/common/error.h"
#include "traces/convert/categories.h"
#include "traces/convert/chrome_events.h"
#include "traces/convert/importers.h"
#include "traces/convert/names.h"
#include "traces/convert/slice_set.h"

namespace stallcast::traces::convert {
namespace {

// Microseconds, exact to the picosecond where they are written as decimals; nothing where they are
// no number or span centuries.
std::optional<Instant> ParseMicroseconds(std::string_view text) {
  constexpr int64_t kMost = 9'000'000'000'000'000;  // 285 years
  const bool negative = text.starts_with('-');
  size_t at = negative ? 1 : 0;
  int64_t whole = 0;
  const size_t first = at;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    whole = 10 * whole + (text[at] - '0');
    if (whole > kMost) return std::nullopt;
  }
  if (at == first) return std::nullopt;
  int64_t picoseconds = 0;
  if (at < text.size() && text[at] == '.') {
    int64_t unit = 100'000;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, unit /= 10) {
      picoseconds += unit * (text[at] - '0');
    }
  }
  if (at < text.size()) {  // an exponent
    double value = 0;
    const auto [stop, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || stop != text.data() + text.size() || !(std::abs(value) < 1e15)) {
      return std::nullopt;
    }
    return Instant{static_cast<int64_t>(std::floor(value * 1e3)), 0};
  }
  Instant time{whole * 1000 + picoseconds / 1000, static_cast<uint16_t>(picoseconds % 1000)};
  if (negative && time.ps == 0) time.ns = -time.ns;
  if (negative && time.ps != 0) {
    time = {-time.ns - 1, static_cast<uint16_t>(1000 - time.ps)};
  }
  return time;
}

std::optional<int64_t> ParseDuration(const JsonText& text) {
  const std::optional<Instant> time = ParseMicroseconds(text.text);
  constexpr int64_t kMostNs = std::numeric_limits<int64_t>::max() / 1000 - 1;
  if (!time) return std::nullopt;
  // Negative durations stay negative, whatever their size: they are reported.
  return std::clamp(time->ns, -kMostNs, kMostNs) * 1000 + time->ps;
}

class ChromeImport {
 public:
  explicit ChromeImport(const ImportOptions& options) : options_(options) {}

  void Run(Input* input, const std::string& name, Trace* trace, ReadReport* report) {
    const ChromeEventsResult result = ReadChromeEvents(
        input,
        {[this](const ChromeEvent& event) { Take(event); },
         [&](std::string_view key, std::string_view json) { Describe(key, json, &trace->info); },
         options_.progress});
    if (!result.found) {
      throw Error(result.cut ? "is cut off before its first event" : "is JSON without trace events",
                  name, "give a trace with an array `traceEvents`");
    }
    if (result.foreign) {
      throw Error("is JSON of another kind: nothing in its list is a trace event", name,
                  "give a trace of Chrome's format, whose events have a phase `ph`");
    }
    if (result.cut) {
      report->truncated = true;
      report->problems.push_back(
          fmt::format("truncated after {}", Counted(events_, "complete event")));
    }
    if (!result.fault.empty()) {
      report->truncated = true;
      report->problems.push_back(
          fmt::format("{}; read up to there, {}", result.fault, Counted(events_, "event")));
    }
    report->damaged += result.damaged;
    if (result.damaged > 0) {
      report->problems.push_back(
          fmt::format("{} no JSON and left out", Counted(result.damaged, "stretch")));
    }
    if (unusable_ > 0) {
      report->problems.push_back(
          fmt::format("{} without a usable time left out", Counted(unusable_, "event")));
    }
    set_.PairEnds();
    NameLanes();
    if (others_ > 0) {
      set_.head(0).notes.push_back(
          fmt::format("{} (instants, counters, ...) left out: a timeline holds slices",
                      Counted(others_, "event")));
    }
    trace->timelines = set_.Finish(options_, report);
  }

 private:
  // What stands beside a stream on a lane of its own.
  enum class Beside : uint8_t { kNothing, kAnnotations, kWaits, kAsync };

  struct LaneFacts {
    std::string process, thread;  // as the file identifies them
    Beside beside = Beside::kNothing;
    bool used = false, host = false, runs = false;
    int64_t device = -1, stream = -1;
    std::string category;  // of the first slice
    std::string name;      // of the thread, in metadata
    int64_t sort_index = -1;
    // In files of ours: the lane that this is a part of.
    int64_t lane = -1;
    LaneKind kind = LaneKind::kOther;
    bool compute = false;
  };
  struct ProcessFacts {
    std::string name;
    std::optional<Timeline> head;  // in files of ours
  };
  struct FlowBegun {
    SliceSet::FlowEnd end;
    char phase;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return XXH3_64bits(key.data(), key.size()); }
  };
  template <typename Value>
  using Table = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  void Take(const ChromeEvent& event) {
    ++events_;
    switch (event.phase) {
      case 'X':
        return Complete(event);
      case 'B':
      case 'b':
      case 'S':
        return Begin(event);
      case 'E':
      case 'e':
      case 'F':
        return End(event);
      case 's':
      case 't':
      case 'f':
        return Flow(event);
      case 'M':
        return Metadata(event);
      default:
        ++others_;
    }
  }

  static bool IsAsync(char phase) {
    return phase == 'b' || phase == 'e' || phase == 'S' || phase == 'F';
  }

  // Looked up once for the events of a category that follow each other.
  const Category& CategoryOf(const ChromeEvent& event) {
    static const Category kUnknown;
    if (category_ == nullptr || event.category.text != category_name_) {
      category_name_ = event.category.text;
      const Category* known = FindCategory(category_name_);
      category_ = known != nullptr ? known : &kUnknown;
    }
    return *category_;
  }

  uint16_t LaneOf(std::string_view process, std::string_view thread, Beside beside) {
    key_.assign(process);
    key_ += '\0';
    key_ += thread;
    key_ += static_cast<char>(beside);
    const auto known = lane_of_.find(key_);
    if (known != lane_of_.end()) return known->second;
    const uint16_t lane = set_.AddLane({});
    if (lane == lanes_.size()) {
      lanes_.emplace_back();
      lanes_.back().process = process;
      lanes_.back().thread = thread;
      lanes_.back().beside = beside;
    }
    lane_of_.emplace(key_, lane);
    return lane;
  }

  uint16_t LaneOf(const ChromeEvent& event, const Category& category) {
    Beside beside = Beside::kNothing;
    if (IsAsync(event.phase)) {
      beside = Beside::kAsync;
    } else if (category.kind == SliceKind::kRunRange) {
      beside = category.role == Role::kSync ? Beside::kWaits : Beside::kAnnotations;
    }
    // Waits for an event or a whole context name no stream: -1, in 32 bits or more.
    const JsonText& stream = event.arguments.stream;
    const bool nowhere =
        beside == Beside::kWaits && !IsStream(stream.Integer(event.thread.Integer(-1)));
    const uint16_t lane =
        LaneOf(event.process.text, nowhere ? std::string_view() : event.thread.text, beside);
    LaneFacts& facts = lanes_[lane];
    if (!facts.used) facts.category = event.category.text;
    facts.used = true;
    facts.host |= category.host;
    if (category.kind == SliceKind::kRun || category.kind == SliceKind::kRunRange) {
      facts.runs = true;
      if (facts.stream < 0) {
        facts.device = event.arguments.device.Integer(event.process.Integer(-1));
        facts.stream = stream.Integer(event.thread.Integer(-1));
      }
    }
    return lane;
  }

  static bool IsStream(int64_t stream) { return stream >= 0 && stream < 0xffffffff; }

  uint32_t NameOf(const JsonText& name) {
    return name.escaped ? set_.Intern(name.Decoded()) : set_.Intern(name.text);
  }

  std::optional<Slice> SliceOf(const ChromeEvent& event) {
    const std::optional<Instant> start = ParseMicroseconds(event.time.text);
    if (!start) {
      ++unusable_;
      return std::nullopt;
    }
    const Category& category = CategoryOf(event);
    Slice slice;
    slice.start = *start;
    slice.lane = LaneOf(event, category);
    slice.name = NameOf(event.name);
    slice.kind = category.kind;
    slice.role = category.role;
    if (slice.kind == SliceKind::kCall &&
        event.name.text.find("Synchronize") != std::string_view::npos) {
      slice.role = Role::kSync;
    }
    SetArguments(event.arguments, &slice);
    return slice;
  }

  static void SetArguments(const ChromeEvent::Arguments& arguments, Slice* slice) {
    const auto set = [](const JsonText& text, int64_t most, auto* field) {
      const int64_t value = text.present() ? text.Integer(-1) : -1;
      if (value >= 0 && value <= most) *field = static_cast<std::decay_t<decltype(*field)>>(value);
    };
    set(arguments.correlation, std::numeric_limits<int64_t>::max(), &slice->correlation);
    set(arguments.bytes, std::numeric_limits<int64_t>::max(), &slice->bytes);
    set(arguments.op, kMaxOp - 1, &slice->op);
    set(arguments.step, std::numeric_limits<int32_t>::max(), &slice->step);
    set(arguments.layer, std::numeric_limits<int16_t>::max(), &slice->layer);
  }

  void Complete(const ChromeEvent& event) {
    std::optional<int64_t> duration = 0;
    if (event.duration.present()) duration = ParseDuration(event.duration);
    if (!duration) {
      ++unusable_;
      return;
    }
    if (std::optional<Slice> slice = SliceOf(event)) {
      // A negative one is not to be taken for an open slice.
      slice->duration_ps = *duration < 0 ? SliceSet::kOpen - 1 : *duration;
      set_.Add(*slice);
    }
  }

  // What events that begin and end a slice have in common: their thread, or an asynchronous id.
  uint64_t PairKey(const ChromeEvent& event) const {
    if (!IsAsync(event.phase)) {
      return Hash()(fmt::format("{}\n{}", event.process.text, event.thread.text));
    }
    const bool local = event.id2.text.find("\"local\"") != std::string_view::npos;
    return Hash()(fmt::format("{}\n{}\n{}\n{}\n{}", event.category.text, event.id.text,
                              event.scope.text, event.id2.text,
                              local ? event.process.text : std::string_view()));
  }

  void Begin(const ChromeEvent& event) {
    if (std::optional<Slice> slice = SliceOf(event)) set_.Begin(PairKey(event), *slice);
  }

  void End(const ChromeEvent& event) {
    const std::optional<Instant> end = ParseMicroseconds(event.time.text);
    if (!end) {
      ++unusable_;
      return;
    }
    const bool named = event.name.present() && !event.name.text.empty();
    set_.EndOf(PairKey(event), *end, named ? std::optional(NameOf(event.name)) : std::nullopt);
  }

  void Flow(const ChromeEvent& event) {
    // Kineto's arrows from calls to what they started: their correlation says the same.
    if (event.category.text == "ac2g") return;
    const std::optional<Instant> time = ParseMicroseconds(event.time.text);
    if (!time) {
      ++unusable_;
      return;
    }
    SliceSet::FlowEnd end;
    end.lane = LaneOf(event.process.text, event.thread.text, Beside::kNothing);
    end.time = *time;
    end.next = event.phase == 'f' && event.binding.text != "e";
    const int64_t op = event.arguments.op.Integer(-1);
    end.op = op < kMaxOp ? op : -1;
    const std::string key =
        fmt::format("{}\n{}\n{}", event.category.text, event.id.text, event.scope.text);
    const auto begun = flows_.find(key);
    if (begun == flows_.end()) {
      flows_.emplace(key, FlowBegun{end, event.phase});
      return;
    }
    FlowBegun& other = begun->second;
    if (event.phase == 's' && other.phase != 's') {  // ends may precede beginnings in a file
      set_.AddFlow(end, other.end);
      if (other.phase == 'f') flows_.erase(begun);
      return;
    }
    if (event.phase != 's' && other.phase != 'f') set_.AddFlow(other.end, end);
    if (event.phase == 'f') {
      flows_.erase(begun);
    } else {
      other = {end, event.phase};
    }
  }

  void Metadata(const ChromeEvent& event) {
    const std::string_view what = event.name.text;
    const ChromeEvent::Arguments& arguments = event.arguments;
    if (what == "process_name") {
      ProcessFacts& process = processes_[std::string(event.process.text)];
      process.name = arguments.name.Decoded();
      if (const auto origin = OriginNamed(arguments.origin.text)) {
        process.head = Head(*origin, arguments);
      }
    } else if (what == "thread_name" || what == "thread_sort_index") {
      LaneFacts& lane = lanes_[LaneOf(event.process.text, event.thread.text, Beside::kNothing)];
      if (what == "thread_sort_index") {
        lane.sort_index = arguments.sort_index.Integer(-1);
        return;
      }
      lane.name = arguments.name.Decoded();
      lane.lane = arguments.lane.Integer(-1);
      lane.kind = LaneKindNamed(arguments.kind.text).value_or(LaneKind::kOther);
      lane.compute = arguments.compute.text == "true";
    }
  }

  static Timeline Head(Timeline::Origin origin, const ChromeEvent::Arguments& arguments) {
    Timeline head;
    head.origin = origin;
    head.title = arguments.title.Decoded();
    const nlohmann::json notes = nlohmann::json::parse(arguments.notes.text, nullptr, false);
    if (notes.is_array()) {
      for (const nlohmann::json& note : notes) {
        if (note.is_string()) head.notes.push_back(note);
      }
    }
    return head;
  }

  // In a file of ours every process is a timeline; all other processes together are one more.
  void NameLanes() {
    const auto head_of = [&](const LaneFacts& lane) -> const std::optional<Timeline>& {
      static const std::optional<Timeline> kNone;
      const auto process = processes_.find(lane.process);
      return process == processes_.end() ? kNone : process->second.head;
    };
    bool foreign = false;
    std::set<std::string_view> host_processes;
    for (const LaneFacts& lane : lanes_) {
      if (!lane.used || head_of(lane)) continue;
      foreign = true;
      if (lane.host) host_processes.insert(lane.process);
    }
    std::vector<std::pair<const std::string*, const Timeline*>> ours;
    for (const auto& [id, process] : processes_) {
      if (process.head) ours.emplace_back(&id, &*process.head);
    }
    std::ranges::stable_sort(
        ours, {}, [](const auto& process) { return JsonText{*process.first}.Integer(0); });
    std::map<std::string_view, int> timeline_of;
    for (const auto& [id, head] : ours) {
      const bool first = timeline_of.empty() && !foreign;
      const int timeline = first ? 0 : set_.AddTimeline();
      timeline_of[*id] = timeline;
      set_.head(timeline) = *head;
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const LaneFacts& facts = lanes_[i];
      Lane& lane = set_.lane(static_cast<uint16_t>(i));
      if (head_of(facts)) {
        lane = {.name = facts.name,
                .kind = facts.kind,
                .compute = facts.compute,
                .timeline = timeline_of.at(facts.process),
                .order = facts.lane,
                .part_of = facts.lane,
                .ours = true};
      } else {
        lane = ForeignLane(facts, host_processes.size() > 1);
        // Async slices and those of unknown programs stay where they were first seen.
        if (lane.order < 0) lane.order = static_cast<int64_t>(i);
      }
    }
  }

  // "[TP01] " of "[TP01] 7": those who merge the traces of ranks mark their processes.
  static std::string_view RankOf(std::string_view process) {
    const size_t end = process.find("] ");
    return process.starts_with('[') && end != std::string_view::npos ? process.substr(0, end + 2)
                                                                     : std::string_view();
  }

  // Small numbers of texts.
  int64_t Numbered(std::string_view text) {
    return numbers_.try_emplace(std::string(text), std::ssize(numbers_)).first->second;
  }

  Lane ForeignLane(const LaneFacts& facts, bool name_process) {
    Lane lane;
    const auto process = processes_.find(facts.process);
    const std::string process_name = process == processes_.end() ? "" : process->second.name;
    lane.name = facts.name;
    while (lane.name.ends_with(' ')) lane.name.pop_back();
    if (facts.runs) {
      constexpr std::string_view kBeside[] = {"", " annotations", " waits", ""};
      const std::string_view beside = kBeside[static_cast<size_t>(facts.beside)];
      const bool stream = IsStream(facts.stream);
      lane.name = std::string(RankOf(facts.process)) +
                  (stream ? StreamName(facts.device, facts.stream)
                          : fmt::format("GPU {}", std::max<int64_t>(0, facts.device)));
      lane.name += beside;
      if (facts.beside == Beside::kNothing) lane.kind = LaneKind::kStream;
      lane.order = StreamOrder(facts.device, stream ? facts.stream : 0);
      lane.gpu = Numbered(fmt::format("{}\n{}", RankOf(facts.process), facts.device));
      return lane;
    }
    if (!facts.host && facts.beside == Beside::kNothing &&
        (NamesStream(process_name, lane.name) || NamesStream("", facts.thread))) {
      if (lane.name.empty()) lane.name = fmt::format("stream {}", facts.thread);
      if (!process_name.empty()) lane.name += " of " + process_name;
      lane.kind = LaneKind::kStream;
      lane.runs = true;
      lane.order = StreamOrder(0, JsonText{facts.thread}.Integer(0));
      lane.gpu = Numbered(facts.process);
      return lane;
    }
    if (lane.name.empty()) {
      lane.name = facts.host || facts.category.empty() ? fmt::format("thread {}", facts.thread)
                                                       : facts.category;
    }
    if (name_process) {
      lane.name +=
          fmt::format(" of {} {}", process_name.empty() ? "process" : process_name, facts.process);
    }
    if (facts.beside == Beside::kAsync) {
      lane.name += " (asynchronous)";
    } else if (facts.host) {
      lane.kind = LaneKind::kHost;
    }
    lane.process = Numbered(facts.process);
    lane.order = facts.sort_index;
    return lane;
  }

  void Describe(std::string_view key, std::string_view json, proto::TraceInfo* info) const {
    const nlohmann::json value = nlohmann::json::parse(json, nullptr, false);
    if (key == "deviceProperties" && value.is_array()) {
      std::map<std::string, int> devices;
      for (const nlohmann::json& device : value) {
        if (device.is_object() && device.contains("name") && device["name"].is_string()) {
          ++devices[device["name"]];
        }
      }
      info->set_machine(MachineOf(devices));
    } else if (key.ends_with("_version") && (value.is_number_integer() || value.is_string())) {
      (*info->mutable_software())[std::string(key)] =
          value.is_string() ? value.get<std::string>() : value.dump();
    }
  }

  const ImportOptions& options_;
  SliceSet set_;
  const Category* category_ = nullptr;  // of `category_name_`
  std::string category_name_;
  std::vector<LaneFacts> lanes_;  // by lane of the set
  std::map<std::string, ProcessFacts> processes_;
  Table<uint16_t> lane_of_;
  Table<FlowBegun> flows_;
  std::string key_;
  std::map<std::string, int64_t> numbers_;
  int64_t events_ = 0, others_ = 0, unusable_ = 0;
};

}  // namespace

void ImportChromeJson(Input* input, const std::string& name, const ImportOptions& options,
                      Trace* trace, ReadReport* report) {
  ChromeImport(options).Run(input, name, trace, report);
}

}  // namespace stallcast::traces::convert
