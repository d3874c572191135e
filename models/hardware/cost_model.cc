#include "models/hardware/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/hardware/kernel_law.h"
#include "traces/common/error.h"

namespace stallcast::hardware {
namespace {

constexpr double kBytesABlock = 32 * 1024;
constexpr double kGatherBlocksAnSm = 2;  // 2,048 threads
constexpr double kLinkPriority = 1e3;
constexpr double kLongest = 86400;  // s

size_t At(Resource resource) { return static_cast<size_t>(resource); }

void Add(OpCost& cost, Resource resource, double per_unit) {
  cost.demand[cost.demands++] = {resource, per_unit};
}

Picoseconds Time(double seconds) {
  if (!(seconds <= kLongest)) {
    throw Error(
        "an op takes more than a day", "cost model",
        "use a shorter context or a smaller batch, leave out the prefill (--no-prefill), or "
        "check the values that the machine was given");
  }
  return FromSeconds(seconds);
}

// No default: a new op kind does not compile until it has a cost.
class Coster {
  using Lookup = plan::ZeroCopyGather::Lookup;

 public:
  Coster(const Profile& profile, const std::array<double, kResources>& capacity,
         const WriteBack& write_back, const KernelFit& fit, const TimedPoints& points,
         const plan::KernelShape& shape, const plan::WorkCounts& counts)
      : profile_(profile),
        capacity_(capacity),
        write_back_(write_back),
        fit_(fit),
        points_(points),
        shape_(shape),
        counts_(counts) {}

  OpCost operator()(const plan::Gemm&) const {
    OpCost cost = Kernel();
    cost.boosted = FlopsTime() >= static_cast<double>(counts_.device()) / fit_.bandwidth;
    cost.dragged = !cost.boosted;
    if (cost.boosted) return cost;
    cost.streams_weights = true;
    return cost;
  }
  OpCost operator()(const plan::GroupedGemm&) const { return Kernel(); }
  OpCost operator()(const plan::Route&) const { return Kernel(); }
  OpCost operator()(const plan::LatentAttention&) const { return Kernel(); }
  OpCost operator()(const plan::LatentIndex&) const { return Kernel(); }
  OpCost operator()(const plan::StateUpdate&) const { return Kernel(); }
  OpCost operator()(const plan::AllReduce& sum) const {
    OpCost cost = Kernel();
    // Without a fit: as fast as GPUs pass bytes on over the link to the host.
    if (!cost.extrapolated || cost.amount <= 0) return cost;
    const double link = std::min(profile_.link_h2d, profile_.link_d2h);
    cost.rate = cost.weight = std::min(cost.rate, link);
    cost.fixed = Time(2 * (sum.gpus - 1) * profile_.device_copy_latency);
    cost.demands = 0;
    Add(cost, Resource::kDeviceMemory, 1);
    return cost;
  }
  OpCost operator()(const plan::Norm&) const { return Kernel(); }
  OpCost operator()(const plan::RopeAppend&) const { return Kernel(); }
  OpCost operator()(const plan::SwiGlu&) const { return Kernel(); }
  OpCost operator()(const plan::Sample&) const { return Kernel(); }
  OpCost operator()(const plan::DecodeAttention&) const { return Kernel(); }
  OpCost operator()(const plan::PrefillAttention&) const { return Boosted(Kernel()); }
  OpCost operator()(const plan::VerticalSlashAttention&) const { return Boosted(Kernel()); }
  OpCost operator()(const plan::GateMlp&) const { return Kernel(); }
  OpCost operator()(const plan::Admit&) const { return Kernel(); }
  OpCost operator()(const plan::WindowScore&) const { return Kernel(); }
  OpCost operator()(const plan::Summarize&) const { return Kernel(); }
  OpCost operator()(const plan::QuerySimilarity&) const { return Kernel(); }
  OpCost operator()(const plan::Score&) const { return Kernel(); }
  OpCost operator()(const plan::TopK&) const { return Kernel(); }
  OpCost operator()(const plan::Sort&) const { return Kernel(); }
  OpCost operator()(const plan::AssignSlots&) const { return Kernel(); }
  OpCost operator()(const plan::SelectUnits&) const { return Kernel(); }
  OpCost operator()(const plan::KMeans&) const { return Kernel(); }
  OpCost operator()(const plan::ObservationScore&) const { return Kernel(); }
  OpCost operator()(const plan::KeyEncode&) const { return Kernel(); }
  OpCost operator()(const plan::CollisionTable&) const { return Kernel(); }
  OpCost operator()(const plan::CollisionScore&) const { return Kernel(); }
  OpCost operator()(const plan::BucketTopK&) const { return Kernel(); }
  OpCost operator()(const plan::Rerank&) const { return Kernel(); }
  OpCost operator()(const plan::FactorizeKeys&) const { return Kernel(); }
  // As long as if all rows were as long as the longest.
  OpCost operator()(const plan::RebuildKeys& keys) const {
    return keys.tokens == 0 ? Kernel()
                            : Kernel(static_cast<double>(keys.TokensAsLongest()) /
                                     static_cast<double>(keys.tokens));
  }
  OpCost operator()(const plan::Layout& layout) const {
    OpCost cost = Kernel();
    // Many small ones owe as much as one, though each alone less than can be measured.
    cost.written = static_cast<double>(layout.pieces) * static_cast<double>(layout.piece_bytes);
    return cost;
  }

