// From records of GPU activity, in whatever order they come, to the rows of a measured timeline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/call_table.h"
#include "capture/gpu_record.h"
#include "capture/gpu_recorder.h"
#include "traces/timeline.h"

namespace stallcast::capture {

/// Joins GPU work with the CUDA call that launched it, gives both their op and step, and lays them
/// out in lanes. Rows leave in parts, each with the tables so far and new rows only, as
/// TraceWriter::Append takes them.
///
/// Memory is bounded: at most kMaxWaiting rows wait for the record of their call, and none longer
/// than kPatienceNs by the records' clock; the last CallTable::kCalls calls and kMaxNodes graph
/// nodes are remembered; names take at most kMaxNameBytes, lanes kMaxLanes, open NVTX ranges
/// kMaxOpenRanges. What goes beyond loses its op, its name or a lane of its own, not its row (only
/// an NVTX range beyond is dropped and counted). Not thread safe.
class TimelineAssembler {
 public:
  static constexpr size_t kMaxWaiting = size_t{1} << 18;
  static constexpr int64_t kPatienceNs = 10'000'000'000;
  static constexpr size_t kMaxNodes = size_t{1} << 20;
  static constexpr size_t kMaxNameBytes = size_t{4} << 20;
  static constexpr size_t kMaxLanes = 4096;
  static constexpr size_t kMaxOpenRanges = size_t{1} << 16;

  using Emit = std::function<void(const traces::Timeline& part)>;
  /// `origin_ns` becomes time 0.
  TimelineAssembler(const GpuRecorderOptions& options, int64_t origin_ns, Emit emit);

  void Add(const DeviceRecord& record);
  void Add(const CallRecord& record);
  void Add(const WaitRecord& record);
  void Add(const ExternalRecord& record);
  void Add(const RangeRecord& record);
  void Add(const GraphNodeRecord& record);
  void Add(const SpanRecord& record);
  void AddDropped(int64_t records) { stats_.dropped += records; }
  /// For lanes without a row so far.
  void NameStream(StreamKey stream, const std::string& lane, bool compute);
  void NameThread(uint32_t thread, const std::string& lane);

  /// Rows that Flush() may emit.
  size_t waiting() const { return waiting_.size(); }
  /// Emits every row whose call is known.
  void Flush();
  /// Emits all rows, at least an empty part, with notes on what was lost.
  void Finish();

  const GpuRecorderStats& stats() const { return stats_; }

 private:
  enum class Subject : uint8_t { kDevice, kCall, kWait, kOther };
  struct Row {
    Subject subject = Subject::kOther;
    traces::Role role = traces::Role::kOther;
    uint16_t lane = 0;  // of kWait: found with the call
    uint32_t name = 0;
    uint32_t correlation = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    int64_t bytes = 0;
    uint64_t graph_node = 0;
    ExternalId id = {};  // of kOther
  };
  struct LaneName {
    std::string name;
    bool compute = false;
  };
  // So that names are looked up without a copy.
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct OpenRange {
    uint32_t name = 0;
    int64_t start_ns = 0;
    uint32_t thread = 0;
  };

  /// Takes a row with a usable time to those that wait; counts others.
  void Take(const Row& row);
  bool Ready(const Row& row) const;
  void EmitReady(bool all);
  void AppendRow(const Row& row);
  void EmitPart();
  uint32_t NameOf(std::string_view name);
  uint16_t StreamLane(StreamKey stream, bool computes);
  uint16_t EngineLane(uint32_t device, int32_t channel);
  uint16_t ThreadLane(uint32_t thread);
  uint16_t RangeLane(uint32_t thread);
  uint16_t WaitLane();
  /// The lane of `key` in `lanes`, made by `make` where there is none yet and room.
  template <typename Key, typename Make>
  uint16_t LaneOf(std::map<Key, uint16_t>& lanes, const Key& key, const Make& make);

  const GpuRecorderOptions options_;
  const int64_t origin_ns_;
  const Emit emit_;
  traces::Timeline part_;
  GpuRecorderStats stats_;
  std::vector<Row> waiting_;
  CallTable calls_;
  std::unordered_map<uint64_t, uint64_t> node_ids_;  // graph node to external id
  int64_t latest_ns_ = 0;                            // end of any record
  std::unordered_map<uint64_t, OpenRange> ranges_;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> name_index_;
  size_t name_bytes_ = 0;
  bool compute_named_ = false;
  std::map<StreamKey, LaneName> stream_names_;
  std::map<uint32_t, std::string> thread_names_;
  std::map<StreamKey, uint16_t> stream_lanes_;
  std::map<std::pair<uint32_t, int32_t>, uint16_t> engine_lanes_;
  std::map<uint32_t, uint16_t> thread_lanes_;
  std::map<uint32_t, uint16_t> range_lanes_;
  std::map<int, uint16_t> other_lanes_;
};

}  // namespace stallcast::capture
