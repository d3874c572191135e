#include "capture/calibrate/transfers/link_rates.h"

#include <fmt/format.h>

#include <algorithm>

namespace stallcast::capture {
namespace {

// More than large copies differ on a link that nobody else uses.
constexpr double kNoticed = 1.03;

}  // namespace

void SetLink(std::span<const LinkRates> moments, hardware::Profile& profile) {
  profile.link.both_h2d = profile.link.both_d2h = 0;
  for (const LinkRates& moment : moments) {
    profile.link.h2d = std::max(profile.link.h2d, moment.h2d);
    profile.link.d2h = std::max(profile.link.d2h, moment.d2h);
    profile.link.both_h2d = std::max(profile.link.both_h2d, moment.both_h2d);
    profile.link.both_d2h = std::max(profile.link.both_d2h, moment.both_d2h);
  }
  // One way beside the other is never faster than alone; the clocks say so now and then.
  profile.link.both_h2d = std::min(profile.link.both_h2d, profile.link.h2d);
  profile.link.both_d2h = std::min(profile.link.both_d2h, profile.link.d2h);
}

std::string LinkDriftNote(std::span<const LinkRates> moments) {
  const auto [least, most] = std::ranges::minmax(moments, {}, &LinkRates::h2d);
  if (most.h2d <= kNoticed * least.h2d) return "";
  return fmt::format(
      "The link carried {:.1f} GB/s to the GPU at one moment and {:.1f} at another: something else "
      "used it. The most counts, but what else was measured then may be slow.",
      least.h2d * 1e-9, most.h2d * 1e-9);
}

std::string OtherLinkNote(double h2d, const hardware::Profile& profile) {
  if (profile.link.h2d <= kNoticed * h2d) return "";
  return fmt::format(
      "the link carries {:.1f} GB/s here, {:.1f} in the profile {}: something else uses it, run "
      "again when it is quiet",
      h2d * 1e-9, profile.link.h2d * 1e-9, profile.name);
}

}  // namespace stallcast::capture