  OpCost operator()(const plan::Copy& copy) const {
    const bool h2d = copy.direction == plan::Direction::kHostToDevice;
    const auto pieces = static_cast<double>(copy.pieces);
    const auto piece = static_cast<double>(copy.piece_bytes);
    const hardware::Curve& curve = h2d ? profile_.copy_h2d_piece : profile_.copy_d2h_piece;
    const double start = curve.empty() ? (h2d ? profile_.copy_h2d_start : profile_.copy_d2h_start)
                                       : curve.At(std::max(piece, 1.0));
    OpCost cost;
    cost.spread = profile_.copy_spread;
    cost.amount = static_cast<double>(counts_.link_h2d + counts_.link_d2h);
    cost.rate = h2d ? profile_.link_h2d : profile_.link_d2h;
    const double one_call = h2d ? profile_.host_copy_call : profile_.host_copy_back_call;
    cost.host = cost.first_call = Time(one_call);
    cost.engine_start = Time(start);
    switch (copy.path) {
      case plan::CopyPath::kBulk:
        break;
      case plan::CopyPath::k2D:
        if (piece > 0 && profile_.copy_2d_row > 0) {
          cost.rate = std::min(cost.rate, piece / profile_.copy_2d_row);
        }
        break;
      case plan::CopyPath::kPerPiece: {
        if (copy.pieces == 0) return NoCall();
        const double translation = Translation(copy, cost);
        cost.host = Time(pieces * one_call);
        cost.calls = static_cast<int32_t>(std::min<int64_t>(copy.pieces, INT32_MAX));
        cost.engine_start =
            Time(pieces * start + translation + std::max(pieces - 1, 0.0) * profile_.recorder_copy);
        cost.crowded = Time(pieces * profile_.copy_crowded_piece);
        cost.grouped = Time(profile_.copy_group_turn);
        cost.last_piece = Time(start + translation / pieces + piece / cost.rate);
        break;
      }
      case plan::CopyPath::kBatched: {
        const double large = std::max(piece, profile_.copy_inline_below);
        const bool carried = h2d && piece < large;
        const double size = h2d ? piece : large;
        const double call = profile_.batch_host_piece.At(size);
        double engine = profile_.batch_engine_piece.At(size);
        cost.host = cost.first_call = Time(profile_.host_batch_call + pieces * call);
        if (carried) {
          const hardware::Curve& moved = profile_.copy_h2d_inline_time;
          if (!moved.empty()) {
            const double bytes = std::max(piece, 1.0);
            cost.rate = std::min(cost.rate, bytes / moved.At(bytes));
            engine = 0;
          }
          const double few = BeforeHandOver(pieces, piece);
          cost.first_call = Time(profile_.host_batch_call + few * call);
          cost.last_piece = Time(start + few * (engine + piece / cost.rate));
        }
        cost.engine_start += Time(pieces * engine);
        cost.extrapolated = !profile_.batch_host_piece.Covers(piece);
        break;
      }
    }
    cost.engine = h2d ? Engine::kCopyH2D : Engine::kCopyD2H;
    cost.start = h2d ? Start::kH2DPiece : Start::kD2HPiece;
    cost.starts = copy.path == plan::CopyPath::kPerPiece ? pieces : 1;
    UseLink(cost, h2d);
    const double most = profile_.copy_device_loss;
    const double beyond = profile_.copy_device_factor - 1;
    UseMemory(cost, 1 + (most > 0 ? std::min(beyond, most / cost.rate) : beyond));
    const hardware::Curve& turns = profile_.copy_h2d_turns;
    const bool calls = copy.path == plan::CopyPath::kBulk || copy.path == plan::CopyPath::kPerPiece;
    if (h2d && calls && cost.amount > 0 && !turns.empty() && piece <= turns.x().back()) {
      TakeTurns(cost, pieces, turns.At(piece));
    }
    return cost;
  }

