#include "capture/calibrate/measure_beside_gather.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "capture/calibrate/scattered_gather.h"
#include "kernels/probe.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

// Of a link that both keep busy.
hardware::Curve LinkShare(Stopwatch& watch, const CopyEnds& ends, const ScatteredGather& gather) {
  constexpr int64_t kCopy = int64_t{64} << 20;
  constexpr int kFew = 4, kMany = 16, kTrials = 3;
  std::vector<double> measured, shares;
  for (const int32_t blocks : {1, 2, 3, 4, 6, 8, 16, 32, 64}) {
    const auto gathers = [&](int count, cudaStream_t stream) {
      for (int i = 0; i < count; ++i) gather.Run(blocks, gather.pieces(), stream);
    };
    const auto copies = [&](int count, cudaStream_t stream) {
      for (int i = 0; i < count; ++i) ends.Copy(i % 8 * kCopy, kCopy, true, stream);
    };
    const auto rate = [&](double bytes, const auto& of, const auto& beside) {
      return bytes / Stopwatch::Median(kTrials, [&] {
               beside(kMany, watch.other());
               const double seconds = watch.PeriodBeside(1, [&](int) { of(kFew, watch.stream()); });
               watch.Finish();
               return seconds;
             });
    };
    const double of_gather = rate(kFew * gather.bytes(), gathers, copies);
    const double of_copies = rate(kFew * static_cast<double>(kCopy), copies, gathers);
    measured.push_back(blocks);
    shares.push_back(of_gather / of_copies);
  }
  return hardware::Curve(measured, shares);
}

}  // namespace

void MeasureBesideGather(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  constexpr int64_t kPage = 16384;
  constexpr int32_t kPageTokens = 32;
  constexpr int kTrain = 24, kTrials = 3;
  constexpr int kGathers = 14;  // of 64 MiB: outlast a train, 180 us an item beside 64 blocks
  constexpr double kLeast = 1e-9;
  const ScatteredGather gather(ends, kPageTokens, /*rows=*/false, int64_t{64} << 20);
  int at = 0;
  // Seconds of an item beside gathers; infinite where they ended first.
  const auto once = [&](int32_t blocks, const auto& item) {
    for (int i = 0; blocks > 0 && i < kGathers; ++i) {
      gather.Run(blocks, gather.pieces(), watch.other());
    }
    const double seconds = watch.PeriodBeside(kTrain, item);
    const bool outlasted = blocks == 0 || cudaStreamQuery(watch.other()) == cudaErrorNotReady;
    watch.Finish();
    return outlasted ? seconds : INFINITY;
  };
  const auto holds = [&](const auto& item) {
    const auto beside = [&](int32_t blocks) {
      return Stopwatch::Median(kTrials, [&] { return once(blocks, item); });
    };
    const double alone = beside(0);
    std::vector<double> measured, longer;
    for (const int32_t blocks : {1, 2, 3, 4, 6, 8, 16, 32, 64}) {
      const double seconds = beside(blocks);
      if (!std::isfinite(seconds)) continue;
      measured.push_back(blocks);
      longer.push_back(std::max(seconds - alone, kLeast));
    }
    return measured.empty() ? hardware::Curve() : hardware::Curve(measured, longer);
  };
  profile.zero_copy_holds_kernel = holds([&](int) { kernels::Nothing(watch.stream()); });
  profile.zero_copy_holds_h2d_piece =
      holds([&](int) { ends.CopyPage(at++, kPage, true, watch.stream()); });
  profile.zero_copy_holds_d2h_piece =
      holds([&](int) { ends.CopyPage(at++, kPage, false, watch.stream()); });
  profile.zero_copy_link_share = LinkShare(watch, ends, gather);
}

}  // namespace stallcast::capture
