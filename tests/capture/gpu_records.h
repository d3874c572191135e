// Records of GPU activity made by a rule, and what becomes of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/activity_source.h"
#include "capture/timeline_assembler.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture::testing {

/// Time 0 of the tests' timelines.
inline constexpr int64_t kOriginNs = 1'700'000'000'000'000'000;

inline CallRecord Call(uint32_t correlation, int64_t start, int64_t end, uint32_t thread = 1,
                       std::string_view name = "cudaLaunchKernel") {
  return {name, kOriginNs + start, kOriginNs + end, correlation, thread};
}

inline DeviceRecord Kernel(uint32_t correlation, int64_t start, int64_t end, uint32_t stream = 7,
                           std::string_view name = "kernel") {
  DeviceRecord record;
  record.name = name;
  record.start_ns = kOriginNs + start;
  record.end_ns = kOriginNs + end;
  record.correlation = correlation;
  record.stream = {1, stream};
  return record;
}

inline ExternalRecord External(uint32_t correlation, int32_t step, int32_t op) {
  return {correlation, ExternalId{step, op}.Pack()};
}

/// A row in words: "lane: name, op 3, step 1, 100+50 ns".
inline std::string InWords(const traces::Timeline& timeline, size_t row) {
  std::string text =
      timeline.lanes[timeline.lane[row]].name + ": " + timeline.names[timeline.name[row]] +
      ", op " + std::to_string(timeline.op[row]) + ", step " + std::to_string(timeline.step[row]) +
      ", " + std::to_string(timeline.start[row].count() / 1000) + "+" +
      std::to_string(timeline.duration[row].count() / 1000) + " ns";
  if (timeline.bytes[row] != 0) text += ", " + std::to_string(timeline.bytes[row]) + " B";
  if (!timeline.graph_node.empty() && timeline.graph_node[row] != 0) {
    text += ", node " + std::to_string(timeline.graph_node[row]);
  }
  return text;
}

inline std::vector<std::string> InWords(const traces::Timeline& timeline) {
  std::vector<std::string> rows;
  for (size_t row = 0; row < timeline.start.size(); ++row) rows.push_back(InWords(timeline, row));
  return rows;
}

/// An assembler that writes a file in memory.
class Assembly {
 public:
  explicit Assembly(const GpuRecorderOptions& options = {})
      : assembler(options, kOriginNs, [this](const traces::Timeline& part) {
          parts.push_back(part.rows());
          if (parts.size() == 1) {
            id_ = writer_.Write(part);
          } else {
            writer_.Append(id_, part);
          }
        }) {}

  /// The whole timeline, as the file gives it.
  traces::Timeline Finish() {
    assembler.Finish();
    writer_.Finish(assembler.stats().dropped, assembler.stats().zero_stamps);
    traces::Trace trace = traces::ReadTrace(file_, "memory", {.strict = true});
    EXPECT_EQ(trace.timelines.size(), 1u);
    EXPECT_EQ(trace.timelines[0].rows(), assembler.stats().rows);
    return std::move(trace.timelines[0]);
  }

  std::vector<int64_t> parts;  ///< rows of each part
  TimelineAssembler assembler;

 private:
  std::vector<std::byte> file_;
  traces::TraceWriter writer_{&file_, {}};
  uint32_t id_ = 0;
};

/// A source without a GPU: calls `feed` with the thread that takes records when it starts.
class FakeSource : public ActivitySource {
 public:
  using Feed = std::function<void(const std::shared_ptr<RecordThread>&)>;
  explicit FakeSource(Feed feed, bool stops = true) : feed_(std::move(feed)), stops_(stops) {}

  int64_t NowNs() const override { return kOriginNs; }
  void Start(std::shared_ptr<RecordThread> thread, const GpuRecorderOptions& /*options*/) override {
    feed_(thread);
  }
  bool Stop() override { return stops_; }
  void Push(ExternalId id) override { pushed.push_back(id); }
  void Pop() override { pushed.pop_back(); }
  StreamKey KeyOf(void* stream) const override {
    return {1, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(stream))};
  }

  std::vector<ExternalId> pushed;

 private:
  Feed feed_;
  bool stops_;
};

}  // namespace stallcast::capture::testing