  // How many of a batch's pieces that its call carries are made before the GPU is first told of
  // any, and likewise how many it is told of when the call is over: the mean. It is told at the
  // end, and whenever either of two memories, of 4 MiB each, is full; how full they are before,
  // nothing tells (capture/results/h200-findings.md, "What a host call costs").
  static double BeforeHandOver(double pieces, double piece) {
    constexpr double kMemory = 4 << 20;
    const double fit = kMemory / std::max(piece, 1.0);
    return fit / 3 * (1 - std::pow(1 - std::min(pieces / fit, 1.0), 3));
  }

  // Of the addresses of scattered pieces, all together, s.
  double Translation(const plan::Copy& copy, OpCost& cost) const {
    const hardware::Curve& by_pool = profile_.copy_translation;
    if (by_pool.empty() || copy.scattered_over == 0) return 0;
    const auto pool = static_cast<double>(copy.scattered_over);
    cost.extrapolated = cost.extrapolated || pool > by_pool.x().back();
    return static_cast<double>(copy.regions) * by_pool.At(pool);
  }

  OpCost operator()(const plan::ZeroCopyGather& gather) const {
    const auto piece = static_cast<double>(gather.piece_bytes);
    const auto blocks = static_cast<double>(gather.BusyBlocks());
    OpCost cost = Launched(points_.At(shape_));
    cost.fixed = Time(profile_.zero_copy_start);
    cost.amount = static_cast<double>(counts_.link_h2d);
    // As many blocks that look up pieces are as fast.
    const double alike = blocks * (Round(piece, Lookup::kPieces) / Round(piece, gather.lookup));
    cost.rate = std::min(profile_.zero_copy.At(piece, alike), profile_.link_h2d);
    cost.holding_blocks = blocks;
    cost.rounds = static_cast<double>(gather.Rounds(counts_.link_h2d, gather.BusyBlocks()));
    cost.spread = profile_.zero_copy_spread;
    cost.extrapolated = !profile_.zero_copy.Covers(piece, blocks);
    if (gather.scattered_over > 0) Scatter(gather, cost);
    cost.written = cost.amount;
    UseLink(cost, true);
    if (const hardware::Curve& share = profile_.zero_copy_link_share; !share.empty()) {
      cost.weight *= share.At(blocks);
    }
    UseMemory(cost, 1 + profile_.zero_copy_memory_loss.At(blocks) / cost.rate);
    Add(cost, Resource::kSms,
        std::min(blocks / kGatherBlocksAnSm, profile_.device_sms) / cost.rate);
    return cost;
  }

