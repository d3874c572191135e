#include "capture/calibrate/transfers/measure_pages.h"

#include <algorithm>
#include <utility>

#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

constexpr int kTrials = 31;
constexpr int64_t kPage = CopyEnds::kPage;

}  // namespace

Pages::Pages(LayerPages& pages) : pages_(pages) {
  for (const int64_t bytes : {int64_t{4096}, kPage, int64_t{65536}}) {
    near_.push_back({.bytes = bytes});
  }
  for (const int64_t pool : pages.pools().Sizes()) translation_.push_back({.bytes = pool});
}

// Of those behind the first, up to as many as layers recall, in a recall of some and one of few.
double Pages::Page(Stopwatch& watch, int64_t bytes, PagePlacement placement, int64_t pool) const {
  constexpr int kFew = 8, kSome = 64;
  return Stopwatch::WithoutEnds(kFew, kSome, [&](int copies) {
    pages_.Choose(copies, bytes, watch.stream(), placement, pool);
    watch.Finish();
    return Stopwatch::WallSeconds([&] {
      for (int i = 0; i < copies; ++i) pages_.Copy(i, watch.stream());
      watch.Finish();
    });
  });
}

void Pages::Measure(Stopwatch& watch) {
  for (Times& of : near_) {
    of.seconds.push_back(Stopwatch::Median(
        kTrials, [&] { return Page(watch, of.bytes, PagePlacement::kNear, LayerPages::kPool); }));
  }
  for (Times& of : translation_) {
    // By turns: what others do on the link comes and goes.
    of.seconds.push_back(Stopwatch::Median(kTrials, [&] {
      return Page(watch, kPage, PagePlacement::kFar, of.bytes) -
             Page(watch, kPage, PagePlacement::kNear, of.bytes);
    }));
  }
}

void Pages::Set(hardware::Profile& profile) const {
  const hardware::Curve& curve = profile.copy.h2d_piece;
  std::vector<double> sizes(curve.x().begin(), curve.x().end());
  std::vector<double> beyond(curve.y().begin(), curve.y().end());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto of = std::ranges::find(near_, static_cast<int64_t>(sizes[i]), &Times::bytes);
    if (of == near_.end()) continue;
    beyond[i] = std::max(Median(of->seconds) - sizes[i] / profile.link.h2d, 1e-9);
  }
  profile.copy.h2d_piece = hardware::Curve(std::move(sizes), std::move(beyond));
  std::vector<double> pools, times;
  for (const Times& of : translation_) {
    pools.push_back(static_cast<double>(of.bytes));
    times.push_back(std::max(Median(of.seconds), 1e-12));
  }
  profile.copy.translation = hardware::Curve(std::move(pools), std::move(times));
}

}  // namespace stallcast::capture
