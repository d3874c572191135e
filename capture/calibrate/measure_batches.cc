#include "capture/calibrate/measure_batches.h"

#include <algorithm>
#include <random>
#include <utility>

#include "kernels/cuda_error.h"
#include "traces/common/median.h"

namespace stallcast::capture {

using kernels::Check;

Batches::Batches() {
  for (const double bytes : {256, 1024, 4096, 8192, 16384, 24576, 32768, 65536}) {
    times_.push_back({.bytes = bytes});
  }
}

void Batches::Measure(Stopwatch& watch, const CopyEnds& ends) {
  // Sources are new ones each time, as those of a recall are: the same again come out a third
  // faster.
  constexpr int64_t kFew = 16, kMany = 160;
  std::mt19937_64 random(3);
  for (Times& of : times_) {
    const auto bytes = static_cast<int64_t>(of.bytes);
    const auto batch = [&](int64_t pieces) {
      std::vector<void*> to;
      std::vector<const void*> from;
      const std::vector<size_t> each(static_cast<size_t>(pieces), static_cast<size_t>(bytes));
      for (int64_t i = 0; i < pieces; ++i) {
        to.push_back(ends.device.get() + i * bytes);
        const auto places = static_cast<uint64_t>(CopyEnds::kPool / bytes);
        from.push_back(ends.host + static_cast<int64_t>(random() % places) * bytes);
      }
      cudaMemcpyAttributes attributes{};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      size_t first = 0;
      Check(cudaMemcpyBatchAsync(to.data(), from.data(), each.data(), to.size(), &attributes,
                                 &first, 1, watch.stream()),
            "cudaMemcpyBatchAsync");
    };
    const auto call_time = [&](int64_t pieces) { return watch.WallTime([&] { batch(pieces); }); };
    const auto total_time = [&](int64_t pieces) {
      return watch.WallTime([&] {
        batch(pieces);
        watch.Finish();
      });
    };
    const double few = call_time(kFew), many = call_time(kMany);
    const double piece = std::max((many - few) / (kMany - kFew), 1e-9);
    of.in_call.push_back(piece);
    of.in_all.push_back((total_time(kMany) - total_time(kFew)) / (kMany - kFew));
    of.call.push_back(std::max(few - kFew * piece, 1e-7));
  }
}

void Batches::Set(hardware::Profile& profile) const {
  std::vector<double> sizes, host, engine, calls;
  profile.copy_inline_below = 1;
  for (const Times& of : times_) {
    const double piece = Median(of.in_call), all = Median(of.in_all);
    // Pieces that move inside the call leave it nothing to wait for.
    if (all < 1.3 * piece) profile.copy_inline_below = of.bytes + 1;
    sizes.push_back(of.bytes);
    host.push_back(piece);
    engine.push_back(std::max(all - of.bytes / profile.link_h2d, 1e-9));
    calls.push_back(Median(of.call));
  }
  profile.host_batch_call = Median(std::move(calls));
  profile.batch_host_piece = hardware::Curve(sizes, host);
  profile.batch_engine_piece = hardware::Curve(sizes, engine);
}

}  // namespace stallcast::capture