  // Seconds that a block waits for the bytes that it has on their way.
  double Round(double piece, Lookup lookup) const {
    double of_its_own = 0;
    if (lookup == Lookup::kAhead) of_its_own = profile_.zero_copy_round_ahead;
    if (lookup == Lookup::kTokens) of_its_own = profile_.zero_copy_round_tokens;
    if (of_its_own > 0) return of_its_own;
    return static_cast<double>(plan::ZeroCopyGather::kBytesABlock) /
           profile_.zero_copy.At(piece, 1);
  }

  // A region's addresses are translated while the bytes of the one before come. Few blocks wait for
  // the host's answers, not for the link: round by round, and longer where an address is not known.
  void Scatter(const plan::ZeroCopyGather& gather, OpCost& cost) const {
    const hardware::Curve& by_pool = profile_.zero_copy_translation;
    const hardware::Curve& scattered = profile_.zero_copy_scattered;
    const hardware::Curve& measured = by_pool.empty() ? scattered : by_pool;
    if (measured.empty()) return;
    const auto pool = static_cast<double>(gather.scattered_over);
    cost.extrapolated = cost.extrapolated || pool > measured.x().back();
    const auto regions = static_cast<double>(gather.regions < 0 ? gather.pieces : gather.regions);
    if (regions <= 0) return;
    double known = 0;
    if (const hardware::Curve& kept = profile_.zero_copy_kept; !kept.empty()) {
      known = static_cast<double>(gather.regions_again) *
              kept.At(static_cast<double>(gather.regions_a_step));
    }
    // Between two gathers of a layer those of all others pass: as from the largest pool.
    const double one = by_pool.empty() ? 1 / scattered.y().back() : by_pool.At(pool);
    const double anew = regions - known, bytes = cost.amount / regions / cost.rate;
    const double answered =
        cost.rounds * Round(static_cast<double>(gather.piece_bytes), gather.lookup);
    cost.rate = cost.amount / std::max(known * bytes + anew * std::max(bytes, one),
                                       answered + Translating(pool, anew, one, cost));
  }

  // How long few blocks wait for addresses.
  double Translating(double pool, double regions, double one, const OpCost& cost) const {
    const hardware::Curve& wait = profile_.zero_copy_translation_wait;
    if (wait.empty()) return regions * one / cost.holding_blocks;
    constexpr int64_t kWarps =
        plan::ZeroCopyGather::kBytesABlock / plan::ZeroCopyGather::kBytesAWarp;
    const double a_warp = regions / (cost.rounds * (cost.holding_blocks * kWarps));
    return cost.rounds * std::min(a_warp, 1.0) * wait.At(pool);
  }

  OpCost operator()(const plan::HostGather& gather) const {
    OpCost cost;
    cost.amount = static_cast<double>(counts_.host_memory) / 2;
    const int64_t threads =
        std::clamp<int64_t>(gather.threads, 1, std::max<int64_t>(1, gather.pieces));
    const auto piece = static_cast<double>(gather.piece_bytes), all = static_cast<double>(threads);
    const hardware::Curve& rate = profile_.host_gather_rate;
    double bytes = rate.empty() ? all * profile_.host_gather_thread : rate.At(all);
    if (const hardware::Curve& first = profile_.host_gather_first_rate;
        !first.empty() && cost.amount > 0) {
      const double sooner = std::min(cost.amount, hardware::kGatherFirst);
      bytes = cost.amount / (sooner / first.At(all) + (cost.amount - sooner) / bytes);
    }
    // Beside the bytes, a piece takes what was timed; else threads do not hinder one another there.
    const hardware::Curve& row = profile_.host_gather_row;
    const double found = row.empty() ? profile_.host_gather_piece / all : row.At(all);
    cost.rate = std::min(piece / (found + piece / bytes), profile_.host_memory / 2);
    // The other threads are woken first.
    const hardware::Curve& start = profile_.host_gather_start;
    if (!start.empty()) {
      cost.fixed = Time(start.At(all));
    } else if (threads > 1) {
      cost.fixed = Time(profile_.host_handoff);
    }
    cost.wakes = threads > 1 && !profile_.host_gather_woken.empty();
    if (const hardware::Curve& by_bytes = profile_.host_gathered; !by_bytes.empty()) {
      cost.cools = Time(by_bytes.FromZero(cost.amount));
    }
    cost.extrapolated = (!rate.empty() && !rate.Covers(all)) || (!row.empty() && !row.Covers(all));
    cost.weight = cost.rate;
    cost.spread = profile_.host_spread;
    Add(cost, Resource::kHostMemory, 2);
    return cost;
  }
  // What waiting and waking take is latency, charged where it ends.
  OpCost operator()(const plan::HostSync&) const { return {}; }
  OpCost operator()(const plan::HostHandoff&) const {
    OpCost cost;
    cost.host = cost.first_call = Time(profile_.host_notify);
    return cost;
  }
  OpCost operator()(const plan::GraphLaunch& launch) const {
    OpCost cost;
    cost.host = cost.first_call = Time(
        profile_.host_graph_launch + static_cast<double>(launch.nodes) * profile_.host_graph_node);
    cost.spread = profile_.host_spread;
    return cost;
  }

