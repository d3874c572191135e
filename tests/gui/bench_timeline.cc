// SPDX-License-Identifier: GPL-3.0-or-later
// Opens and draws ten million ops, half of them predicted and half measured, offscreen at 1920 x
// 1080: how long until the first picture, how long a frame takes, how much memory an op needs.
//   bench_timeline [OPS]
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <QApplication>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gui/timeline/timeline_view.h"
#include "tests/scratch_folder.h"
#include "traces/format/trace_file.h"

namespace {

using namespace stallcast;
using namespace stallcast::gui;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Decode steps of 32 layers: the host calls five kernels and a copy a layer; the copy overlaps the
// kernels of the layer before, which the attention waits for.
traces::Timeline Decode(traces::Timeline::Origin origin, int64_t rows, uint32_t seed) {
  constexpr int kLayers = 32, kOps = 6;
  using traces::Role;
  constexpr Role kRoles[kOps] = {Role::kProjection, Role::kSelection, Role::kRecall,
                                 Role::kAttention,  Role::kMlp,       Role::kLayout};
  constexpr int64_t kDurations[kOps] = {9'000'000,  4'000'000,  25'000'000,
                                        12'000'000, 30'000'000, 3'000'000};  // ps
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> spread(0.7, 1.4);
  traces::Timeline t;
  t.origin = origin;
  t.title = "ten million ops";
  t.lanes = {{"host", traces::LaneKind::kHost, false},
             {"compute", traces::LaneKind::kStream, true},
             {"recall", traces::LaneKind::kStream, false}};
  t.names = {"gemm",      "select",      "copy",      "attention",      "mlp",      "layout",
             "call gemm", "call select", "call copy", "call attention", "call mlp", "call layout"};
  int64_t host = 0, compute = 0, copy = 0, op = 0;
  const auto add = [&](uint16_t lane, int32_t step, int layer, Role role, uint32_t name,
                       int64_t start, int64_t duration, int64_t bytes) {
    t.lane.push_back(lane);
    t.op.push_back(op);
    t.step.push_back(step);
    t.layer.push_back(static_cast<int16_t>(layer));
    t.role.push_back(role);
    t.name.push_back(name);
    t.start.emplace_back(start);
    t.duration.emplace_back(duration);
    t.bytes.push_back(bytes);
  };
  for (int32_t step = 0; t.rows() < rows; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int k = 0; k < kOps; ++k, ++op) {
        const auto duration =
            static_cast<int64_t>(static_cast<double>(kDurations[k]) * spread(random));
        const int64_t call = static_cast<int64_t>(4'500'000 * spread(random));
        add(0, step, layer, Role::kHost, static_cast<uint32_t>(k + kOps), host, call, 0);
        host += call;
        const bool moves = kRoles[k] == Role::kRecall;
        int64_t& lane = moves ? copy : compute;
        int64_t start = std::max(lane, host + 1'000'000);
        if (moves) {
          start = std::max(start, compute);
          t.flows.push_back({op - 1, op});
        }
        if (kRoles[k] == Role::kAttention) {
          start = std::max(start, copy);
          t.flows.push_back({op - 1, op});
        }
        add(moves ? 2 : 1, step, layer, kRoles[k], static_cast<uint32_t>(k), start, duration,
            moves ? 1 << 20 : 0);
        lane = start + duration;
      }
      host = std::max(host, compute - 200'000'000);
    }
  }
  return t;
}

// Of all threads: unlike the time on the wall, the same on a busy machine.
double CpuMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

void Frames(const char* what, TimelineView& view, int count, const std::function<void(int)>& move) {
  std::vector<double> painted, cpu;
  const auto connection = QObject::connect(&view, &TimelineView::Painted, [&](qint64 nanoseconds) {
    painted.push_back(static_cast<double>(nanoseconds) * 1e-6);
  });
  for (int i = 0; i < count; ++i) {
    const double begin = CpuMilliseconds();
    move(i);
    view.repaint();
    cpu.push_back(CpuMilliseconds() - begin);
  }
  QObject::disconnect(connection);
  fmt::print("{:<34} P50 {:5.2f} ms   P99 {:5.2f} ms   CPU time P50 {:5.2f} ms   P99 {:5.2f} ms\n",
             what, Quantile(painted, 0.5), Quantile(painted, 0.99), Quantile(cpu, 0.5),
             Quantile(cpu, 0.99));
}

