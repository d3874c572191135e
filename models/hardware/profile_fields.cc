// The values of a profile, a row each. From these rows come the reader and the writer of its files,
// --set, the checks of their ranges, the panel of the window and reference.md.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/hardware/profile.h"
#include "models/hardware/profile_check.h"

namespace stallcast::hardware {
namespace {

using enum Dimension;
using Kind = ProfileField::Kind;

// Where a value stands, as a function: a pointer to a member cannot reach into a section.
#define AT(member) [](Profile& p) -> double& { return p.member; }
#define CURVE(member) [](Profile& p) -> Curve& { return p.member; }
// What an operator takes PyTorch's host thread.
#define PYTORCH(member, help)                                                      \
  {                                                                                \
    "pytorch." #member, kTime, AT(pytorch.member), "PyTorch's host thread: " help, \
        Kind::kOptional, kHostTime                                                 \
  }

constexpr Scaling kHostTime{"host.slower"}, kHostRate{"host.slower", -1};
constexpr Scaling kMemoryTime{"memory.bandwidth", -1}, kMemoryRate{"memory.bandwidth"};

constexpr ProfileField kFields[] = {
    {"link.h2d", kRate, AT(link.h2d),
     "copies to the GPU, alone; set, it scales zero_copy.rate too"},
    {"link.d2h", kRate, AT(link.d2h), "copies to the host, alone"},
    {"link.both_h2d",
     kRate,
     AT(link.both_h2d),
     "copies to the GPU while the other way is full",
     Kind::kNeeded,
     {"link.h2d"}},
    {"link.both_d2h",
     kRate,
     AT(link.both_d2h),
     "copies to the host while the other way is full",
     Kind::kNeeded,
     {"link.d2h"}},
    {"copy.h2d_start", kTime, AT(copy.h2d_start),
     "copy engine busy before a copy's first byte, without copy.h2d_piece"},
    {"copy.d2h_start", kTime, AT(copy.d2h_start),
     "copy engine busy before a copy's first byte, without copy.d2h_piece"},
    {"copy.crowded_piece", kTime, AT(copy.crowded_piece),
     "a copy's piece takes longer while two other streams have work", Kind::kOptional},
    {"copy.group_turn", kTime, AT(copy.group_turn),
     "a copy starts later while a kernel of another stream that does not compute waits",
     Kind::kOptional},
    {"copy.2d_row", kTime, AT(copy.row_2d), "least time of a row of a 2-D copy"},
    {"copy.device_factor", kNumber, AT(copy.device_factor),
     "bytes of device-memory traffic that a copied byte costs others"},
    {"copy.device_loss", kRate, AT(copy.device_loss),
     "most device-memory rate that copies of one way cost others beyond their bytes; 0: any",
     Kind::kOptional},
    {"copy.inline_below", kBytes, AT(copy.inline_below),
     "batched pieces to the GPU below this are carried by the host call (inline copies)"},
    {"copy.spread", kNumber, AT(copy.spread), "relative standard deviation of copies"},
    {"zero_copy.start", kTime, AT(zero_copy.start), "kernel start to first byte, and its tail"},
    {"zero_copy.round_ahead", kTime, AT(zero_copy.round_ahead),
     "a block's 64 KiB whose next pieces are looked up meanwhile; 0: as in zero_copy.rate",
     Kind::kOptional},
    {"zero_copy.spread", kNumber, AT(zero_copy.spread),
     "relative standard deviation of zero-copy reads"},
    {"host.launch", kTime, AT(host.launch),
     "call that launches a kernel; set, it scales kernel.*.host", Kind::kNeeded, kHostTime},
    {"host.copy_call", kTime, AT(host.copy_call), "call of a copy to the GPU", Kind::kNeeded,
     kHostTime},
    {"host.copy_back_call", kTime, AT(host.copy_back_call), "call of a copy to the host",
     Kind::kNeeded, kHostTime},
    {"host.batch_call", kTime, AT(host.batch_call), "call of a batch of copies, without its pieces",
     Kind::kNeeded, kHostTime},
    {"host.event_record", kTime, AT(host.event_record), "call that records an event", Kind::kNeeded,
     kHostTime},
    {"host.stream_wait", kTime, AT(host.stream_wait), "call that makes a stream wait for an event",
     Kind::kNeeded, kHostTime},
    {"host.op", kTime, AT(host.op), "the executor's own work for an op, with its first call",
     Kind::kOptional, kHostTime},
    {"host.notify", kTime, AT(host.notify), "call that wakes another host thread", Kind::kNeeded,
     kHostTime},
    {"host.graph_launch", kTime, AT(host.graph_launch), "launch of a CUDA graph", Kind::kNeeded,
     kHostTime},
    {"host.graph_node", kTime, AT(host.graph_node), "the same, more for each node", Kind::kNeeded,
     kHostTime},
    {"host.slower", kNumber, AT(host.slower),
     "all host calls, hand-overs and gathers take so many times as long", Kind::kOfRun},
    {"host.recorded", kNumber, AT(host.recorded),
     "1: as stallcast-gpu records it, with the costs of recorder.*", Kind::kOfRun},
    PYTORCH(view, "a view: tensor.view()"),
    PYTORCH(slice, "a slice or transpose: tensor[:, a:b]"),
    PYTORCH(module_call, "a call of an nn.Module that does nothing"),
    PYTORCH(cpu_operator, "an operator on one number of the host"),
    PYTORCH(launch, "an operator in place, which launches one kernel"),
    PYTORCH(launch_allocating, "the same with a result of its own"),
    PYTORCH(allocation, "an allocation from the caching allocator"),
    PYTORCH(zeros, "an allocation that is filled"),
    PYTORCH(cast, "a tensor in another type"),
    PYTORCH(reduce, "a mean over a dimension"),
    PYTORCH(linear, "a linear layer"),
    PYTORCH(cat, "a concatenation of two"),
    PYTORCH(topk, "a top-k"),
    PYTORCH(sort, "an argsort"),
    PYTORCH(index_select, "rows of a GPU tensor by a list"),
    PYTORCH(sdpa, "attention over as many keys as before"),
    PYTORCH(sdpa_new_length,
            "attention over a number of keys that is new, for which a plan may be compiled"),
    PYTORCH(item, "item() of a GPU scalar, stream idle"),
    PYTORCH(scalar_to_host, "cpu() of a GPU scalar, stream idle"),
    PYTORCH(index_by_gpu_scalar, "an index of a host tensor by a GPU scalar"),
    PYTORCH(stream_context, "entering and leaving a stream"),
    PYTORCH(event_record, "recording an event"),
    PYTORCH(event_wait, "a stream that waits for an event"),
    PYTORCH(synchronize, "synchronize(), GPU idle"),
    PYTORCH(graph_launch, "launch of a CUDA graph from PyTorch"),
    {"pytorch.kernel", kTime, AT(pytorch.kernel),
     "GPU time from one small kernel of an operator to the next, in a CUDA graph", Kind::kOptional},
    {"pytorch.spread", kNumber, AT(pytorch.spread), "relative spread of these", Kind::kOptional},
    {"pytorch.each", kTime, AT(pytorch.each),
     "each operator that PyTorch's profiler counts costs the host so much, whatever pytorch.* "
     "says; "
     "0: as measured",
     Kind::kOfRun, kHostTime},
    {"recorder.copy", kTime, AT(recorder.copy),
     "between copies of a stream, more while they are recorded", Kind::kOptional},
    {"recorder.kernel", kTime, AT(recorder.kernel),
     "between kernels of a stream, more while they are recorded", Kind::kOptional},
    {"recorder.op", kTime, AT(recorder.op), "host.op, more while it is recorded", Kind::kOptional},
    {"recorder.launch", kTime, AT(recorder.launch), "host.launch, more while it is recorded",
     Kind::kOptional},
    {"recorder.copy_call", kTime, AT(recorder.copy_call), "host.copy_call, likewise",
     Kind::kOptional},
    {"recorder.copy_back_call", kTime, AT(recorder.copy_back_call), "host.copy_back_call, likewise",
     Kind::kOptional},
    {"recorder.event_record", kTime, AT(recorder.event_record), "host.event_record, likewise",
     Kind::kOptional},
    {"recorder.stream_wait", kTime, AT(recorder.stream_wait), "host.stream_wait, likewise",
     Kind::kOptional},
    {"recorder.sync", kTime, AT(recorder.sync), "handoff.*.host.event, likewise", Kind::kOptional},
    {"host.memory", kRate, AT(host.memory),
     "host memory, for gathers by host threads; link.* alone bounds what the GPU copies or reads"},
    {"host.attention", kRate, AT(host.attention),
     "most that host threads read while they attend, without host.attention_rate; 0: host.memory",
     Kind::kOptional, kHostRate},
    {"host.gather_thread", kRate, AT(host.gather_thread), "gather rate of one thread",
     Kind::kNeeded, kHostRate},
    {"host.gather_piece", kTime, AT(host.gather_piece), "more for each piece that it gathers",
     Kind::kNeeded, kHostTime},
    {"host.bytes", kBytes, AT(host.bytes), "host memory for the pinned pool"},
    {"host.spread", kNumber, AT(host.spread), "relative standard deviation of host work"},
    {"device.sms", kNumber, AT(device.sms), "multiprocessors"},
    {"device.boost", kNumber, AT(device.boost),
     "speed-up of kernels that compute right after idle, at the boost clock; 0: none",
     Kind::kOptional},
    {"device.boost_time", kTime, AT(device.boost_time),
     "compute time until the power limit sets the clock", Kind::kOptional},
    {"memory.bandwidth", kRate, AT(memory.bandwidth),
     "device memory, large reads; set, it scales kernel.*.bandwidth"},
    {"memory.bytes", kBytes, AT(memory.bytes), "device memory capacity"},
    {"memory.drag_most", kTime, AT(memory.drag_most),
     "most that the write-back of other kernels' output slows a layer's GEMMs", Kind::kNeeded,
     kMemoryTime},
    {"memory.drag_share", kNumber, AT(memory.drag_share),
     "most of a GEMM's time that it is slowed by write-back"},
    {"gemm.delays_kernel", kTime, AT(gemm.delays_kernel),
     "a kernel's start takes longer while a memory-bound GEMM runs", Kind::kOptional, kMemoryTime},
    {"background.h2d", kRate, AT(background.h2d), "what others ask to copy to the GPU meanwhile",
     Kind::kOfRun},
    {"background.d2h", kRate, AT(background.d2h), "what others ask to copy to the host meanwhile",
     Kind::kOfRun},
    {"background.piece", kBytes, AT(background.piece), "bytes of each of their copies",
     Kind::kOfRun},
};

constexpr KernelField kKernelFields[] = {
    {"fixed", kTime, &KernelFit::fixed_s, "time whatever the size"},
    {"bandwidth", kRate, &KernelFit::bandwidth, "device bytes a second"},
    {"flops", kFlops, &KernelFit::flops_rate, "operations a second; 0: never the limit", true},
    {"cache", kRate, &KernelFit::cache_rate,
     "bytes a second that leave the device's cache; 0: never the limit", true},
    {"serial", kTime, &KernelFit::serial_s, "time an item of the longest chain", true},
    {"spread", kNumber, &KernelFit::spread, "relative standard deviation"},
    {"host", kTime, &KernelFit::host_s, "call of each kernel launched; 0: host.launch", true},
};

constexpr CurveField kCurves[] = {
    {"copy.h2d_piece",
     "piece_bytes",
     "time_us",
     1e6,
     CURVE(copy.h2d_piece),
     "copy engine busy before a piece's first byte",
     true,
     {"copy.h2d_start"}},
    {"copy.d2h_piece",
     "piece_bytes",
     "time_us",
     1e6,
     CURVE(copy.d2h_piece),
     "copy engine busy before a piece's first byte",
     true,
     {"copy.d2h_start"}},
    {"copy.translation", "pool_bytes", "time_us", 1e6, CURVE(copy.translation),
     "address translation of a copy to the GPU, for each 64 KiB of the pool that it reads first",
     true},
    {"copy.h2d_inline_call", "piece_bytes", "time_us", 1e6, CURVE(copy.h2d_inline_call),
     "call of a copy to an idle stream that carries the bytes (inline copy); larger ones do not",
     true, kHostTime},
    {"copy.h2d_inline_time", "piece_bytes", "time_us", 1e6, CURVE(copy.h2d_inline_time),
     "an inline copy on the GPU's front end, which starts no kernel meanwhile", true},
    {"batch.host_piece", "piece_bytes", "time_us", 1e6, CURVE(batch.host_piece),
     "host time a piece of a batched copy", false, kHostTime},
    {"batch.engine_piece", "piece_bytes", "time_us", 1e6, CURVE(batch.engine_piece),
     "copy engine time a piece of a batched copy, beside its bytes"},
    {"host.woken", "asleep_s", "time_us", 1e6, CURVE(host.woken),
     "warm-up: what a woken thread's first calls take longer, all together", true, kHostTime},
    {"host.handoff_asleep",
     "asleep_s",
     "time_us",
     1e6,
     CURVE(host.handoff_asleep),
     "handoff.host.host.event to a thread that has slept so long",
     true,
     kHostTime,
     {"handoff.host.host.event"}},
    {"host.gather_rate",
     "threads",
     "rate_gb_per_s",
     1e-9,
     CURVE(host.gather_rate),
     "gather of large pieces by so many threads",
     true,
     kHostRate,
     {"host.gather_thread"}},
    {"host.gather_first_rate",
     "threads",
     "rate_gb_per_s",
     1e-9,
     CURVE(host.gather_first_rate),
     "the same of a gather's first 2 MiB",
     true,
     kHostRate,
     {"host.gather_thread"}},
    {"host.attention_rate",
     "threads",
     "rate_gb_per_s",
     1e-9,
     CURVE(host.attention_rate),
     "keys and values that so many threads attend",
     true,
     kHostRate},
    {"host.gather_start",
     "threads",
     "time_us",
     1e6,
     CURVE(host.gather_start),
     "before they gather",
     true,
     kHostTime,
     {"handoff.host.host.event"}},
    {"host.gather_row",
     "threads",
     "time_us",
     1e6,
     CURVE(host.gather_row),
     "more for each piece that they gather",
     true,
     kHostTime,
     {"host.gather_piece"}},
    {"pytorch.copy_pinned", "piece_bytes", "time_us", 1e6, CURVE(pytorch.copy_pinned),
     "PyTorch's host thread: a pinned copy to the GPU", true, kHostTime},
    {"pytorch.copy_strided", "piece_bytes", "time_us", 1e6, CURVE(pytorch.copy_strided),
     "PyTorch's host thread: the same to a strided destination", true, kHostTime},
    {"pytorch.copy_pageable", "piece_bytes", "time_us", 1e6, CURVE(pytorch.copy_pageable),
     "PyTorch's host thread: a pageable copy to the GPU", true, kHostTime},
    {"pytorch.copy_back_pinned", "piece_bytes", "time_us", 1e6, CURVE(pytorch.copy_back_pinned),
     "PyTorch's host thread: a pinned copy to the host", true, kHostTime},
    {"pytorch.copy_back_strided", "piece_bytes", "time_us", 1e6, CURVE(pytorch.copy_back_strided),
     "PyTorch's host thread: the same to strided pinned memory", true, kHostTime},
    {"pytorch.copy_back_pageable", "piece_bytes", "time_us", 1e6, CURVE(pytorch.copy_back_pageable),
     "PyTorch's host thread: a copy to pageable memory", true, kHostTime},
    {"pytorch.gather_row", "threads", "time_us", 1e6, CURVE(pytorch.gather_row),
     "PyTorch's host gather: a row of 256 B by so many threads", true, kHostTime},
    {"zero_copy.translation", "pool_bytes", "time_us", 1e6, CURVE(zero_copy.translation),
     "address translation of scattered zero-copy reads, for each 32 KiB of the pool", true},
    {"zero_copy.drag", "bytes", "time_us", 1e6, CURVE(zero_copy.drag),
     "write-back of what a gather brings, paid by the GEMMs behind it", true, kMemoryTime},
    {"zero_copy.memory_loss", "blocks", "loss_gb_per_s", 1e-9, CURVE(zero_copy.memory_loss),
     "device-memory rate that a gather costs others beyond its bytes", false, kMemoryRate},
};

constexpr SurfaceField kSurfaces[] = {
    {"zero_copy.rate", "piece_bytes", "blocks", "rate_gb_per_s", 1e-9,
     [](Profile& p) -> Surface& { return p.zero_copy.rate; }, "zero-copy reads"},
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

// One row a number of the table.
struct HandoffField {
  Site from, to;
  How how;
  std::string path, help;
};

const std::vector<HandoffField>& HandoffFields() {
  static const std::vector<HandoffField> fields = [] {
    constexpr std::string_view kWhat[] = {"a kernel", "a copy to the GPU", "a copy to the host",
                                          "the host"};
    constexpr std::string_view kHow[] = {"in one stream", "that waits for its event",
                                         "as nodes of a graph"};
    std::vector<HandoffField> all;
    for (size_t how = 0; how < kHowNames.size(); ++how) {
      for (size_t from = 0; from < kSiteNames.size(); ++from) {
        for (size_t to = 0; to < kSiteNames.size(); ++to) {
          const auto a = static_cast<Site>(from), b = static_cast<Site>(to);
          if (!HandoffTable<double>::Has(a, b, static_cast<How>(how))) continue;
          std::string help =
              a != Site::kHost
                  ? fmt::format("end of {} to {}, {}", kWhat[from], kWhat[to], kHow[how])
              : b == Site::kHost ? "one host thread's notice to another's going on"
                                 : fmt::format("call's return to {} on an idle stream", kWhat[to]);
          all.push_back(
              {a, b, static_cast<How>(how),
               fmt::format("handoff.{}.{}.{}", kSiteNames[from], kSiteNames[to], kHowNames[how]),
               std::move(help)});
        }
      }
    }
    return all;
  }();
  return fields;
}

}  // namespace

double& ProfileField::In(Profile& profile) const {
  if (kind != Kind::kHandoff) return of(profile);
  const HandoffField& field = HandoffFields()[static_cast<size_t>(handoff)];
  return profile.handoff(field.from, field.to, field.how);
}

std::span<const ProfileField> ProfileFields() {
  static const std::vector<ProfileField> fields = [] {
    std::vector<ProfileField> all(std::begin(kFields), std::end(kFields));
    for (const HandoffField& each : HandoffFields()) {
      const bool of_host = each.from == Site::kHost && each.to == Site::kHost;
      all.push_back({.path = each.path,
                     .dimension = kTime,
                     .of = nullptr,
                     .help = each.help,
                     .kind = Kind::kHandoff,
                     .scaled = of_host ? kHostTime : Scaling{},
                     .handoff = static_cast<int>(&each - HandoffFields().data())});
    }
    return all;
  }();
  return fields;
}

std::span<const KernelField> KernelFields() { return kKernelFields; }
std::span<const std::string_view> KernelKinds() { return kKernelKinds; }
std::span<const std::string_view> OptionalKernelKinds() {
  static const std::vector<std::string_view> kinds = [] {
    std::vector<std::string_view> found;
    for (int kind = 0; kind < plan::kOpKinds; ++kind) {
      // What host threads do has no fit of a kernel.
      const bool kernel =
          std::ranges::find(kKernelKinds, plan::CostedAs(kind)) != std::end(kKernelKinds);
      if (kernel) found.push_back(plan::KindName(kind));
    }
    return found;
  }();
  return kinds;
}
std::span<const CurveField> CurveFields() { return kCurves; }
std::span<const SurfaceField> SurfaceFields() { return kSurfaces; }

std::string ProfileReference() {
  constexpr std::string_view kUnits[] = {"number", "time", "bytes", "bytes/s", "FLOP/s"};
  const auto scaled = [](const Scaling& a, const Scaling& b) {
    std::string text;
    for (const Scaling& each : {a, b}) {
      if (each.with.empty()) continue;
      text +=
          fmt::format("{}{}{}", text.empty() ? "" : ", ", each.power < 0 ? "1 / " : "", each.with);
    }
    return text;
  };
  std::string page =
      "# Values of a machine profile\n\n"
      "Made from the tables of profile_fields.cc: `STALLCAST_UPDATE=1 build/bin/test_models "
      "--gtest_filter='ProfileReference.*'` writes it anew. A value is set with `--set "
      "PATH=VALUE`. "
      "Values that name it under \"scales with\" then change in proportion.\n\n"
      "## Numbers\n\n| path | unit | meaning | in a file | scales with |\n|---|---|---|---|---|\n";
  constexpr std::string_view kInFile[] = {"yes", "optional", "no", "yes"};
  for (const ProfileField& field : ProfileFields()) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.path,
                        kUnits[static_cast<size_t>(field.dimension)], field.help,
                        kInFile[static_cast<size_t>(field.kind)],
                        scaled(field.scaled, field.scaled_too));
  }
  page += "\n## Of each kernel kind, `kernel.KIND.`\n\n| path | unit | meaning |\n|---|---|---|\n";
  for (const KernelField& field : kKernelFields) {
    page += fmt::format("| `{}` | {} | {} |\n", field.path,
                        kUnits[static_cast<size_t>(field.dimension)], field.help);
  }
  page +=
      "\n## Curves\n\n| path | by | value | meaning | in a file | scales with |\n"
      "|---|---|---|---|---|---|\n";
  for (const CurveField& curve : kCurves) {
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", curve.path, curve.x_key, curve.y_key,
                        curve.help, curve.optional ? "optional" : "yes",
                        scaled(curve.scaled, curve.scaled_too));
  }
  for (const SurfaceField& surface : kSurfaces) {
    page +=
        fmt::format("| `{}` | {}, {} | {} | {} | yes | link.h2d, up to the link |\n", surface.path,
                    surface.row_key, surface.column_key, surface.value_key, surface.help);
  }
  return page;
}

}  // namespace stallcast::hardware
