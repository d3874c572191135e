// Whether a host is still, or at all, as fast as a profile says: its calls cost differently on each
// machine, and more while others use the same one.
#pragma once

#include <string>

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// What to say of a launch that takes so many seconds when a calibration ends and took
/// `profile.host_launch` when it began; empty while they are within 15 %.
std::string DriftNote(double launch_seconds, const hardware::Profile& profile);

/// The same of a launch beside a measured run that is predicted with `profile`.
std::string OtherHostNote(double launch_seconds, const hardware::Profile& profile);

}  // namespace stallcast::capture
