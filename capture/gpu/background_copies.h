// Background traffic on the link, made by real copies during a measured run.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Copies at the background rates of a profile, from construction to destruction. Each direction
/// has a thread and a stream. Copies of background_piece bytes start by BackgroundTicks, and wait
/// while hardware::kBackgroundCopies are in flight. Does nothing if both rates are 0. CUDA errors
/// at the start are Errors.
class BackgroundCopies {
 public:
  explicit BackgroundCopies(const hardware::Profile& profile);
  ~BackgroundCopies();
  BackgroundCopies(const BackgroundCopies&) = delete;
  BackgroundCopies& operator=(const BackgroundCopies&) = delete;

  /// Achieved and wanted rates by direction: "background.h2d: 9.8 of 10.0 GB/s copied".
  std::vector<std::string> notes() const;

 private:
  class Direction;
  std::vector<std::unique_ptr<Direction>> directions_;
};

}  // namespace stallcast::capture
