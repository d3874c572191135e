#include "models/hardware/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "models/hardware/profile_check.h"
#include "traces/common/error.h"
#include "traces/common/nearest.h"

namespace stallcast::hardware {
namespace {

using enum Dimension;

constexpr ProfileField kFields[] = {
    {"link.h2d", kRate, &Profile::link_h2d, "copy engine rate, host to GPU, alone"},
    {"link.d2h", kRate, &Profile::link_d2h, "copy engine rate, GPU to host, alone"},
    {"link.both_h2d", kRate, &Profile::link_both_h2d, "host to GPU while the other way is full"},
    {"link.both_d2h", kRate, &Profile::link_both_d2h, "GPU to host while the other way is full"},
    {"copy.h2d_start", kTime, &Profile::copy_h2d_start, "engine time before a copy's first byte"},
    {"copy.d2h_start", kTime, &Profile::copy_d2h_start, "engine time before a copy's first byte"},
    {"copy.crowded_piece", kTime, &Profile::copy_crowded_piece,
     "a copy's piece takes longer while two other streams have work"},
    {"copy.group_turn", kTime, &Profile::copy_group_turn,
     "a copy takes longer while another stream of its group has a kernel that waits", true, true},
    {"copy.2d_row", kTime, &Profile::copy_2d_row, "least time of a row of a 2-D copy"},
    {"copy.device_factor", kNumber, &Profile::copy_device_factor,
     "device-memory bytes that a copied byte costs others"},
    {"copy.device_loss", kRate, &Profile::copy_device_loss,
     "device-memory rate that copies of one way cost others beyond their bytes at most; 0: any",
     true, true},
    {"copy.inline_below", kBytes, &Profile::copy_inline_below,
     "batched pieces below this are carried by the host call"},
    {"copy.spread", kNumber, &Profile::copy_spread, "relative standard deviation of copies"},
    {"zero_copy.start", kTime, &Profile::zero_copy_start, "kernel start to first byte, and tail"},
    {"zero_copy.round_ahead", kTime, &Profile::zero_copy_round_ahead,
     "a block's 64 KiB whose next pieces are looked up meanwhile; 0: as zero_copy.rate has them",
     true, true},
    {"zero_copy.round_tokens", kTime, &Profile::zero_copy_round_tokens,
     "a block's 64 KiB of tokens, each looked up before; 0: as zero_copy.rate has them", true,
     true},
    {"zero_copy.spread", kNumber, &Profile::zero_copy_spread,
     "relative standard deviation of zero-copy reads"},
    {"host.launch", kTime, &Profile::host_launch,
     "host call that launches a kernel; set, it scales kernel.*.host"},
    {"host.copy_call", kTime, &Profile::host_copy_call, "host call of one copy to the GPU"},
    {"host.copy_back_call", kTime, &Profile::host_copy_back_call,
     "host call of one copy to the host"},
    {"host.copy_switch", kTime, &Profile::host_copy_switch,
     "host calls of a copy to the GPU behind a kernel of its stream, more", true, true},
    {"host.batch_call", kTime, &Profile::host_batch_call, "host call of a batch, without pieces"},
    {"host.event_record", kTime, &Profile::host_event_record, "host call that records an event"},
    {"host.stream_wait", kTime, &Profile::host_stream_wait, "host call: stream waits for event"},
    {"host.op", kTime, &Profile::host_op, "what issues the ops takes for each, beside its calls",
     true, true},
    {"host.sync", kTime, &Profile::host_sync, "last op's end to the host going on"},
    {"host.sync_copy", kTime, &Profile::host_sync_copy, "the same of a copy; 0: as host.sync", true,
     true},
    {"host.handoff", kTime, &Profile::host_handoff, "waking another host thread"},
    {"host.notify", kTime, &Profile::host_notify, "host call that wakes another host thread"},
    {"host.beside_call", kTime, &Profile::host_beside_call,
     "a launch or a copy's call, longer while another thread waits for the device"},
    {"host.contended", kNumber, &Profile::host_contended,
     "calls take so many times as long while another thread is in one"},
    {"host.contended_more", kNumber, &Profile::host_contended_more,
     "the same while two or more others are; 0: as host.contended", true, true},
    {"host.graph_launch", kTime, &Profile::host_graph_launch, "launch of a CUDA graph"},
    {"host.graph_node", kTime, &Profile::host_graph_node, "the same, more for each node"},
    {"host.slower", kNumber, &Profile::host_slower,
     "all host calls, hand-overs and gathers take so many times as long", false},
    {"host.recorded", kNumber, &Profile::host_recorded,
     "1: as stallcast-gpu records it, calls longer by recorder.*", false},
    {"recorder.copy", kTime, &Profile::recorder_copy,
     "between copies of a stream, more while they are recorded", true, true},
    {"recorder.kernel", kTime, &Profile::recorder_kernel,
     "between kernels of a stream, more while they are recorded", true, true},
    {"recorder.op", kTime, &Profile::recorder_op, "host time of an op, more while it is recorded",
     true, true},
    {"recorder.launch", kTime, &Profile::recorder_launch, "the same of host.launch", true, true},
    {"recorder.copy_call", kTime, &Profile::recorder_copy_call, "the same of host.copy_call", true,
     true},
    {"recorder.copy_back_call", kTime, &Profile::recorder_copy_back_call,
     "the same of host.copy_back_call", true, true},
    {"recorder.event_record", kTime, &Profile::recorder_event_record,
     "the same of host.event_record", true, true},
    {"recorder.stream_wait", kTime, &Profile::recorder_stream_wait, "the same of host.stream_wait",
     true, true},
    {"recorder.sync", kTime, &Profile::recorder_sync, "the same of host.sync and sync_copy", true,
     true},
    {"recorder.holds_h2d_piece", kTime, &Profile::recorder_holds_h2d_piece,
     "the same of product.holds_h2d_piece", true, true},
    {"recorder.holds_d2h_piece", kTime, &Profile::recorder_holds_d2h_piece,
     "the same of product.holds_d2h_piece", true, true},
    {"host.memory", kRate, &Profile::host_memory,
     "host memory, for gathers by host threads; link.* alone bounds what the GPU copies or reads"},
    {"host.gather_thread", kRate, &Profile::host_gather_thread, "gather rate of one thread"},
    {"host.gather_piece", kTime, &Profile::host_gather_piece,
     "more for each piece that it gathers"},
    {"host.bytes", kBytes, &Profile::host_bytes, "host memory for the pinned pool"},
    {"host.spread", kNumber, &Profile::host_spread, "relative standard deviation of host work"},
    {"device.launch_latency", kTime, &Profile::device_launch_latency,
     "launch call's return to start on an idle GPU"},
    {"device.copy_latency", kTime, &Profile::device_copy_latency,
     "copy call's return to start on an idle GPU"},
    {"device.gap", kTime, &Profile::device_gap, "between dependent kernels of a stream"},
    {"device.crowded_gap", kTime, &Profile::device_crowded_gap,
     "between kernels of a stream, more while a kernel of another stream of its group waits"},
    {"device.copy_gap", kTime, &Profile::device_copy_gap, "between a kernel and a copy"},
    {"device.flag_gap", kTime, &Profile::device_flag_gap,
     "the same before a copy to the host that a host waits for; 0: as device.copy_gap", true, true},
    {"device.direction_gap", kTime, &Profile::device_direction_gap,
     "between copies of a stream that go opposite ways, before one to the host"},
    {"device.direction_gap_h2d", kTime, &Profile::device_direction_gap_h2d,
     "the same before one to the GPU; 0: as device.direction_gap", true, true},
    {"device.look_period", kTime, &Profile::device_look_period,
     "from one look of an engine for the end of the copy before to the next; 0: not known", true,
     true},
    {"device.first_look", kTime, &Profile::device_first_look,
     "a copy's commands to its start, to the host behind one to the GPU that still ran", true,
     true},
    {"device.first_look_h2d", kTime, &Profile::device_first_look_h2d,
     "the same to the GPU behind one to the host", true, true},
    {"device.event_latency", kTime, &Profile::device_event_latency,
     "an op's end to the start of one that waits for it"},
    {"device.event_to_copy", kTime, &Profile::device_event_to_copy,
     "a kernel's end to the start of another stream's copy that waits for it"},
    {"device.event_from_copy", kTime, &Profile::device_event_from_copy,
     "a copy's end to the start of another stream's kernel that waits for it"},
    {"device.event_wait", kTime, &Profile::device_event_wait,
     "a stream loses to each wait, also for what is long done"},
    {"device.event_record", kTime, &Profile::device_event_record,
     "a stream loses to each event recorded"},
    {"device.graph_gap", kTime, &Profile::device_graph_gap, "between kernels inside a graph"},
    {"device.boost", kNumber, &Profile::device_boost,
     "times as fast are kernels that compute until the power limit sets the clock; 0: never", true,
     true},
    {"device.boost_time", kTime, &Profile::device_boost_time,
     "that kernels compute on a GPU that was idle before the power limit sets the clock", true,
     true},
    {"device.sms", kNumber, &Profile::device_sms, "multiprocessors"},
    {"memory.bandwidth", kRate, &Profile::memory_bandwidth, "device memory, large reads"},
    {"memory.bytes", kBytes, &Profile::memory_bytes, "device memory capacity"},
    {"memory.drag_most", kTime, &Profile::memory_drag_most,
     "what other kernels have written slows a layer's products by this at most"},
    {"memory.drag_share", kNumber, &Profile::memory_drag_share,
     "of that, at most this share of a product's time is paid"},
    {"product.holds_kernel", kTime, &Profile::product_holds_kernel,
     "a kernel's start takes longer while a product streams weights; 0: as beside any load", true,
     true},
    {"product.holds_h2d_piece", kTime, &Profile::product_holds_h2d_piece,
     "the same of the start of a copy's piece to the GPU", true, true},
    {"product.holds_d2h_piece", kTime, &Profile::product_holds_d2h_piece,
     "the same of one to the host", true, true},
    {"product.holds_round", kTime, &Profile::product_holds_round,
     "a round of a zero-copy gather takes longer meanwhile", true, true},
    {"background.h2d", kRate, &Profile::background_h2d,
     "what others ask to copy to the GPU meanwhile", false},
    {"background.d2h", kRate, &Profile::background_d2h,
     "what others ask to copy to the host meanwhile", false},
    {"background.piece", kBytes, &Profile::background_piece, "bytes of each of their copies",
     false},
};

constexpr KernelField kKernelFields[] = {
    {"fixed", kTime, &KernelFit::fixed_s, "time whatever the size"},
    {"bandwidth", kRate, &KernelFit::bandwidth, "device bytes a second"},
    {"flops", kFlops, &KernelFit::flops_rate, "operations a second; 0: never the limit"},
    {"cache", kRate, &KernelFit::cache_rate,
     "bytes a second that leave the device's cache; 0: never the limit"},
    {"serial", kTime, &KernelFit::serial_s, "time an item of the longest chain"},
    {"spread", kNumber, &KernelFit::spread, "relative standard deviation"},
    {"host", kTime, &KernelFit::host_s, "host call of each kernel launched; 0: host.launch"},
};

constexpr std::string_view kKernelKinds[] = {
    plan::Gemm::kName,
    plan::Norm::kName,
    plan::RopeAppend::kName,
    plan::SwiGlu::kName,
    plan::Sample::kName,
    plan::DecodeAttention::kName,
    plan::PrefillAttention::kName,
    plan::VerticalSlashAttention::kName,
    plan::GateMlp::kName,
    plan::Admit::kName,
    plan::WindowScore::kName,
    plan::Summarize::kName,
    plan::QuerySimilarity::kName,
    plan::Score::kName,
    plan::TopK::kName,
    plan::Sort::kName,
    plan::AssignSlots::kName,
    plan::SelectUnits::kName,
    plan::KMeans::kName,
    plan::ObservationScore::kName,
    plan::KeyEncode::kName,
    plan::CollisionTable::kName,
    plan::CollisionScore::kName,
    plan::BucketTopK::kName,
    plan::Rerank::kName,
    plan::FactorizeKeys::kName,
    plan::RebuildKeys::kName,
    plan::Layout::kName,
};

// Kinds that a profile may leave out: those that are costed as another.
bool IsOptional(std::string_view kind) {
  for (int i = 0; i < plan::kOpKinds; ++i) {
    if (plan::KindName(i) == kind) return !plan::CostedAs(i).empty();
  }
  return false;
}

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

// The kinds whose launches were timed by themselves keep their ratio to host.launch.
void ScaleLaunches(Profile& profile, double factor) {
  for (auto& [kind, fit] : profile.kernels) fit.host_s *= factor;
}

// The rates of several threads keep theirs to host.gather_thread.
void ScaleGatherRates(Profile& profile, double factor) {
  Scale(profile.host_gather_rate, factor);
  Scale(profile.host_gather_first_rate, factor);
}

// What a host spends on calls, hand-overs and gathers, as where another's program has its cores'
// other hyperthreads; not the wait for the device.
void ScaleHost(Profile& profile, double factor) {
  for (double Profile::*time :
       {&Profile::host_launch, &Profile::host_copy_call, &Profile::host_copy_back_call,
        &Profile::host_copy_switch, &Profile::host_batch_call, &Profile::host_event_record,
        &Profile::host_stream_wait, &Profile::host_op, &Profile::host_handoff,
        &Profile::host_notify, &Profile::host_beside_call, &Profile::host_graph_launch,
        &Profile::host_graph_node}) {
    profile.*time *= factor;
  }
  Scale(profile.batch_host_piece, factor);
  Scale(profile.copy_h2d_inline_call, factor);
  Scale(profile.host_woken, factor);
  Scale(profile.host_waited, factor);
  Scale(profile.host_gathered, factor);
  Scale(profile.host_handoff_asleep, factor);
  Scale(profile.host_gather_start, factor);
  Scale(profile.host_gather_woken, factor);
  profile.host_gather_piece *= factor;
  Scale(profile.host_gather_row, factor);
  profile.host_gather_thread /= factor;
  ScaleGatherRates(profile, 1 / factor);
  ScaleLaunches(profile, factor);
}

void SetField(Profile& profile, const ProfileField& field, double value) {
  const bool link = field.member == &Profile::link_h2d || field.member == &Profile::link_d2h;
  if (link && profile.copy_device_loss == 0) {
    profile.copy_device_loss =
        (profile.copy_device_factor - 1) * std::max(profile.link_h2d, profile.link_d2h);
  }
  const double before = std::exchange(profile.*field.member, value);
  const double factor = before > 0 ? value / before : 1;
  if (field.member == &Profile::link_h2d && value > 0) {
    profile.link_both_h2d *= factor;
    profile.zero_copy.Relink(before, value);
    // The same bytes on their way, at another rate.
    Scale(profile.zero_copy_holds_kernel, 1 / factor);
    Scale(profile.zero_copy_holds_h2d_piece, 1 / factor);
    Scale(profile.zero_copy_holds_d2h_piece, 1 / factor);
  } else if (field.member == &Profile::link_d2h) {
    profile.link_both_d2h *= factor;
  } else if (field.member == &Profile::copy_device_factor && before > 1) {
    profile.copy_device_loss *= std::max(value - 1, 0.0) / (before - 1);
  } else if (field.member == &Profile::copy_h2d_start) {
    Scale(profile.copy_h2d_piece, factor);
  } else if (field.member == &Profile::copy_d2h_start) {
    Scale(profile.copy_d2h_piece, factor);
  } else if (field.member == &Profile::host_gather_thread) {
    ScaleGatherRates(profile, factor);
  } else if (field.member == &Profile::host_gather_piece) {
    Scale(profile.host_gather_row, factor);
  } else if (field.member == &Profile::host_contended) {
    profile.host_contended_more *= factor;
  } else if (field.member == &Profile::host_launch) {
    ScaleLaunches(profile, factor);
  } else if (field.member == &Profile::host_handoff) {
    Scale(profile.host_gather_start, factor);
    Scale(profile.host_handoff_asleep, factor);
  } else if (field.member == &Profile::host_slower) {
    ScaleHost(profile, factor);
  } else if (field.member == &Profile::memory_bandwidth && value > 0) {
    for (auto& [kind, fit] : profile.kernels) {
      fit.bandwidth *= factor;
      for (KernelPoint& point : fit.points) point.drag /= factor;
    }
    profile.memory_drag_most /= factor;
    // The same bytes on their way, at another rate.
    profile.product_holds_kernel /= factor;
    profile.product_holds_h2d_piece /= factor;
    profile.product_holds_d2h_piece /= factor;
    profile.product_holds_round /= factor;
    Scale(profile.zero_copy_drag, 1 / factor);
    Scale(profile.zero_copy_memory_loss, factor);
  }
}

// The kernel value that `path` names, or nullptrs.
std::pair<KernelFit*, const KernelField*> FindKernelField(Profile& profile, std::string_view path) {
  constexpr std::string_view kPrefix = "kernel.";
  const size_t dot = path.rfind('.');
  if (!path.starts_with(kPrefix) || dot < kPrefix.size()) return {};
  const auto kernel = profile.kernels.find(path.substr(kPrefix.size(), dot - kPrefix.size()));
  const auto field = std::ranges::find(kKernelFields, path.substr(dot + 1), &KernelField::path);
  if (kernel == profile.kernels.end() || field == std::end(kKernelFields)) return {};
  return {&kernel->second, field};
}

}  // namespace

std::span<const ProfileField> ProfileFields() { return kFields; }
std::span<const KernelField> KernelFields() { return kKernelFields; }
std::span<const std::string_view> KernelKinds() { return kKernelKinds; }

std::string OutOfRange(std::string_view path, Dimension dimension, double value) {
  double least = 0;
  double most = kMost;
  switch (dimension) {
    case kTime:
      most = kMostTime;
      break;
    case kRate: {
      const auto field = std::ranges::find(kFields, path, &ProfileField::path);
      const bool may_lack = field != std::end(kFields) && (field->optional || !field->in_file);
      least = may_lack || path.ends_with(".cache") ? 0 : kLeastRate;
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

void Check(const Profile& profile, std::string_view where) {
  for (const ProfileField& field : kFields) {
    RequireSane(field.path, field.dimension, profile.*field.member, where);
  }
  Require(profile.link_both_h2d <= profile.link_h2d && profile.link_both_d2h <= profile.link_d2h,
          "a direction is faster while the other runs than alone", where,
          "link.both_h2d <= link.h2d and link.both_d2h <= link.d2h");
  Require(
      profile.host_contended >= 1,
      fmt::format("host.contended is {}: calls get faster beside others'", profile.host_contended),
      where, "give 1 or more");
  Require(profile.host_contended_more == 0 || profile.host_contended_more >= profile.host_contended,
          fmt::format("host.contended_more is {}: calls get faster beside more others'",
                      profile.host_contended_more),
          where, "give host.contended or more, or 0");
  Require(profile.device_boost == 0 || profile.device_boost >= 1,
          fmt::format("device.boost is {}: it is how many times as fast", profile.device_boost),
          where, "give 1 or more, or 0 for none");
  Require(profile.memory_drag_share <= 1,
          fmt::format("memory.drag_share is {}: more than the whole of a product's time",
                      profile.memory_drag_share),
          where, "give a share, 0 to 1");
  for (const double share : profile.zero_copy_kept.y()) {
    Require(share <= 1, fmt::format("zero_copy.kept is {}: more than all regions", share), where,
            "give shares of at most 1");
  }
  for (const std::string_view kind : kKernelKinds) {
    const auto kernel = profile.kernels.find(kind);
    Require(kernel != profile.kernels.end(), fmt::format("there is no [kernel.{}]", kind), where,
            "every op kind needs a fit");
    for (const KernelField& field : kKernelFields) {
      RequireSane(fmt::format("kernel.{}.{}", kind, field.path), field.dimension,
                  kernel->second.*field.member, where);
    }
    Require(kernel->second.min_bytes <= kernel->second.max_bytes,
            fmt::format("kernel.{}.range is upside down", kind), where, "give [least, most]");
  }
  for (const auto& [kind, fit] : profile.kernels) {
    Require(std::ranges::find(kKernelKinds, kind) != std::end(kKernelKinds) || IsOptional(kind),
            fmt::format("there is no op kind '{}'", kind), where, Suggestion(kind, kKernelKinds));
  }
  Require(!profile.batch_host_piece.empty() && !profile.batch_engine_piece.empty() &&
              !profile.zero_copy.empty() && !profile.zero_copy_memory_loss.empty(),
          "a curve is missing", where, "give all the curves of the shipped profiles");
  Require(profile.status == "measured" || profile.status == "derived",
          fmt::format("status is '{}'", profile.status), where, "it is measured or derived");
}

void Set(Profile& profile, std::string_view path, std::string_view value) {
  Profile changed = profile;
  const auto field = std::ranges::find(kFields, path, &ProfileField::path);
  const auto [fit, kernel_field] = FindKernelField(changed, path);
  try {
    if (field != std::end(kFields)) {
      const double number = ParseQuantity(value, field->dimension, path);
      RequireSane(path, field->dimension, number, path);
      SetField(changed, *field, number);
    } else if (fit != nullptr) {
      fit->*kernel_field->member = ParseQuantity(value, kernel_field->dimension, path);
    } else {
      std::vector<std::string> known;
      for (const ProfileField& each : kFields) known.emplace_back(each.path);
      for (const std::string_view kind : kKernelKinds) {
        for (const KernelField& each : kKernelFields) {
          known.push_back(fmt::format("kernel.{}.{}", kind, each.path));
        }
      }
      const std::vector<std::string_view> views(known.begin(), known.end());
      const std::string_view nearest = Nearest(path, views);
      throw UsageError(fmt::format("there is no value '{}' in a hardware profile", path), "",
                       nearest.empty() ? "the profile files name all values"
                                       : fmt::format("did you mean '{}'?", nearest));
    }
    Check(changed, path);
  } catch (const Error& error) {
    throw UsageError(error.problem(), error.where(), error.remedy());
  }
  changed.overrides.push_back(fmt::format("{}={}", path, value));
  profile = std::move(changed);
}

}  // namespace stallcast::hardware
