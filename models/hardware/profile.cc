#include "models/hardware/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/hardware/links.h"
#include "models/hardware/profile_check.h"
#include "traces/common/error.h"
#include "traces/common/factor.h"
#include "traces/common/nearest.h"

namespace stallcast::hardware {
namespace {

using enum Dimension;

constexpr double kMostTime = 1;     // s
constexpr double kLeastRate = 1e6;  // bytes/s
constexpr double kMost = 1e18;      // bytes, bytes/s
constexpr double kMostFlops = 1e21;
constexpr double kLeastBackgroundPiece = 4096;
constexpr double kLeastHostFactor = 0.01;
constexpr double kMostNumber = 1e6;
constexpr double kMostSpread = 2;

void Require(bool condition, std::string problem, std::string_view where, std::string remedy) {
  if (!condition) throw Error(std::move(problem), std::string(where), std::move(remedy));
}

void RequireSane(std::string_view path, Dimension dimension, double value, std::string_view where) {
  const std::string problem = OutOfRange(path, dimension, value);
  Require(problem.empty(), problem, where, "give a value inside the range");
}

void Scale(Curve& curve, double factor) {
  // A curve holds positive values: the least of them stands for nothing.
  constexpr double kLeast = 1e-12;
  std::vector<double> y = curve.y();
  for (double& value : y) value = std::max(value * factor, kLeast);
  if (!curve.empty()) curve = Curve(curve.x(), std::move(y));
}

// What goes with a value that becomes `factor` times as large.
void ScaleWith(Profile& profile, std::string_view path, double factor) {
  const auto by = [&](const Scaling& scaling) {
    return scaling.with == path ? std::pow(factor, scaling.power) : 1.0;
  };
  for (const ProfileField& field : ProfileFields()) {
    field.In(profile) *= by(field.scaled) * by(field.scaled_too);
  }
  for (const CurveField& curve : CurveFields()) {
    const double times = by(curve.scaled) * by(curve.scaled_too);
    if (times != 1) Scale(curve.In(profile), times);
  }
  for (auto& [kind, fit] : profile.kernels) {
    // Kinds whose launches were timed by themselves keep their ratio to host.launch.
    if (path == "host.launch" || path == "host.slower") fit.host_s *= factor;
    if (path != "memory.bandwidth") continue;
    fit.bandwidth *= factor;
    for (KernelPoint& point : fit.points) point.drag /= factor;
  }
}

// The kernel value that `path` names, or nullptrs.
std::pair<KernelFit*, const KernelField*> FindKernelField(Profile& profile, std::string_view path) {
  constexpr std::string_view kPrefix = "kernel.";
  const size_t dot = path.rfind('.');
  if (!path.starts_with(kPrefix) || dot < kPrefix.size()) return {};
  const auto kernel = profile.kernels.find(path.substr(kPrefix.size(), dot - kPrefix.size()));
  const auto field = std::ranges::find(KernelFields(), path.substr(dot + 1), &KernelField::path);
  if (kernel == profile.kernels.end() || field == KernelFields().end()) return {};
  return {&kernel->second, &*field};
}

// In a section that there is, a name that is like none of its values may be another word for one:
// "memory.capacity".
std::string RemedyForUnknown(std::string_view path, const std::vector<std::string>& known) {
  const std::string_view section = path.substr(0, path.rfind('.') + 1);
  std::vector<std::string_view> all(known.begin(), known.end()), of_section;
  for (const std::string_view each : all) {
    const bool inside = !section.empty() && each.starts_with(section);
    if (inside) of_section.push_back(each.substr(section.size()));
  }
  const std::string_view near = Nearest(path.substr(section.size()), of_section);
  if (!near.empty()) return fmt::format("did you mean '{}{}'?", section, near);
  constexpr size_t kMostListed = 40;
  if (!of_section.empty() && of_section.size() <= kMostListed) {
    return fmt::format("{} has {}", section.substr(0, section.size() - 1),
                       fmt::join(of_section, ", "));
  }
  const std::string_view nearest = Nearest(path, all);
  return nearest.empty() ? "`stallcast info --machine h200` lists all values"
                         : fmt::format("did you mean '{}'?", nearest);
}

}  // namespace

std::string OutOfRange(std::string_view path, Dimension dimension, double value) {
  double least = 0;
  double most = kMost;
  switch (dimension) {
    case kTime:
      most = kMostTime;
      break;
    case kRate: {
      const auto fields = ProfileFields();
      const auto field = std::ranges::find(fields, path, &ProfileField::path);
      const bool may_lack = field != fields.end() && (field->optional() || !field->in_file());
      // None at all, perhaps, but none so low that the time of a copy cannot be told.
      least = value <= 0 && (may_lack || path.ends_with(".cache")) ? 0 : kLeastRate;
      break;
    }
    case kBytes:
      least = path == "background.piece" ? kLeastBackgroundPiece : 0;
      break;
    case kFlops:
      most = kMostFlops;
      break;
    case kNumber:
      most = path.ends_with("spread") ? kMostSpread : kMostNumber;
      least = path == "device.sms" ? 1 : path == "host.slower" ? kLeastHostFactor : 0;
      if (path == "host.recorded") most = 1;
      break;
  }
  if (value >= least && value <= most) return {};
  return fmt::format("{} is {}, outside {} to {}", path, FormatQuantity(value, dimension),
                     FormatQuantity(least, dimension), FormatQuantity(most, dimension));
}

void SetField(Profile& profile, const ProfileField& field, double value) {
  const bool to_gpu = field.path == "link.h2d";
  if ((to_gpu || field.path == "link.d2h") && profile.copy.device_loss == 0) {
    profile.copy.device_loss =
        (profile.copy.device_factor - 1) * std::max(profile.link.h2d, profile.link.d2h);
  }
  const double before = std::exchange(field.In(profile), value);
  if (before <= 0) return;
  if (field.path == "copy.device_factor" && before > 1) {
    profile.copy.device_loss *= std::max(value - 1, 0.0) / (before - 1);
  }
  if (to_gpu && value > 0) profile.zero_copy.rate.Relink(before, value);
  if (value > 0 || field.path != "memory.bandwidth") ScaleWith(profile, field.path, value / before);
}

void Check(const Profile& profile, std::string_view where) {
  for (const ProfileField& field : ProfileFields()) {
    RequireSane(field.path, field.dimension, field.In(profile), where);
  }
  Require(profile.link.both_h2d <= profile.link.h2d && profile.link.both_d2h <= profile.link.d2h,
          "a direction is faster while the other runs than alone", where,
          "link.both_h2d <= link.h2d and link.both_d2h <= link.d2h");
  Require(profile.device.boost == 0 || profile.device.boost >= 1,
          fmt::format("device.boost is {}: it is how many times as fast", profile.device.boost),
          where, "give 1 or more, or 0 for none");
  Require(profile.memory.drag_share <= 1,
          fmt::format("memory.drag_share is {}: more than the whole of a product's time",
                      profile.memory.drag_share),
          where, "give a share, 0 to 1");
  for (const std::string_view kind : KernelKinds()) {
    const auto kernel = profile.kernels.find(kind);
    Require(kernel != profile.kernels.end(), fmt::format("there is no [kernel.{}]", kind), where,
            "every op kind needs a fit");
    for (const KernelField& field : KernelFields()) {
      RequireSane(fmt::format("kernel.{}.{}", kind, field.path), field.dimension,
                  kernel->second.*field.member, where);
    }
    Require(kernel->second.min_bytes <= kernel->second.max_bytes,
            fmt::format("kernel.{}.range is upside down", kind), where, "give [least, most]");
  }
  for (const auto& [kind, fit] : profile.kernels) {
    const auto optional = OptionalKernelKinds();
    Require(std::ranges::find(KernelKinds(), kind) != KernelKinds().end() ||
                std::ranges::find(optional, kind) != optional.end(),
            fmt::format("there is no op kind '{}'", kind), where, Suggestion(kind, KernelKinds()));
  }
  Require(!profile.batch.host_piece.empty() && !profile.batch.engine_piece.empty() &&
              !profile.zero_copy.rate.empty() && !profile.zero_copy.memory_loss.empty(),
          "a curve is missing", where, "give all the curves of the shipped profiles");
  Require(profile.status == "measured" || profile.status == "tables" || profile.status == "derived",
          fmt::format("status is '{}'", profile.status), where,
          "it is measured, tables or derived");
}

// A curve has no one value: what it goes with is set, or all of it in a file.
void RefuseCurve(std::string_view path) {
  const auto refuse = [&](std::string_view sizes, std::string_view first, std::string_view second) {
    const bool scales = !first.empty();
    throw UsageError(
        fmt::format("'{}' is a curve over {}, not one value", path, sizes), "",
        fmt::format("{}{}write a profile with `base =` this machine and a [{}] of its own",
                    scales ? fmt::format("set {}, with which it scales, or ",
                                         second.empty() ? std::string(first)
                                                        : fmt::format("{} or {}", first, second))
                           : "",
                    scales ? "" : "to change it, ", path));
  };
  for (const CurveField& curve : CurveFields()) {
    if (curve.path == path) refuse(curve.x_key, curve.scaled.with, curve.scaled_too.with);
  }
  for (const SurfaceField& table : SurfaceFields()) {
    if (table.path == path) {
      refuse(fmt::format("{} and {}", table.row_key, table.column_key), "", "");
    }
  }
}

void Set(Profile& profile, std::string_view path, std::string_view value) {
  if (path == "link") {
    const LinkRates rates = LinkNamed(value, path);
    Set(profile, "link.h2d", FormatQuantity(rates.h2d, Dimension::kRate));
    Set(profile, "link.d2h", FormatQuantity(rates.d2h, Dimension::kRate));
    return;
  }
  Profile changed = profile;
  const auto fields = ProfileFields();
  const auto field = std::ranges::find(fields, path, &ProfileField::path);
  const auto [fit, kernel_field] = FindKernelField(changed, path);
  std::string now;  // what a factor makes of the value
  const auto read = [&](Dimension dimension, double current) {
    const double number = ParseQuantityOrFactor(value, dimension, current, path);
    if (ParseFactor(value)) now = fmt::format(" ({})", FormatQuantity(number, dimension));
    return number;
  };
  try {
    if (field != fields.end()) {
      const double number = read(field->dimension, field->In(changed));
      RequireSane(path, field->dimension, number, path);
      SetField(changed, *field, number);
    } else if (fit != nullptr) {
      double& member = fit->*kernel_field->member;
      member = read(kernel_field->dimension, member);
    } else {
      RefuseCurve(path);
      std::vector<std::string> known;
      for (const ProfileField& each : fields) known.emplace_back(each.path);
      for (const std::string_view kind : KernelKinds()) {
        for (const KernelField& each : KernelFields()) {
          known.push_back(fmt::format("kernel.{}.{}", kind, each.path));
        }
      }
      throw UsageError(fmt::format("there is no value '{}' in a hardware profile", path), "",
                       RemedyForUnknown(path, known));
    }
    Check(changed, path);
  } catch (const Error& error) {
    throw UsageError(error.problem(), error.where(), error.remedy());
  }
  changed.overrides.push_back(fmt::format("{}={}{}", path, value, now));
  profile = std::move(changed);
}

}  // namespace stallcast::hardware