AxisRange Part(const TimelineView& view, double from, double length) {
  const AxisRange whole = view.alignment().whole;
  const auto at = [&](double share) {
    return whole.begin +
           Picoseconds(static_cast<int64_t>(share * static_cast<double>(whole.length().count())));
  };
  return {at(from), at(from + length)};
}

}  // namespace

int main(int argc, char** argv) {
  if (qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication application(argc, argv);
  const int64_t ops = argc > 1 ? std::atoll(argv[1]) : 10'000'000;

  const stallcast::ScratchFolder folder;
  const auto file = folder / "two.kvt";
  int64_t flows = 0;
  {
    traces::TraceWriter writer(file, {});
    for (auto origin :
         {traces::Timeline::Origin::kPredicted, traces::Timeline::Origin::kMeasured}) {
      const traces::Timeline t = Decode(origin, ops / 2, static_cast<uint32_t>(origin));
      flows += std::ssize(t.flows);
      writer.Write(t);
    }
    writer.Finish();
  }

  auto begin = Clock::now();
  traces::Trace trace = traces::ReadTrace(file);
  const double read = SecondsSince(begin);
  std::filesystem::remove(file);
  begin = Clock::now();
  const auto predicted = TimelineModel::Build(std::move(trace.timelines[0]));
  const auto measured = TimelineModel::Build(std::move(trace.timelines[1]));
  const double build = SecondsSince(begin);
  begin = Clock::now();
  const auto pair = TimelinePair::Make({predicted}, {measured});
  const double match = SecondsSince(begin);

  TimelineView view;
  view.resize(1920, 1080);
  begin = Clock::now();
  view.SetPair(pair);
  view.show();
  QApplication::processEvents();  // paints once the window is there
  const double first = SecondsSince(begin);

  const int64_t rows = predicted->rows() + measured->rows();
  const int64_t bytes = predicted->MemoryBytes() + measured->MemoryBytes() + pair->MemoryBytes();
  fmt::print("{} ops, {} waits, {} twins, 1920 x 1080, {} cores\n", rows, flows, pair->matched(),
             sysconf(_SC_NPROCESSORS_ONLN));
  fmt::print("open {:.2f} s: read {:.2f}, build {:.2f}, match {:.2f}, first picture {:.3f}\n",
             read + build + match + first, read, build, match, first);
  fmt::print("memory {:.1f} bytes an op\n", static_cast<double>(bytes) / static_cast<double>(rows));

  for (double length : {1.0, 0.1, 0.001, 0.00002}) {
    view.ShowRange(Part(view, 0.3, length));
    const double per_frame = length * 0.01;
    Frames(fmt::format("pan, {:g} % of it shown", length * 100).c_str(), view, 300, [&](int i) {
      view.ShowRange(Part(view, 0.3 + i * per_frame + (length == 1 ? -0.3 : 0), length));
      if (length == 1) view.SetColorBy(i % 2 == 0 ? ColorBy::kRole : ColorBy::kResidual);
    });
  }
  Frames("zoom, from all of it to one layer", view, 300, [&](int i) {
    const double length = std::pow(10.0, -7.0 * i / 299);
    view.ShowRange(Part(view, 0.41 * (1 - length), length));
  });
  view.SetColorBy(ColorBy::kResidual);
  Frames("zoom, colored by residual", view, 300, [&](int i) {
    const double length = std::pow(10.0, -7.0 * i / 299);
    view.ShowRange(Part(view, 0.41 * (1 - length), length));
  });
  view.SetFilter("role:recall");
  Frames("zoom, filtered", view, 300, [&](int i) {
    const double length = std::pow(10.0, -7.0 * i / 299);
    view.ShowRange(Part(view, 0.41 * (1 - length), length));
  });
  return 0;
}