 private:
  static OpCost NoCall() {
    OpCost cost;
    cost.calls = 0;
    return cost;
  }

  OpCost Launched(const KernelPoint& point) const {
    OpCost cost;
    const double call = fit_.host_s > 0 ? fit_.host_s * point.host_factor : profile_.host_launch;
    cost.first_call = Time(call + profile_.recorder_launch);
    cost.host = cost.first_call * counts_.launches;
    if (counts_.launches > 1) cost.last_piece = Time(profile_.device_launch_latency);
    cost.calls = counts_.launches;
    cost.start = Start::kKernel;
    cost.starts = counts_.launches;
    return cost;
  }

  static OpCost Boosted(OpCost cost) {
    cost.boosted = true;
    return cost;
  }

  double FlopsTime() const { return fit_.flops_rate > 0 ? counts_.flops / fit_.flops_rate : 0; }

  // `longer`: by so many times for what the counts do not tell.
  OpCost Kernel(double longer = 1) const {
    const KernelPoint point = points_.At(shape_);
    const double factor = point.factor;
    OpCost cost = Launched(point);
    cost.fixed = Time(fit_.fixed_s * factor);
    cost.spread = fit_.spread;
    cost.written = write_back_.Bytes(point.drag);
    const auto bytes = static_cast<double>(counts_.device());
    cost.extrapolated = bytes < fit_.min_bytes || bytes > fit_.max_bytes;
    if (!(bytes > 0)) return cost;
    const double bandwidth = std::min(fit_.bandwidth, capacity_[At(Resource::kDeviceMemory)]);
    const double seconds = FlowSeconds(fit_, counts_, bandwidth);
    cost.amount = bytes;
    cost.rate = bytes / (seconds * factor * longer);
    cost.weight = cost.rate;
    const double blocks = std::clamp(std::ceil(bytes / kBytesABlock), 1.0, profile_.device_sms);
    Add(cost, Resource::kDeviceMemory, 1);
    Add(cost, Resource::kSms, blocks / cost.rate);
    return cost;
  }

  void UseLink(OpCost& cost, bool h2d) const {
    cost.weight = kLinkPriority * (h2d ? profile_.link_both_h2d : profile_.link_both_d2h);
    Add(cost, h2d ? Resource::kLinkH2D : Resource::kLinkD2H, 1);
    Add(cost, Resource::kLinkBoth, 1);
  }

  // Small copies of a stream do not keep the engine for themselves: what they take of it, and what
  // they take alone, make them a flow.
  void TakeTurns(OpCost& cost, double pieces, double turn) const {
    const double alone = Seconds(cost.engine_start) + cost.amount / cost.rate;
    const double of_engine = std::min(pieces * turn + cost.amount / cost.rate, alone);
    cost.rate = cost.amount / alone;
    cost.engine_start = cost.crowded = cost.grouped = Picoseconds{0};
    cost.engine = Engine::kNone;
    cost.start = Start::kNone;
    cost.starts = 0;
    Add(cost, Resource::kCopyTurns, of_engine / cost.amount);
  }

