// The measured lines behind h200.toml, the fits that its values come from, and how far the cost
// model is from every line. Times are in microseconds. A kernel timed alone between two events
// carries a floor (launch and events) that a kernel in a stream does not, and so does a copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "models/hardware/cost_model.h"

namespace stallcast::hardware {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;

constexpr double kKernelFloor = 7;
constexpr double kCopyFloor = 2.65;

struct Line {
  std::string name;
  plan::Work work;
  double measured;
};

// Single copies; the first of the probe, at 256 bytes, is a warm-up and is left out.
struct CopyTimes {
  Bytes bytes;
  double h2d, d2h;
};
constexpr CopyTimes kCopies[] = {
    {1'024, 5.44, 4.06},
    {4'096, 5.28, 4.19},
    {16'384, 5.70, 4.29},
    {65'536, 6.75, 5.15},
    {262'144, 10.50, 8.70},
    {1'048'576, 26.14, 22.98},
    {4'194'304, 88.32, 80.35},
    {16'777'216, 349.47, 307.20},
    {67'108'864, 1353.60, 1237.47},
    {268'435'456, 5217.57, 4875.68},
    {1'073'741'824, 20352.83, 19618.82},
};

// One copy call a piece: microseconds a piece, in all.
struct PieceTimes {
  Bytes bytes;
  double call, total;
};
constexpr PieceTimes kPiecewise[] = {{256, 2.636, 2.644},    {1'024, 2.654, 2.727},
                                     {4'096, 2.613, 2.720},  {8'192, 2.612, 2.850},
                                     {16'384, 2.590, 3.083}, {65'536, 2.521, 4.182}};
// 2,048 pieces in one batch.
constexpr PieceTimes kBatches[] = {{256, 3349.3, 3404.7},      {1'024, 3248.1, 3379.4},
                                   {4'096, 4294.6, 4408.9},    {8'192, 6004.4, 6084.6},
                                   {16'384, 10486.2, 10622.7}, {65'536, 1833.2, 4349.0}};
struct Rows {
  int64_t rows;
  double total;
};
constexpr Rows kRows256[] = {{32, 5.28}, {128, 5.92}, {1'024, 10.78}};
// Gathers of 8 KiB pages by kernels from pinned host memory.
struct GatherTimes {
  int64_t pages;
  int32_t blocks;
  double total;
};
constexpr GatherTimes kGathers[] = {
    {8, 8, 15.07},     {8, 32, 14.53},     {8, 132, 14.66},    {32, 8, 16.54},    {32, 32, 16.45},
    {32, 132, 16.26},  {128, 8, 31.58},    {128, 32, 31.33},   {128, 132, 30.85}, {256, 8, 53.47},
    {256, 32, 52.90},  {256, 132, 54.82},  {512, 8, 101.44},   {512, 32, 102.08}, {512, 132, 97.98},
    {1024, 8, 187.17}, {1024, 32, 180.54}, {1024, 132, 190.02}};
struct Reads {
  double mebibytes, total;
};
constexpr Reads kReads[] = {{64, 23.20}, {256, 68.64}, {1024, 246.14}, {4096, 964.19}};

std::vector<Line> Gemms() {
  struct Shape {
    const char* name;
    int64_t n, k;
  };
  constexpr Shape kShapes[] = {{"qkv", 6144, 4096},
                               {"o", 4096, 4096},
                               {"gateup", 28672, 4096},
                               {"down", 4096, 14336},
                               {"lm", 128256, 4096}};
  constexpr int64_t kRows[] = {1, 4, 16, 64};
  constexpr double kTimes[4][5] = {{22.4, 19.0, 69.7, 42.5, 257.0},
                                   {23.1, 19.0, 70.3, 42.4, 258.3},
                                   {23.3, 19.3, 71.0, 42.7, 261.7},
                                   {23.8, 18.6, 72.8, 45.2, 292.0}};
  std::vector<Line> lines;
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      lines.push_back({"gemm m " + std::to_string(kRows[i]) + " " + kShapes[j].name,
                       plan::Gemm{.m = kRows[i], .n = kShapes[j].n, .k = kShapes[j].k},
                       kTimes[i][j]});
    }
  }
  return lines;
}

std::vector<Line> Attentions() {
  struct Case {
    int32_t batch;
    int64_t length;
    double time;
  };
  constexpr Case kCases[] = {{1, 2048, 13.6},    {1, 8192, 22.8}, {1, 32768, 50.3},
                             {1, 131072, 138.8}, {4, 2048, 22.3}, {4, 32768, 139.0},
                             {8, 32768, 257.2}};
  std::vector<Line> lines;
  for (const Case& c : kCases) {
    lines.push_back({"decode attn bs " + std::to_string(c.batch) + " L " + std::to_string(c.length),
                     plan::DecodeAttention{.kv_tokens = 8 * c.batch * c.length,
                                           .kv_tokens_max = c.length,
                                           .sequences = c.batch,
                                           .kv_heads = 8,
                                           .group = 4,
                                           .head_dim = 128},
                     c.time});
  }
  return lines;
}

std::vector<Line> TopKs() {
  struct Case {
    int64_t rows, candidates, k;
    double time;
  };
  constexpr Case kCases[] = {{8, 1024, 32, 14.3},     {8, 4096, 64, 27.7},
                             {64, 4096, 64, 30.3},    {8, 32768, 1024, 66.4},
                             {8, 131072, 2048, 84.8}, {256, 1024, 64, 23.9}};
  std::vector<Line> lines;
  for (const Case& c : kCases) {
    lines.push_back({"topk " + std::to_string(c.rows) + " " + std::to_string(c.candidates),
                     plan::TopK{.rows = c.rows, .candidates = c.candidates, .k = c.k}, c.time});
  }
  return lines;
}

struct Point {
  double x, time;
};
struct Fit {
  double start, slope;
};

// Least squares of start + slope x on relative errors.
Fit FitLine(std::span<const Point> points) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const auto& [x, time] : points) {
    const double weight = 1 / (time * time);
    w += weight, wx += weight * x, wxx += weight * x * x;
    wt += weight * time, wxt += weight * x * time;
  }
  const double determinant = w * wxx - wx * wx;
  return {(wt * wxx - wx * wxt) / determinant, (w * wxt - wx * wt) / determinant};
}

double Rms(const std::vector<double>& errors) {
  double sum = 0;
  for (const double error : errors) sum += error * error;
  return std::sqrt(sum / static_cast<double>(errors.size()));
}

class H200FitTest : public testing::Test {
 protected:
  // Relative error of a prediction, printed so that the run is a table.
  static double Report(const std::string& name, double predicted, double measured) {
    const double error = predicted / measured - 1;
    std::printf("  %-32s %10.2f us predicted %10.2f measured %+6.1f %%\n", name.c_str(), predicted,
                measured, 100 * error);
    return error;
  }
  static double Us(Picoseconds time) { return Seconds(time) * 1e6; }

  // From the first call to the end of the op.
  double CallToEnd(const plan::Work& work) const {
    const OpCost cost = model_.Cost(work);
    return std::max(Us(cost.first_call + cost.Alone()), Us(cost.host + cost.last_piece));
  }

  // The fit of a kernel's lines, less the floor; each line within `most` of the model, and the
  // profile's spread that of the kernel without the floor.
  void ExpectKernel(const std::vector<Line>& lines, std::string_view kind, double most,
                    double (*x)(const plan::WorkCounts&)) const {
    std::vector<Point> points;
    std::vector<double> errors;
    for (const Line& line : lines) {
      points.push_back({x(plan::Count(line.work)), line.measured});
      const double alone = Us(model_.Cost(line.work).Alone());
      EXPECT_LT(std::abs(Report(line.name, kKernelFloor + alone, line.measured)), most);
      errors.push_back(alone / (line.measured - kKernelFloor) - 1);
      EXPECT_FALSE(model_.Cost(line.work).extrapolated) << line.name;
    }
    const KernelFit& kernel = profile_.kernels.find(kind)->second;
    EXPECT_NEAR(kernel.fixed_s * 1e6, FitLine(points).start - kKernelFloor, 0.02);
    EXPECT_NEAR(kernel.spread, Rms(errors), 0.006);
    slope_ = FitLine(points).slope;
  }

  Profile profile_ = FindProfile("h200");
  CostModel model_{profile_};
  mutable double slope_ = 0;
};

TEST_F(H200FitTest, SingleCopies) {
  std::vector<Point> up, down;
  std::vector<double> errors;
  for (const CopyTimes& c : kCopies) {
    up.push_back({static_cast<double>(c.bytes), c.h2d});
    down.push_back({static_cast<double>(c.bytes), c.d2h});
    const Copy h2d{.pieces = 1, .piece_bytes = c.bytes};
    const Copy d2h{.direction = Direction::kDeviceToHost, .pieces = 1, .piece_bytes = c.bytes};
    errors.push_back(Report("copy h2d " + std::to_string(c.bytes),
                            kCopyFloor + Us(model_.Cost(h2d).Alone()), c.h2d));
    EXPECT_LT(std::abs(errors.back()), 0.05);
    EXPECT_LT(std::abs(Report("copy d2h " + std::to_string(c.bytes),
                              kCopyFloor + Us(model_.Cost(d2h).Alone()), c.d2h)),
              0.03);
  }
  EXPECT_NEAR(profile_.link_h2d / 1e9, 1e-3 / FitLine(up).slope, 0.05);
  EXPECT_NEAR(profile_.link_d2h / 1e9, 1e-3 / FitLine(down).slope, 0.05);
  EXPECT_NEAR(profile_.copy_h2d_start * 1e6, FitLine(up).start - kCopyFloor, 0.02);
  EXPECT_NEAR(profile_.copy_d2h_start * 1e6, FitLine(down).start - kCopyFloor, 0.02);
  EXPECT_NEAR(profile_.copy_spread, Rms(errors), 0.006);
}

TEST_F(H200FitTest, PiecewiseCopies) {
  constexpr int64_t kPieces = 2'048;
  for (const PieceTimes& p : kPiecewise) {
    const Copy copy{.path = CopyPath::kPerPiece, .pieces = kPieces, .piece_bytes = p.bytes};
    EXPECT_LT(std::abs(Report("piecewise " + std::to_string(p.bytes), CallToEnd(copy) / kPieces,
                              p.total)),
              0.06);
    EXPECT_LT(std::abs(Us(model_.Cost(copy).host) / kPieces / p.call - 1), 0.04);
  }
}

TEST_F(H200FitTest, BatchedCopies) {
  for (const PieceTimes& p : kBatches) {
    const Copy copy{.path = CopyPath::kBatched, .pieces = 2'048, .piece_bytes = p.bytes};
    EXPECT_LT(std::abs(Report("batch " + std::to_string(p.bytes), CallToEnd(copy), p.total)), 0.06);
    EXPECT_NEAR(Us(model_.Cost(copy).host) / p.call, 1, 1e-3);
    EXPECT_FALSE(model_.Cost(copy).extrapolated);
  }
}

TEST_F(H200FitTest, CopiesOfRows) {
  for (const Rows& r : kRows256) {
    const Copy copy{.path = CopyPath::k2D, .pieces = r.rows, .piece_bytes = 256};
    EXPECT_LT(std::abs(Report("copy2d 256 x " + std::to_string(r.rows),
                              kCopyFloor + Us(model_.Cost(copy).Alone()), r.total)),
              0.05);
  }
}

TEST_F(H200FitTest, ZeroCopyGathers) {
  std::vector<double> errors;
  for (const GatherTimes& g : kGathers) {
    const plan::ZeroCopyGather gather{.pieces = g.pages, .piece_bytes = 8'192, .blocks = g.blocks};
    errors.push_back(
        Report("uva8k " + std::to_string(g.pages) + " pages " + std::to_string(g.blocks),
               kKernelFloor + Us(model_.Cost(gather).Alone()), g.total));
    EXPECT_LT(std::abs(errors.back()), 0.09);
  }
  EXPECT_NEAR(profile_.zero_copy_spread, Rms(errors), 0.006);
}

TEST_F(H200FitTest, Gemms) {
  ExpectKernel(Gemms(), "gemm", 0.10,
               [](const plan::WorkCounts& counts) { return static_cast<double>(counts.device()); });
  EXPECT_NEAR(profile_.kernels.at("gemm").bandwidth / 1e12, 1e-6 / slope_, 0.01);
}

TEST_F(H200FitTest, DecodeAttention) {
  ExpectKernel(Attentions(), "decode_attention", 0.11,
               [](const plan::WorkCounts& counts) { return static_cast<double>(counts.device()); });
  EXPECT_NEAR(profile_.kernels.at("decode_attention").bandwidth / 1e12, 1e-6 / slope_, 0.01);
}

TEST_F(H200FitTest, TopK) {
  ExpectKernel(TopKs(), "top_k", 0.42,
               [](const plan::WorkCounts& counts) { return counts.serial_items; });
  EXPECT_NEAR(profile_.kernels.at("top_k").serial_s * 1e9, slope_ * 1e3, 0.01);
}

TEST_F(H200FitTest, MemoryAndWhatTransfersTakeOfIt) {
  std::vector<Point> points;
  for (const Reads& r : kReads) points.push_back({r.mebibytes * 1048576, r.total});
  EXPECT_NEAR(profile_.memory_bandwidth / 1e12, 1e-6 / FitLine(points).slope, 0.01);
  // A 4 GiB read alone, then beside a copy, then beside gathers of 8 KiB pages (GB/s).
  constexpr double kAlone = 4454.5;
  EXPECT_NEAR(kAlone - profile_.copy_device_factor * profile_.link_h2d / 1e9, 4206.9, 5);
  struct Beside {
    double blocks, read, gather;
  };
  for (const Beside& b : {Beside{4, 3707.3, 30.6}, Beside{16, 3677.7, 50.1},
                          Beside{32, 3325.8, 48.4}, Beside{64, 2914.4, 47.8}}) {
    const double left = kAlone - profile_.zero_copy_memory_loss.At(b.blocks) / 1e9 - b.gather;
    EXPECT_LT(std::abs(Report("read beside gather, GB/s", left, b.read)), 1e-3);
  }
}

TEST_F(H200FitTest, HostCallsAndLaunches) {
  EXPECT_NEAR(profile_.host_launch * 1e6, 4.89, 1e-9);
  // An empty kernel takes half a microsecond in a graph of a hundred (53.28 us).
  EXPECT_NEAR(profile_.device_graph_gap * 1e8, 53.28, 0.5);
  EXPECT_NEAR((profile_.host_launch + profile_.device_launch_latency + profile_.host_sync) * 1e6,
              10.30 - 0.53, 0.05);
  EXPECT_NEAR(
      2 * (profile_.host_launch + profile_.host_event_record + profile_.host_stream_wait) * 1e6,
      11.79, 0.05);
}

}  // namespace
}  // namespace stallcast::hardware
