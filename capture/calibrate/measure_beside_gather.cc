#include "capture/calibrate/measure_beside_gather.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "capture/calibrate/scattered_gather.h"
#include "kernels/runtime/probe.h"

namespace stallcast::capture {
namespace {

constexpr int32_t kBlocks[] = {1, 2, 3, 4, 6, 8, 16, 32, 64};
constexpr int64_t kMoved = int64_t{64} << 20;
constexpr int kTrials = 3;

// `of_blocks` by a gather's blocks, where it is finite.
template <class OfBlocks>
hardware::Curve ByBlocks(const OfBlocks& of_blocks) {
  std::vector<double> measured, values;
  for (const int32_t blocks : kBlocks) {
    const double value = of_blocks(blocks);
    if (!std::isfinite(value)) continue;
    measured.push_back(blocks);
    values.push_back(value);
  }
  return measured.empty() ? hardware::Curve() : hardware::Curve(measured, values);
}

}  // namespace

void MeasureBesideGather(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  constexpr int32_t kPageTokens = 32;
  constexpr int kTrain = 24;
  constexpr int kGathers = 14;            // outlast a train, 180 us an item beside 64 blocks
  constexpr int kFew = 4, kOutlast = 24;  // on a link that both keep busy
  const ScatteredGather gather(ends, kPageTokens, /*rows=*/false, kMoved);
  const auto gathers = [&](int32_t blocks, int count, cudaStream_t stream) {
    for (int i = 0; i < count; ++i) gather.Run(blocks, gather.pieces(), stream);
  };
  const auto copies = [&](int count, cudaStream_t stream) {
    for (int i = 0; i < count; ++i) ends.Copy(i % 8 * kMoved, kMoved, true, stream);
  };
  const auto holds = [&](const auto& item) {
    const double alone = watch.Period(kTrain, item, kTrials);
    return ByBlocks([&](int32_t blocks) {
      const auto busy = [&](cudaStream_t stream) { gathers(blocks, kGathers, stream); };
      return watch.LongerBeside(busy, alone, kTrain, item, kTrials);
    });
  };
  int at = 0;
  profile.zero_copy_holds_kernel = holds([&](int) { kernels::Nothing(watch.stream()); });
  profile.zero_copy_holds_h2d_piece =
      holds([&](int) { ends.CopyPage(at++, CopyEnds::kPage, true, watch.stream()); });
  profile.zero_copy_holds_d2h_piece =
      holds([&](int) { ends.CopyPage(at++, CopyEnds::kPage, false, watch.stream()); });
  // Both move the same bytes.
  profile.zero_copy_link_share = ByBlocks([&](int32_t blocks) {
    const double of_gathers = Stopwatch::Median(kTrials, [&] {
      copies(kOutlast, watch.other());
      return watch.PeriodWhileBusy(1, [&](int) { gathers(blocks, kFew, watch.stream()); });
    });
    const double of_copies = Stopwatch::Median(kTrials, [&] {
      gathers(blocks, kOutlast, watch.other());
      return watch.PeriodWhileBusy(1, [&](int) { copies(kFew, watch.stream()); });
    });
    return std::isfinite(of_gathers) ? of_copies / of_gathers : of_gathers;
  });
}

}  // namespace stallcast::capture
