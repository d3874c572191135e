#include "capture/calibrate/kernels/measure_batches.h"

#include <algorithm>
#include <utility>

#include "kernels/movement/batched_copy.h"
#include "traces/common/median.h"

namespace stallcast::capture {

Batches::Batches() {
  for (const double bytes : {256, 1024, 4096, 8192, 16384, 24576, 32768, 65536}) {
    times_.push_back({.bytes = bytes});
  }
}

// Pages are others each time: the same again come out a third faster.
void Batches::Measure(Stopwatch& watch, LayerPages& pages) {
  constexpr int kFew = 16, kMany = 160, kTrials = 15;
  kernels::BatchedCopy batch;
  for (Times& of : times_) {
    const auto bytes = static_cast<int64_t>(of.bytes);
    const auto copy = [&](int pieces) {
      batch.Clear();
      for (int i = 0; i < pieces; ++i) {
        batch.Add(pages.To(i), pages.From(i), static_cast<size_t>(bytes));
      }
      batch.Run(watch.stream());
    };
    const auto seconds = [&](int pieces, bool until_done) {
      return watch.WallTime(
          [&] {
            copy(pieces);
            if (until_done) watch.Finish();
          },
          kTrials, [&] { pages.Choose(pieces, bytes, watch.stream(), PagePlacement::kFar); });
    };
    const double few = seconds(kFew, false), many = seconds(kMany, false);
    const double piece = std::max((many - few) / (kMany - kFew), 1e-9);
    of.in_call.push_back(piece);
    of.in_all.push_back((seconds(kMany, true) - seconds(kFew, true)) / (kMany - kFew));
    of.call.push_back(std::max(few - kFew * piece, 1e-7));
  }
}

void Batches::Set(hardware::Profile& profile) const {
  std::vector<double> sizes, host, engine, calls;
  profile.copy.inline_below = 1;
  for (const Times& of : times_) {
    const double piece = Median(of.in_call), all = Median(of.in_all);
    // Of pieces that the call carries, it has most of the time.
    if (all < 2 * piece) profile.copy.inline_below = of.bytes + 1;
    sizes.push_back(of.bytes);
    host.push_back(piece);
    engine.push_back(std::max(all - piece - of.bytes / profile.link.h2d, 1e-9));
    calls.push_back(Median(of.call));
  }
  profile.host.batch_call = Median(std::move(calls));
  profile.batch.host_piece = hardware::Curve(sizes, host);
  profile.batch.engine_piece = hardware::Curve(sizes, engine);
}

}  // namespace stallcast::capture
