#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/common/error.h"
#include "traces/convert/database.h"
#include "traces/convert/importers.h"
#include "traces/convert/slice_set.h"

namespace stallcast::traces::convert {
namespace {

// Tables by their first names; newer programs number them: ..._V2, ..._V3.
constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr const char* kNvprofKernels = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL";
constexpr const char* kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr const char* kSets = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr const char* kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr const char* kSyncs = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
constexpr const char* kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr const char* kRanges = "NVTX_EVENTS";

// The process in a globalPid or globalTid, and the thread in the latter.
int64_t ProcessOf(int64_t global) { return global >> 24 & 0xffffff; }
int64_t ThreadOf(int64_t global) { return global & 0xffffff; }

// CUpti_ActivityMemcpyKind.
std::string_view CopyName(int64_t kind) {
  constexpr std::string_view kNames[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
                                         "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
                                         "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
  return kind >= 0 && kind < std::ssize(kNames) ? kNames[kind] : kNames[0];
}

// CUpti_ActivitySynchronizationType.
std::string_view SyncName(int64_t type) {
  constexpr std::string_view kNames[] = {"Synchronization", "Event synchronize",
                                         "Stream wait event", "Stream synchronize",
                                         "Context synchronize"};
  return kNames[type >= 0 && type < std::ssize(kNames) ? type : 0];
}

// "cudaLaunchKernel" of "cudaLaunchKernel_v7000".
std::string_view WithoutVersion(std::string_view name) {
  const size_t version = name.rfind("_v");
  const bool digits = version != std::string_view::npos && version + 2 < name.size() &&
                      name.find_first_not_of("0123456789", version + 2) == std::string_view::npos;
  return digits ? name.substr(0, version) : name;
}

class NsightImport {
 public:
  NsightImport(Database* database, const ImportOptions& options, ReadReport* report)
      : database_(*database), options_(options), report_(*report) {}

  void Run(const std::string& name, Trace* trace) {
    if (!database_.fault().empty()) {
      report_.truncated = true;
      report_.problems.push_back(database_.fault());
    }
    if (Table(kKernels).empty()) kernels_ = kNvprofKernels;
    const bool any =
        std::ranges::any_of(std::initializer_list<const char*>{kernels_, kCopies, kSets, kGraphs,
                                                               kSyncs, kCalls, kRanges},
                            [&](const char* table) { return !Columns(table).empty(); });
    if (!any) throw NothingToRead(name);
    const auto intern = [&](const DatabaseRow& row) {
      strings_.emplace(row.Integer(0), row.Text(1));
    };
    Read("StringIds", {"id", "value"}, intern);
    Read("StringTable", {"_id_", "value"}, intern);  // nvprof's
    by_process_ = Has(kCalls, "globalTid");
    for (const char* table : {kernels_, kCopies, kSets, kGraphs, kSyncs}) {
      if (!Columns(table).empty()) by_process_ &= Has(table, "globalPid");
    }
    ReadAbout(&trace->info);
    ReadThreads();
    ReadRuns();
    Progress(0.6);
    ReadCalls();
    Progress(0.8);
    ReadRanges();
    if (marks_ > 0) {
      set_.head(0).notes.push_back(
          fmt::format("{} left out: a timeline holds slices", Counted(marks_, "mark")));
    }
    if (report_.zero_stamps > 0) {
      report_.problems.push_back(
          fmt::format("{} without a time left out", Counted(report_.zero_stamps, "record")));
    }
    NoteUnread();
    NameLanes();
    trace->timelines = set_.Finish(options_, &report_);
  }

 private:
  // The table of the newest version of a name, or empty.
  std::string Table(const std::string& name) const {
    std::string newest;
    int64_t version = -1;
    for (const std::string& table : database_.tables()) {
      if (table == name && version < 1) newest = table, version = 1;
      if (!table.starts_with(name + "_V")) continue;
      const std::string digits = table.substr(name.size() + 2);
      int64_t number = 0;
      const auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (error != std::errc() || stop != digits.data() + digits.size()) continue;
      if (number > version) newest = table, version = number;
    }
    return newest;
  }
  std::vector<std::string> Columns(const std::string& name) {
    return database_.Columns(Table(name));
  }
  bool Has(const std::string& name, std::string_view column) {
    return database_.Has(Table(name), column);
  }

  Error NothingToRead(const std::string& name) const {
    constexpr const char* kRemedy = "give an export of Nsight Systems: nsys export --type sqlite";
    if (!database_.fault().empty()) {
      return Error("is an SQLite file without a readable table, " + database_.fault(), name,
                   "copy or export it again");
    }
    for (const std::string& view : database_.views()) {
      if (!view.starts_with("CUPTI_ACTIVITY_KIND_") && !view.starts_with(kRanges)) continue;
      return Error(fmt::format("has a view {} and no table of that kind", view), name, kRemedy);
    }
    return Error("is an SQLite file without CUDA or NVTX tables", name, kRemedy);
  }

  // What the file holds of other kinds, by table.
  void NoteUnread() {
    std::string left_out;
    for (const std::string& table : database_.tables()) {
      const bool known = table.starts_with("CUPTI_ACTIVITY_KIND_") || table.starts_with(kRanges);
      if (!known || read_.contains(table)) continue;
      int64_t rows = 0;
      database_.ForEach(table, {"rowid"}, [&](const DatabaseRow&) { ++rows; });
      if (rows == 0) continue;
      left_out +=
          fmt::format("{}{} ({})", left_out.empty() ? "" : ", ", table, Counted(rows, "row"));
    }
    if (!left_out.empty()) set_.head(0).notes.push_back("left out: " + left_out);
  }

  void Progress(double share) const {
    if (options_.progress) options_.progress(share);
  }

  void Read(const std::string& table, const std::vector<std::string>& columns,
            const std::function<void(const DatabaseRow&)>& take) {
    int64_t rows = 0;
    const std::string newest = Table(table);
    read_.insert(newest);
    const std::string fault = database_.ForEach(newest, columns, [&](const DatabaseRow& row) {
      ++rows;
      take(row);
    });
    if (fault.empty()) return;
    report_.truncated = true;
    report_.problems.push_back(fmt::format("{}: {}; {} read", table, fault, Counted(rows, "row")));
  }

  void ReadAbout(proto::TraceInfo* info) {
    std::map<std::string, int> gpus;
    Read("TARGET_INFO_GPU", {"name"},
         [&](const DatabaseRow& row) { ++gpus[std::string(row.Text(0))]; });
    info->set_machine(MachineOf(gpus));
    Read("META_DATA_EXPORT", {"name", "value"}, [&](const DatabaseRow& row) {
      if (row.Text(0) == "EXPORT_SCHEMA_VERSION") {
        (*info->mutable_software())["nsight_systems_schema"] = std::string(row.Text(1));
      }
    });
    constexpr int64_t kWarning = 2;
    constexpr size_t kMostNotes = 16;
    Read("DIAGNOSTIC_EVENT", {"severity", "text"}, [&](const DatabaseRow& row) {
      std::vector<std::string>& notes = set_.head(0).notes;
      if (row.Integer(0) >= kWarning && notes.size() < kMostNotes) {
        notes.push_back(fmt::format("Nsight Systems: {}", row.Text(1)));
      }
    });
  }

  void ReadThreads() {
    Read("ThreadNames", {"globalTid", "nameId"}, [&](const DatabaseRow& row) {
      const auto name = strings_.find(row.Integer(1));
      if (name != strings_.end()) thread_names_[row.Integer(0)] = name->second;
    });
  }

  // A name that is a text or the id of one.
  uint32_t NameOf(const DatabaseRow& row, std::initializer_list<int> columns,
                  std::string_view fallback) {
    for (const int column : columns) {
      if (row.IsText(column)) return set_.Intern(row.Text(column));
      if (row.IsNull(column)) continue;
      const auto name = strings_.find(row.Integer(column));
      if (name != strings_.end()) return set_.Intern(WithoutVersion(name->second));
    }
    return set_.Intern(fallback);
  }

  // Columns 0 and 1: start and end in nanoseconds; an end that is missing leaves the slice open.
  bool SetTimes(const DatabaseRow& row, Slice* slice) {
    const int64_t start = row.Integer(0);
    if (row.IsNull(0) || (start == 0 && row.Integer(1) == 0)) {
      ++report_.zero_stamps;
      return false;
    }
    slice->start = {start, 0};
    slice->duration_ps = SliceSet::kOpen;
    return true;
  }

  void Add(const DatabaseRow& row, const Slice& slice) {
    const size_t added = set_.Add(slice);
    if (!row.IsNull(1) && row.Integer(1) != -1) set_.End(added, {row.Integer(1), 0});
  }

  // Column `column` of a GPU table: device, stream, process and correlation.
  void SetPlace(const DatabaseRow& row, int column, bool waits, Slice* slice) {
    const int64_t process = by_process_ ? ProcessOf(row.Integer(column + 2)) : 0;
    slice->lane = GpuLane(process, row.Integer(column), row.Integer(column + 1), waits);
    if (!row.IsNull(column + 3)) slice->correlation = Correlation(process, row.Integer(column + 3));
  }

  // Calls of different processes have correlations of their own.
  int64_t Correlation(int64_t process, int64_t id) const {
    return process << 32 | (id & 0xffffffff);
  }

  void ReadRuns() {
    const std::vector<std::string> where = {"start",    "end",       "deviceId",
                                            "streamId", "globalPid", "correlationId"};
    const auto with = [&](std::initializer_list<std::string> more) {
      std::vector<std::string> columns = where;
      columns.insert(columns.end(), more);
      return columns;
    };
    const auto add = [&](const DatabaseRow& row, uint32_t name, int64_t bytes, bool waits) {
      Slice slice;
      if (!SetTimes(row, &slice)) return;
      SetPlace(row, 2, waits, &slice);
      slice.name = name;
      slice.kind = waits ? SliceKind::kRunRange : SliceKind::kRun;
      slice.role = waits ? Role::kSync : Role::kOther;
      slice.bytes = std::max<int64_t>(0, bytes);
      Add(row, slice);
    };
    Read(kernels_, with({"demangledName", "shortName", "mangledName", "name"}),
         [&](const DatabaseRow& row) {
           add(row, NameOf(row, {6, 7, 8, 9}, "kernel"), 0, false);
         });
    Read(kCopies, with({"bytes", "copyKind"}), [&](const DatabaseRow& row) {
      add(row, set_.Intern(CopyName(row.Integer(7))), row.Integer(6), false);
    });
    Read(kSets, with({"bytes"}),
         [&](const DatabaseRow& row) { add(row, set_.Intern("Memset"), row.Integer(6), false); });
    Read(kGraphs, with({"graphId"}), [&](const DatabaseRow& row) {
      add(row, set_.Intern(fmt::format("CUDA graph {}", row.Integer(6))), 0, false);
    });
    Read(kSyncs, with({"syncType"}),
         [&](const DatabaseRow& row) { add(row, set_.Intern(SyncName(row.Integer(6))), 0, true); });
  }

  void ReadCalls() {
    Read(kCalls,
         {"start", "end", "globalTid", "correlationId", "nameId", "processId", "threadId", "cbid"},
         [&](const DatabaseRow& row) {
           Slice slice;
           if (!SetTimes(row, &slice)) return;
           // nvprof names process and thread apart, and calls by number alone.
           const int64_t thread =
               row.IsNull(2) ? (row.Integer(5) & 0xffffff) << 24 | (row.Integer(6) & 0xffffff)
                             : row.Integer(2);
           slice.lane = HostLane(thread);
           slice.name = NameOf(
               row, {4}, row.IsNull(7) ? "API call" : fmt::format("API call {}", row.Integer(7)));
           slice.kind = SliceKind::kCall;
           slice.role = set_.NameAt(slice.name).find("Synchronize") == std::string_view::npos
                            ? Role::kHost
                            : Role::kSync;
           if (!row.IsNull(3)) {
             const int64_t process = by_process_ ? ProcessOf(row.Integer(2)) : 0;
             slice.correlation = Correlation(process, row.Integer(3));
           }
           Add(row, slice);
         });
  }

  void ReadRanges() {
    // Of NVTX itself, and of text imported into it: nested ranges, and those of a begin and an end.
    const std::set<int64_t> range_types = {59, 60, 70, 71};
    Read(kRanges, {"start", "end", "globalTid", "eventType", "text", "textId"},
         [&](const DatabaseRow& row) {
           const bool range = row.IsNull(3) ? !row.IsNull(1) : range_types.contains(row.Integer(3));
           if (!range) {
             ++marks_;
             return;
           }
           Slice slice;
           if (!SetTimes(row, &slice)) return;
           slice.lane = HostLane(row.Integer(2));
           slice.name = NameOf(row, {4, 5}, "range");
           slice.kind = SliceKind::kRange;
           Add(row, slice);
         });
  }

  struct LaneFacts {
    bool gpu = false;
    int64_t global_tid = 0;  // of the host
    int64_t process = 0, device = 0, stream = 0;
    bool waits = false;
  };

  uint16_t NewLane(const LaneFacts& facts) {
    const uint16_t lane = set_.AddLane({});
    if (lane == lanes_.size()) lanes_.push_back(facts);
    return lane;
  }

  uint16_t GpuLane(int64_t process, int64_t device, int64_t stream, bool waits) {
    const auto key = std::tuple(process, device, stream, waits);
    if (last_gpu_lane_.first == key) return last_gpu_lane_.second;
    const auto known = gpu_lanes_.find(key);
    const uint16_t lane = known != gpu_lanes_.end()
                              ? known->second
                              : NewLane({true, 0, process, device, stream, waits});
    gpu_lanes_.emplace(key, lane);
    last_gpu_lane_ = {key, lane};
    return lane;
  }

  uint16_t HostLane(int64_t global_tid) {
    const auto known = host_lanes_.find(global_tid);
    if (known != host_lanes_.end()) return known->second;
    const uint16_t lane = NewLane({false, global_tid, ProcessOf(global_tid), 0, 0, false});
    return host_lanes_.emplace(global_tid, lane).first->second;
  }

  void NameLanes() {
    std::set<int64_t> host_processes, gpu_processes;
    for (const LaneFacts& facts : lanes_) {
      (facts.gpu ? gpu_processes : host_processes).insert(facts.process);
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const LaneFacts& facts = lanes_[i];
      Lane& lane = set_.lane(static_cast<uint16_t>(i));
      if (facts.gpu) {
        // Waits for an event or a whole context name no stream.
        const bool stream = facts.stream >= 0 && facts.stream < 0xffffffff;
        lane.name = (stream ? StreamName(facts.device, facts.stream)
                            : fmt::format("GPU {}", facts.device)) +
                    (facts.waits ? " waits" : "");
        lane.kind = facts.waits ? LaneKind::kOther : LaneKind::kStream;
        lane.order = StreamOrder(facts.device, stream ? facts.stream : 0);
        lane.gpu = facts.process << 16 | (facts.device & 0xffff);
        if (by_process_) lane.process = facts.process;
      } else {
        lane.process = facts.process;
        const auto name = thread_names_.find(facts.global_tid);
        const int64_t thread = ThreadOf(facts.global_tid);
        lane.name = name == thread_names_.end() ? fmt::format("thread {}", thread)
                                                : fmt::format("{} {}", name->second, thread);
        lane.kind = LaneKind::kHost;
        lane.order = static_cast<int64_t>(i);
      }
      if ((facts.gpu ? gpu_processes : host_processes).size() > 1) {
        lane.name += fmt::format(" of process {}", facts.process);
      }
    }
  }

  Database& database_;
  const ImportOptions& options_;
  ReadReport& report_;
  SliceSet set_;
  bool by_process_ = false;
  const char* kernels_ = kKernels;
  std::set<std::string> read_;  // tables
  std::unordered_map<int64_t, std::string> strings_;
  std::map<int64_t, std::string> thread_names_;  // by globalTid
  std::vector<LaneFacts> lanes_;                 // by lane of the set
  std::map<std::tuple<int64_t, int64_t, int64_t, bool>, uint16_t> gpu_lanes_;
  std::pair<std::tuple<int64_t, int64_t, int64_t, bool>, uint16_t> last_gpu_lane_ = {
      {-1, 0, 0, false}, 0};
  std::unordered_map<int64_t, uint16_t> host_lanes_;
  int64_t marks_ = 0;
};

}  // namespace

void ImportNsight(Database* database, const std::string& name, const ImportOptions& options,
                  Trace* trace, ReadReport* report) {
  NsightImport(database, options, report).Run(name, trace);
}

}  // namespace stallcast::traces::convert
