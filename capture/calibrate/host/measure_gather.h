// How fast threads of the host gather pieces of a pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "capture/calibrate/transfers/layer_pools.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Gathers like those of a layer's recall, of pages that the host lists first and of tokens' rows
/// that it has listed, each from another layer's pool, by threads that are still awake. A host that
/// others use gathers faster at one moment than at another, by a third within seconds: time them at
/// several.
class Gathers {
 public:
  /// From layers' pools of LayerPages::kPool, which `pools` must outlive.
  explicit Gathers(const LayerPools& pools);
  ~Gathers();

  /// Times all of them once.
  void Measure();
  /// Fills in host.gather_thread, gather_piece, gather_first_rate, gather_rate, gather_start and
  /// gather_row by the number of threads, and host.memory, from the medians of what has been timed:
  /// once at least.
  void Set(hardware::Profile& profile) const;

 private:
  class Pool;
  /// Of so many threads: what the least, few and many bytes took in pages and in rows, s, by
  /// moment.
  struct Times {
    int threads = 1;
    std::vector<double> least_pages{}, few_pages{}, many_pages{}, few_rows{}, many_rows{};
  };
  std::unique_ptr<Pool> pool_;
  std::vector<Times> times_;
};

/// Seconds that kGatherNow takes here from one layer's share of `pool` after the other, as Gathers
/// times it. pool: pinned memory of a piece at least.
double GatherHere(std::span<const std::byte> pool);

}  // namespace stallcast::capture
