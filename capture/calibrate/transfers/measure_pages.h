// What pages cost the copy engine that a layer recalls one after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/layer_pages.h"
#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Recalls that are called while the GPU has nothing else to do, on the calling thread's core. They
/// take a tenth longer while others use the link or the host: time them at several moments.
class Pages {
 public:
  explicit Pages(LayerPages& pages);

  /// Times all of them once.
  void Measure(Stopwatch& watch);
  /// Fills in copy.translation, and of copy.h2d_piece what pages take that lie one behind the
  /// other, from the medians of what has been timed: once at least. Takes the rest of the curve and
  /// link.h2d from the profile.
  void Set(hardware::Profile& profile) const;

 private:
  /// Seconds that something takes, by bytes and moment.
  struct Times {
    int64_t bytes = 0;
    std::vector<double> seconds{};
  };
  double Page(Stopwatch& watch, int64_t bytes, PagePlacement placement, int64_t pool) const;

  LayerPages& pages_;
  std::vector<Times> near_;         // of a page of so many bytes
  std::vector<Times> translation_;  // beside that, anywhere in a layer's pool of so many bytes
};

}  // namespace stallcast::capture
