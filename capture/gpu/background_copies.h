// Traffic of others on the link, made for real beside a measured run.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Copies as a profile's background values say, from construction to destruction: a thread and a
/// stream a direction, copies of background_piece bytes by BackgroundTicks, none while
/// hardware::kBackgroundCopies are under way. Nothing where both rates are 0. CUDA errors while it
/// starts are Errors.
class BackgroundCopies {
 public:
  explicit BackgroundCopies(const hardware::Profile& profile);
  ~BackgroundCopies();
  BackgroundCopies(const BackgroundCopies&) = delete;
  BackgroundCopies& operator=(const BackgroundCopies&) = delete;

  /// Asked and got since the start, a direction: "background.h2d: 9.8 of 10.0 GB/s copied".
  std::vector<std::string> notes() const;

 private:
  class Direction;
  std::vector<std::unique_ptr<Direction>> directions_;
};

}  // namespace stallcast::capture
