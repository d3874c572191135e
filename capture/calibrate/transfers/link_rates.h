// What the link carries at several moments. Nothing makes it faster than it is, but other guests of
// a host may have copies of their own on it.
#pragma once

#include <span>
#include <string>

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Bytes/s at some moment: one way alone, and each way while both are in use.
struct LinkRates {
  double h2d = 0, d2h = 0;
  double both_h2d = 0, both_d2h = 0;
};

/// The most of each over the moments as link.h2d, d2h, both_h2d and both_d2h of `profile`; what it
/// has of the first two counts as a moment.
void SetLink(std::span<const LinkRates> moments, hardware::Profile& profile);

/// What to say of a calibration in whose course copies to the GPU differed; empty while they are
/// within 3 %.
std::string LinkDriftNote(std::span<const LinkRates> moments);

/// The same of copies to the GPU that are so much slower, at so many bytes/s, beside a measured run
/// that is predicted with `profile`.
std::string OtherLinkNote(double h2d, const hardware::Profile& profile);

}  // namespace stallcast::capture