  // A flow alone must reach its rate whatever a what-if makes of the memory.
  void UseMemory(OpCost& cost, double per_unit) const {
    Add(cost, Resource::kDeviceMemory,
        std::min(per_unit, capacity_[At(Resource::kDeviceMemory)] / cost.rate));
  }

  const Profile& profile_;
  const std::array<double, kResources>& capacity_;
  const WriteBack& write_back_;
  const KernelFit& fit_;
  const TimedPoints& points_;
  const plan::KernelShape& shape_;
  const plan::WorkCounts& counts_;
};

void Add(double seconds, Curve& curve) {
  if (curve.empty()) return;
  std::vector<double> y = curve.y();
  for (double& of : y) of += seconds;
  curve = Curve(curve.x(), std::move(y));
}

Picoseconds WakeTime(const Curve& by_idle, Picoseconds idle) {
  const double seconds = Seconds(idle);
  if (by_idle.empty() || seconds <= 0) return Picoseconds{0};
  return FromSeconds(by_idle.FromZero(seconds));
}

// What recording costs where a run is recorded, and its calls but for launches of kernels.
void AddRecorder(Profile& profile) {
  for (double Profile::*more :
       {&Profile::recorder_copy, &Profile::recorder_kernel, &Profile::recorder_op,
        &Profile::recorder_launch, &Profile::recorder_copy_call, &Profile::recorder_copy_back_call,
        &Profile::recorder_event_record, &Profile::recorder_stream_wait, &Profile::recorder_sync,
        &Profile::recorder_holds_h2d_piece, &Profile::recorder_holds_d2h_piece}) {
    profile.*more *= profile.host_recorded;
  }
  profile.product_holds_h2d_piece += profile.recorder_holds_h2d_piece;
  profile.product_holds_d2h_piece += profile.recorder_holds_d2h_piece;
  profile.device_gap += profile.recorder_kernel;
  profile.host_copy_call += profile.recorder_copy_call;
  profile.host_batch_call += profile.recorder_copy_call;
  Add(profile.recorder_copy_call, profile.copy_h2d_inline_call);
  profile.host_copy_back_call += profile.recorder_copy_back_call;
  profile.host_event_record += profile.recorder_event_record;
  profile.host_stream_wait += profile.recorder_stream_wait;
  profile.host_graph_launch += profile.recorder_launch;
  profile.host_sync += profile.recorder_sync;
  if (profile.host_sync_copy > 0) profile.host_sync_copy += profile.recorder_sync;
}

// The law of the kind that a kind without a fit is costed as; what was timed of it are other
// shapes.
KernelFit FitOfAnotherKind(const Profile& profile, int kind) {
  const auto fit = profile.kernels.find(plan::CostedAs(kind));
  if (fit == profile.kernels.end()) return {};
  KernelFit law = fit->second;
  law.points.clear();
  law.min_bytes = law.max_bytes = 0;  // extrapolated, whatever its size
  return law;
}

}  // namespace

CostModel::CostModel(Profile profile) : profile_(std::move(profile)) {
  Check(profile_, profile_.name);
  AddRecorder(profile_);
  for (int kind = 0; kind < plan::kOpKinds; ++kind) {
    const auto fit = profile_.kernels.find(plan::KindName(kind));
    if (fit == profile_.kernels.end()) {
      fits_[static_cast<size_t>(kind)] = FitOfAnotherKind(profile_, kind);
      continue;
    }
    KernelFit& law = fits_[static_cast<size_t>(kind)] = fit->second;
    points_[static_cast<size_t>(kind)] = TimedPoints(std::exchange(law.points, {}));
  }
  latencies_ = {.launch = FromSeconds(profile_.device_launch_latency),
                .copy_launch = FromSeconds(profile_.device_copy_latency),
                .gap = FromSeconds(profile_.device_gap),
                .crowded_gap = FromSeconds(profile_.device_crowded_gap),
                .copy_gap = FromSeconds(profile_.device_copy_gap),
                .flag_gap = FromSeconds(profile_.device_flag_gap > 0 ? profile_.device_flag_gap
                                                                     : profile_.device_copy_gap),
                .between_copies = FromSeconds(profile_.recorder_copy),
                .to_host_gap = FromSeconds(profile_.device_direction_gap),
                .to_device_gap = FromSeconds(profile_.device_direction_gap_h2d > 0
                                                 ? profile_.device_direction_gap_h2d
                                                 : profile_.device_direction_gap),
                .look_period = FromSeconds(profile_.device_look_period),
                .to_host_look = FromSeconds(profile_.device_first_look),
                .to_device_look = FromSeconds(profile_.device_first_look_h2d),
                .event = FromSeconds(profile_.device_event_latency),
                .event_to_copy = FromSeconds(profile_.device_event_to_copy),
                .event_from_copy = FromSeconds(profile_.device_event_from_copy),
                .event_wait = FromSeconds(profile_.device_event_wait),
                .event_recorded = FromSeconds(profile_.device_event_record),
                .graph_gap = FromSeconds(profile_.device_graph_gap),
                .event_record = FromSeconds(profile_.host_event_record),
                .stream_wait = FromSeconds(profile_.host_stream_wait),
                .copy_switch = FromSeconds(profile_.host_copy_switch),
                .op = FromSeconds(profile_.host_op + profile_.recorder_op),
                .host_sync = FromSeconds(profile_.host_sync),
                .host_sync_copy = FromSeconds(profile_.host_sync_copy > 0 ? profile_.host_sync_copy
                                                                          : profile_.host_sync),
                .host_handoff = FromSeconds(profile_.host_handoff),
                .beside_call = FromSeconds(profile_.host_beside_call),
                .contended = profile_.host_contended,
                .contended_more = std::max(profile_.host_contended_more, profile_.host_contended)};
  write_back_ = WriteBack(profile_);
  capacity_[At(Resource::kDeviceMemory)] = profile_.memory_bandwidth;
  capacity_[At(Resource::kLinkH2D)] = profile_.link_h2d;
  capacity_[At(Resource::kLinkD2H)] = profile_.link_d2h;
  capacity_[At(Resource::kLinkBoth)] = std::max(
      {profile_.link_both_h2d + profile_.link_both_d2h, profile_.link_h2d, profile_.link_d2h});
  capacity_[At(Resource::kSms)] = profile_.device_sms;
  capacity_[At(Resource::kHostMemory)] = profile_.host_memory;
  capacity_[At(Resource::kCopyTurns)] = 1;
  beside_product_ = {0, profile_.product_holds_kernel, profile_.product_holds_h2d_piece,
                     profile_.product_holds_d2h_piece};
  has_load_ = std::ranges::any_of(beside_product_, [](double longer) { return longer > 0; });
  for (const Curve Profile::*curve :
       {&Profile::zero_copy_holds_kernel, &Profile::zero_copy_holds_h2d_piece,
        &Profile::zero_copy_holds_d2h_piece}) {
    has_load_ = has_load_ || !(profile_.*curve).empty();
  }
  const std::pair<Start, const Curve*> loads[] = {{Start::kKernel, &profile_.load_kernel},
                                                  {Start::kH2DPiece, &profile_.load_h2d_piece},
                                                  {Start::kD2HPiece, &profile_.load_d2h_piece}};
  for (const auto& [start, curve] : loads) {
    if (curve->empty()) continue;
    has_load_ = true;
    auto& table = loaded_[static_cast<size_t>(start)];
    for (size_t i = 1; i < table.size(); ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(table.size() - 1);
      table[i] = curve->FromZero(share);
    }
  }
}

double CostModel::HeldUpStart(Start start, double blocks) const {
  const auto at = [blocks](const Curve& curve) {
    return curve.empty() || blocks <= 0 ? 0 : curve.FromZero(blocks);
  };
  switch (start) {
    case Start::kNone:
      break;
    case Start::kKernel:
      return at(profile_.zero_copy_holds_kernel);
    case Start::kH2DPiece:
      return at(profile_.zero_copy_holds_h2d_piece);
    case Start::kD2HPiece:
      return at(profile_.zero_copy_holds_d2h_piece);
  }
  return 0;
}

CostModel::Background CostModel::BackgroundOf(plan::Direction direction) const {
  const bool h2d = direction == plan::Direction::kHostToDevice;
  const double rate = h2d ? profile_.background_h2d : profile_.background_d2h;
  if (rate <= 0) return {};
  const auto piece = static_cast<Bytes>(profile_.background_piece);
  return {Cost(plan::Copy{direction, plan::CopyPath::kBulk, 1, piece}),
          std::max(FromSeconds(static_cast<double>(piece) / rate), Picoseconds{1})};
}

OpCost CostModel::Cost(const plan::Work& work) const {
  const plan::WorkCounts counts = plan::Count(work);
  const auto kind = static_cast<size_t>(plan::KindOf(work));
  const plan::KernelShape shape = plan::ShapeOf(work);
  const OpCost cost = std::visit(
      Coster(profile_, capacity_, write_back_, fits_[kind], points_[kind], shape, counts), work);
  if (cost.amount > 0) Time(cost.amount / cost.rate);
  return cost;
}

std::optional<OpCost> CostModel::InlinedCost(const plan::Work& work) const {
  const auto* copy = std::get_if<plan::Copy>(&work);
  const Curve& call = profile_.copy_h2d_inline_call;
  if (copy == nullptr || copy->direction != plan::Direction::kHostToDevice || call.empty() ||
      copy->pieces == 0 || static_cast<double>(copy->piece_bytes) > call.x().back()) {
    return std::nullopt;
  }
  const bool one = copy->path == plan::CopyPath::kBulk && copy->pieces == 1;
  if (!one && copy->path != plan::CopyPath::kPerPiece) return std::nullopt;
  const double bytes = std::max(static_cast<double>(copy->piece_bytes), 1.0);
  const Picoseconds carried = Time(call.At(bytes));
  const Curve& time = profile_.copy_h2d_inline_time;
  const Picoseconds moved = time.empty() ? Picoseconds{0} : Time(time.At(bytes));
  OpCost cost;
  if (copy->pieces == 1) {
    // The bytes cross the link with the commands.
    cost = Cost(work);
    cost.host = cost.first_call = carried;
    cost.last_piece = cost.engine_start = cost.crowded = cost.grouped = Picoseconds{0};
    cost.engine = Engine::kNone;
    cost.start = Start::kNone;
    cost.starts = 0;
    cost.front_end = moved;
    const Picoseconds flow = Time(cost.amount / cost.rate);
    if (moved > flow) cost.fixed += moved - flow;
    return cost;
  }
  plan::Copy others = *copy;
  --others.pieces;
  cost = Cost(others);
  cost.host += carried;
  cost.second_call = carried + cost.first_call;
  cost.first_call = carried;
  cost.front_end = moved;
  ++cost.calls;
  return cost;
}

Picoseconds CostModel::Woken(Picoseconds asleep) const {
  return WakeTime(profile_.host_woken, asleep);
}

Picoseconds CostModel::Waited(Picoseconds time) const {
  return WakeTime(profile_.host_waited, time);
}

Picoseconds CostModel::Handoff(Picoseconds asleep) const {
  const Curve& by_sleep = profile_.host_handoff_asleep;
  if (by_sleep.empty()) return latencies_.host_handoff;
  return asleep.count() > 0 ? FromSeconds(by_sleep.At(Seconds(asleep))) : Picoseconds{0};
}

Picoseconds CostModel::GatherWoken(Picoseconds asleep) const {
  return WakeTime(profile_.host_gather_woken, asleep);
}

}  // namespace stallcast::hardware
