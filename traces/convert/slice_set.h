// What an importer collects while it reads a file of another program, and how it becomes timelines.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "traces/common/error.h"
#include "traces/convert/import.h"
#include "traces/timeline.h"

namespace stallcast::traces::convert {

/// Ops that files give are smaller, so that there is room for those that importers number.
inline constexpr int64_t kMaxOp = int64_t{1} << 62;

/// A time as files give it: whole nanoseconds of any clock, and 0 to 999 picoseconds more.
struct Instant {
  int64_t ns = 0;
  uint16_t ps = 0;
  bool operator<(const Instant& other) const {
    return ns != other.ns ? ns < other.ns : ps < other.ps;
  }
};

enum class SliceKind : uint8_t {
  kPlain,     ///< anything else, on the host
  kCall,      ///< a call of the GPU's API
  kRange,     ///< an annotation on the host
  kRun,       ///< work on the GPU
  kRunRange,  ///< an annotation or wait on the GPU
};

struct Slice {
  uint16_t lane = 0;
  uint32_t name = 0;
  Instant start;
  int64_t duration_ps = 0;  ///< SliceSet::kOpen: not yet known
  SliceKind kind = SliceKind::kPlain;
  Role role = Role::kOther;
  int64_t correlation = -1;  ///< joins a call with what it started; -1: none
  int64_t op = -1;           ///< below kMaxOp; -1: not given
  int32_t step = -1;
  int16_t layer = -1;
  int64_t bytes = 0;
};

struct Lane {
  std::string name;
  LaneKind kind = LaneKind::kOther;
  bool compute = false;
  int timeline = 0;
  int64_t order = 0;  ///< lanes of a timeline are sorted by this, then by name
  /// Lanes of one timeline with the same `part_of` (not -1) are one lane, named as the first.
  int64_t part_of = -1;
  /// In a file of ours: kept without rows too, and its rows are taken as they stand.
  bool ours = false;
  /// Of a thread, or of GPU work whose process is known; -1: not known. Where several processes
  /// make calls, each has correlations and ranges of its own.
  int64_t process = -1;
  int64_t gpu = -1;   ///< lanes of one GPU share it; each GPU has a compute lane
  bool runs = false;  ///< its rows of kind kPlain are work on a GPU
};

class SliceSet {
 public:
  static constexpr int64_t kOpen = -1;

  SliceSet();

  uint32_t Intern(std::string_view name);
  std::string_view NameAt(uint32_t name) const { return names_[name]; }

  /// One more timeline than the one that there is from the start. Gives its number.
  int AddTimeline();
  /// Its title, origin and notes.
  Timeline& head(int timeline) { return heads_[static_cast<size_t>(timeline)]; }
  int timelines() const { return static_cast<int>(heads_.size()); }

  /// A timeline has 65,535 lanes; further ones all give the last, which says so in its name.
  uint16_t AddLane(Lane lane);
  Lane& lane(uint16_t index) { return lanes_[index]; }
  int lanes() const { return static_cast<int>(lanes_.size()); }

  /// Gives the row. A negative duration becomes 0 and is reported.
  size_t Add(const Slice& slice);
  /// Ends an open slice. Those that never end are drawn to the latest begin or end of such slices,
  /// and reported.
  void End(size_t row, Instant end);
  /// Slices that events begin and end, in whatever order a file has them: of one `key` (a thread,
  /// an asynchronous id), in order of time, each end belongs to the last begin of its name that is
  /// open, or, without a name or one of its name, to the last open one.
  size_t Begin(uint64_t key, Slice slice);
  /// Gives the end's number for RowOfEnd().
  size_t EndOf(uint64_t key, Instant time, std::optional<uint32_t> name);
  /// Call once behind the last of these. Ends without a begin are reported by Finish().
  void PairEnds();
  static constexpr size_t kNoRow = std::numeric_limits<size_t>::max();
  size_t RowOfEnd(size_t end) const { return ends_[end].row; }
  size_t rows() const { return kind_.size(); }
  Instant start(size_t row) const { return {all_.start[row].count(), start_ps_[row]}; }

  /// Joins a call with what it started as a common correlation does, for formats without one.
  void Join(size_t call, size_t run);
  /// A flow between rows.
  void AddFlow(size_t from_row, size_t to_row) { row_flows_.push_back({from_row, to_row}); }
  /// A flow between slices that are not known yet: of a lane, the one that encloses an instant, or
  /// where `next` is set, the first that begins at or after it; or any row of `op`, if that is
  /// given.
  struct FlowEnd {
    uint16_t lane = 0;
    Instant time;
    bool next = false;
    int64_t op = -1;
  };
  void AddFlow(const FlowEnd& from, const FlowEnd& to) { end_flows_.push_back({from, to}); }

  /// Timelines without a FirstFault; the set is used up. Adds to the report's problems, records and
  /// zero_stamps. Error: no range is named as options.step_range says.
  std::vector<Timeline> Finish(const ImportOptions& options, ReadReport* report);

 private:
  void EndOpenSlices(ReadReport* report);
  void PlaceInTime(ReadReport* report);
  void NameRoles();
  void FindProcesses();
  void FindNumbers(const ImportOptions& options);
  void JoinCalls();
  void JoinFlows();
  void MarkCompute();
  void NoteOverlaps();
  std::vector<uint16_t> ArrangeLanes();
  std::vector<Timeline> Split();

  Timeline& HeadOf(size_t row) { return head(lanes_[all_.lane[row]].timeline); }
  bool IsOurs(size_t row) const { return lanes_[all_.lane[row]].ours; }
  bool IsRange(size_t row) const {
    return kind_[row] != SliceKind::kCall && kind_[row] != SliceKind::kRun && all_.op[row] < 0 &&
           !IsOurs(row);
  }
  Error NoSuchRange(const std::string& name) const;
  std::vector<int32_t> StepOfRanges(const ImportOptions& options) const;
  int64_t OpOf(size_t row);
  std::optional<size_t> RowAt(const FlowEnd& end, const std::vector<uint32_t>& lane_rows) const;

  struct NameHash {
    size_t operator()(std::string_view name) const;
  };
  // Lanes are numbered as the set does until Split(); starts are nanoseconds until PlaceInTime().
  Timeline all_;
  std::vector<uint16_t> start_ps_;
  std::vector<int64_t> correlation_;
  std::vector<SliceKind> kind_;
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, uint32_t, NameHash> name_index_;
  std::vector<Timeline> heads_;
  std::vector<Lane> lanes_;
  struct RowPair {
    size_t from, to;
  };
  std::vector<RowPair> row_flows_;
  struct EndPair {
    FlowEnd from, to;
  };
  std::vector<EndPair> end_flows_;
  struct EndEvent {
    std::optional<uint32_t> name;
    size_t row = kNoRow;
  };
  std::vector<EndEvent> ends_;
  struct Mark {
    uint64_t key;
    Instant time;
    size_t at;  // a row, or an end
    bool end;
  };
  std::vector<Mark> marks_;
  Instant origin_;  // what times are counted from, once they are picoseconds
  Instant last_{std::numeric_limits<int64_t>::min(), 0};
  int64_t negative_ = 0, open_ = 0, largest_op_ = -1, ends_without_begin_ = 0;
  bool lanes_overflow_ = false;
};

}  // namespace stallcast::traces::convert
