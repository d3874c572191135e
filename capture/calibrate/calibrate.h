// Measures a machine: what a hardware profile says of it, from probes alone, never from a method.
#pragma once

#include <functional>
#include <string>

#include "models/hardware/profile.h"

namespace stallcast::capture {

struct CalibrateOptions {
  std::string name;     ///< of the profile
  std::string command;  ///< for its provenance
  /// What is being measured, and the share done.
  std::function<void(const std::string& what, double share)> progress;
};

/// Takes some minutes, a few GiB of device memory and nine of pinned memory. Without CUPTI the gaps
/// between ops cannot be told from the ops and are assumed; the profile's notes say so. Errors: no
/// device, no memory.
hardware::Profile Calibrate(const CalibrateOptions& options);

/// `profile`, with what the host's calls and threads take measured anew, far quicker than all: a
/// host that others use is faster at one moment than at another. All else stays as it is, each
/// kernel's launch as much longer than an empty one as it was. Errors: the profile is of another
/// GPU; no device, no memory.
hardware::Profile CalibrateHost(hardware::Profile profile, const CalibrateOptions& options);

}  // namespace stallcast::capture
