// A few ops on a machine of round numbers, run: for tests that state what theory says and then
// expect exactly that time (to a picosecond or two, since ends are rounded).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sim/engine.h"
#include "tests/sim/test_machine.h"

namespace stallcast::sim {

using namespace std::chrono_literals;
using hardware::CostModel;
using hardware::Profile;
using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::PlanBuilder;

inline constexpr int64_t kMB = 1000 * 1000;

inline Copy Bulk(Direction direction, int64_t bytes) {
  return {direction, CopyPath::kBulk, 1, bytes};
}
inline Copy H2D(int64_t bytes) { return Bulk(Direction::kHostToDevice, bytes); }
inline Copy D2H(int64_t bytes) { return Bulk(Direction::kDeviceToHost, bytes); }

/// A kernel that takes `time` alone on the test machine, with all multiprocessors: a layout of as
/// many bytes, read and written.
inline plan::Layout Kernel(Picoseconds time) {
  return {1, static_cast<int64_t>(std::llround(Seconds(time) * 4e12 / 2))};
}

inline void ExpectTime(Picoseconds actual, Picoseconds expected) {
  EXPECT_LE(std::abs((actual - expected).count()), 2)
      << actual.count() << " ps, expected " << expected.count() << " ps";
}

struct Streams {
  PlanBuilder builder;
  LaneId host = builder.AddHost("host");
  std::vector<LaneId> lanes;
  LaneId Add(bool compute = false) {
    lanes.push_back(builder.AddStream("stream", host, compute));
    return lanes.back();
  }
};

class Ran {
 public:
  Ran(Streams& streams, const Profile& machine)
      : plan_(streams.builder.Finish()),
        simulation_(plan_, CostModel(machine)),
        execution_(simulation_.Run()) {}
  Picoseconds CallBegin(OpId id) const { return simulation_.CallStart(id, execution_); }
  Picoseconds CallTime(OpId id) const {
    return execution_.call_end[static_cast<size_t>(Index(id))] - CallBegin(id);
  }
  Picoseconds Start(OpId id) const { return execution_.start[static_cast<size_t>(Index(id))]; }
  Picoseconds End(OpId id) const { return execution_.end[static_cast<size_t>(Index(id))]; }
  Picoseconds Total() const { return execution_.end_of_all; }
  const Cause& Why(OpId id) const { return execution_.cause[static_cast<size_t>(Index(id))]; }
  const Simulation& simulation() const { return simulation_; }
  const Execution& execution() const { return execution_; }

 private:
  plan::Plan plan_;
  Simulation simulation_;
  Execution execution_;
};

}  // namespace stallcast::sim
