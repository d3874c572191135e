#include "models/hardware/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/hardware/kernel_law.h"
#include "models/hardware/pytorch_costs.h"
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

  OpCost operator()(const plan::Gemm&) const { return Product(); }
  OpCost operator()(const plan::GroupedGemm&) const { return Product(); }
  OpCost operator()(const plan::Route&) const { return Kernel(); }
  OpCost operator()(const plan::LatentAttention&) const { return Kernel(); }
  OpCost operator()(const plan::LatentIndex&) const { return Kernel(); }
  OpCost operator()(const plan::StateUpdate&) const { return Kernel(); }
  OpCost operator()(const plan::CodeScore&) const { return Kernel(); }
  OpCost operator()(const plan::WeightedAttention&) const { return Kernel(); }
  OpCost operator()(const plan::MergeStates&) const { return Kernel(); }
  OpCost operator()(const plan::AllReduce& sum) const {
    OpCost cost = Kernel();
    // Without a fit: as fast as GPUs pass bytes on over the link to the host.
    if (!cost.extrapolated || cost.amount <= 0) return cost;
    const double link = std::min(profile_.link.h2d, profile_.link.d2h);
    cost.rate = cost.weight = std::min(cost.rate, link);
    cost.fixed = Time(2 * (sum.gpus - 1) * profile_.handoff(Site::kHost, Site::kH2D, How::kStream));
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
    const hardware::Curve& curve = h2d ? profile_.copy.h2d_piece : profile_.copy.d2h_piece;
    const double start = curve.empty() ? (h2d ? profile_.copy.h2d_start : profile_.copy.d2h_start)
                                       : curve.At(std::max(piece, 1.0));
    OpCost cost;
    cost.spread = profile_.copy.spread;
    cost.amount = static_cast<double>(counts_.link_h2d + counts_.link_d2h);
    cost.rate = h2d ? profile_.link.h2d : profile_.link.d2h;
    const double one_call =
        h2d ? profile_.host.copy_call + Recorded(profile_.recorder.copy_call)
            : profile_.host.copy_back_call + Recorded(profile_.recorder.copy_back_call);
    cost.host = cost.first_call = Time(one_call);
    cost.fixed = Time(start);
    switch (copy.path) {
      case plan::CopyPath::kBulk:
        break;
      case plan::CopyPath::k2D:
        if (piece > 0 && profile_.copy.row_2d > 0) {
          cost.rate = std::min(cost.rate, piece / profile_.copy.row_2d);
        }
        break;
      case plan::CopyPath::kPerPiece: {
        if (copy.pieces == 0) return NoCall();
        const double translation = Translation(copy, cost);
        cost.host = Time(pieces * one_call);
        cost.calls = static_cast<int32_t>(std::min<int64_t>(copy.pieces, INT32_MAX));
        cost.fixed = Time(pieces * start + translation +
                          std::max(pieces - 1, 0.0) * Recorded(profile_.recorder.copy));
        cost.extra_if_three_streams_busy = Time(pieces * profile_.copy.crowded_piece);
        cost.extra_if_sibling_waits = Time(profile_.copy.group_turn);
        cost.last_piece = Time(start + translation / pieces + piece / cost.rate);
        break;
      }
      case plan::CopyPath::kBatched: {
        const double large = std::max(piece, profile_.copy.inline_below);
        const bool carried = h2d && piece < large;
        const double size = h2d ? piece : large;
        const double call = profile_.batch.host_piece.At(size);
        double engine = profile_.batch.engine_piece.At(size);
        cost.host = cost.first_call = Time(BatchCall() + pieces * call);
        if (carried) {
          const hardware::Curve& moved = profile_.copy.h2d_inline_time;
          if (!moved.empty()) {
            const double bytes = std::max(piece, 1.0);
            cost.rate = std::min(cost.rate, bytes / moved.At(bytes));
            engine = 0;
          }
          const double few = BeforeHandOver(pieces, piece);
          cost.first_call = Time(BatchCall() + few * call);
          cost.last_piece = Time(start + few * (engine + piece / cost.rate));
        }
        cost.fixed += Time(pieces * engine);
        cost.extrapolated = !profile_.batch.host_piece.Covers(piece);
        break;
      }
    }
    cost.engine = h2d ? Engine::kCopyH2D : Engine::kCopyD2H;
    UseLink(cost, h2d);
    const double most = profile_.copy.device_loss;
    const double beyond = profile_.copy.device_factor - 1;
    UseMemory(cost, 1 + (most > 0 ? std::min(beyond, most / cost.rate) : beyond));
    return cost;
  }

  // How many of a batch's pieces that its call carries are made before the GPU is first told of
  // any, and likewise how many it is told of when the call is over: the mean. It is told at the
  // end, and whenever either of two memories, of 4 MiB each, is full; how full they are before,
  // nothing tells (capture/results/hardware-notes.md).
  static double BeforeHandOver(double pieces, double piece) {
    constexpr double kMemory = 4 << 20;
    const double fit = kMemory / std::max(piece, 1.0);
    return fit / 3 * (1 - std::pow(1 - std::min(pieces / fit, 1.0), 3));
  }

  // Of the addresses of scattered pieces, all together, s.
  double Translation(const plan::Copy& copy, OpCost& cost) const {
    const hardware::Curve& by_pool = profile_.copy.translation;
    if (by_pool.empty() || copy.scattered_over == 0) return 0;
    const auto pool = static_cast<double>(copy.scattered_over);
    cost.extrapolated = cost.extrapolated || pool > by_pool.x().back();
    return static_cast<double>(copy.regions) * by_pool.At(pool);
  }

  OpCost operator()(const plan::ZeroCopyGather& gather) const {
    const auto piece = static_cast<double>(gather.piece_bytes);
    const auto blocks = static_cast<double>(gather.BusyBlocks());
    OpCost cost = Launched(points_.At(shape_));
    cost.fixed = Time(profile_.zero_copy.start);
    cost.amount = static_cast<double>(counts_.link_h2d);
    // As many blocks that look up their pieces before each round are as fast.
    const double alike =
        blocks * (Round(piece, /*looks_ahead=*/false) / Round(piece, LooksAhead(gather)));
    cost.rate = std::min(profile_.zero_copy.rate.At(piece, alike), profile_.link.h2d);
    cost.spread = profile_.zero_copy.spread;
    cost.extrapolated = !profile_.zero_copy.rate.Covers(piece, blocks);
    if (gather.scattered_over > 0) Scatter(gather, cost);
    cost.written = cost.amount;
    UseLink(cost, true);
    UseMemory(cost, 1 + profile_.zero_copy.memory_loss.At(blocks) / cost.rate);
    Add(cost, Resource::kSms,
        std::min(blocks / kGatherBlocksAnSm, profile_.device.sms) / cost.rate);
    return cost;
  }

  static bool LooksAhead(const plan::ZeroCopyGather& gather) {
    return gather.lookup == plan::ZeroCopyGather::Lookup::kAhead;
  }

  // Seconds that a block waits for the bytes that it has in flight.
  double Round(double piece, bool looks_ahead) const {
    if (looks_ahead && profile_.zero_copy.round_ahead > 0) return profile_.zero_copy.round_ahead;
    return static_cast<double>(plan::ZeroCopyGather::kBytesABlock) /
           profile_.zero_copy.rate.At(piece, 1);
  }

  // A region's addresses are translated while the bytes of the one before come. Few blocks wait for
  // the host's answers, not for the link: round by round, and for each address.
  void Scatter(const plan::ZeroCopyGather& gather, OpCost& cost) const {
    const hardware::Curve& by_pool = profile_.zero_copy.translation;
    if (by_pool.empty()) return;
    const auto pool = static_cast<double>(gather.scattered_over);
    cost.extrapolated = cost.extrapolated || pool > by_pool.x().back();
    const auto regions = static_cast<double>(gather.regions < 0 ? gather.pieces : gather.regions);
    if (regions <= 0) return;
    const double one = by_pool.At(pool);
    const auto blocks = static_cast<double>(gather.BusyBlocks());
    const auto rounds = static_cast<double>(gather.Rounds(counts_.link_h2d, gather.BusyBlocks()));
    const double reply_time =
        rounds * Round(static_cast<double>(gather.piece_bytes), LooksAhead(gather));
    cost.rate = cost.amount / std::max(regions * std::max(cost.amount / regions / cost.rate, one),
                                       reply_time + regions * one / blocks);
  }

  OpCost operator()(const plan::HostGather& gather) const {
    OpCost cost;
    cost.amount = static_cast<double>(counts_.host_memory) / 2;
    const int64_t threads =
        std::clamp<int64_t>(gather.threads, 1, std::max<int64_t>(1, gather.pieces));
    const auto piece = static_cast<double>(gather.piece_bytes), all = static_cast<double>(threads);
    const hardware::Curve& rate = profile_.host.gather_rate;
    double bytes = rate.empty() ? all * profile_.host.gather_thread : rate.At(all);
    if (const hardware::Curve& first = profile_.host.gather_first_rate;
        !first.empty() && cost.amount > 0) {
      const double sooner = std::min(cost.amount, hardware::kGatherFirst);
      bytes = cost.amount / (sooner / first.At(all) + (cost.amount - sooner) / bytes);
    }
    // Beside the bytes, a piece takes what was timed; else threads do not hinder one another there.
    const hardware::Curve& row = profile_.host.gather_row;
    const double found = row.empty() ? profile_.host.gather_piece / all : row.At(all);
    cost.rate = std::min(piece / (found + piece / bytes), profile_.host.memory / 2);
    cost.fixed = WakeThreads(threads);
    cost.extrapolated = (!rate.empty() && !rate.Covers(all)) || (!row.empty() && !row.Covers(all));
    cost.weight = cost.rate;
    cost.spread = profile_.host.spread;
    Add(cost, Resource::kHostMemory, 2);
    return cost;
  }
  OpCost operator()(const plan::HostAttention& attention) const {
    if (const hardware::Curve& rate = profile_.host.attention_rate; !rate.empty()) {
      const auto threads = static_cast<double>(attention.threads);
      OpCost cost = HostReads(rate.At(threads), attention.threads);
      cost.extrapolated = !rate.Covers(threads);
      return cost;
    }
    const double most =
        profile_.host.attention > 0 ? profile_.host.attention : profile_.host.memory;
    OpCost cost = HostReads(std::min(most, ReadRate(attention.threads)), attention.threads);
    cost.extrapolated = profile_.host.attention <= 0;
    return cost;
  }
  OpCost operator()(const plan::HostKMeans& clustering) const {
    return HostReads(ReadRate(clustering.threads), clustering.threads);
  }
  // An access takes as long as finding a piece of a gather.
  OpCost operator()(const plan::HostLookup& lookup) const {
    const auto threads = static_cast<double>(std::max(lookup.threads, 1));
    const hardware::Curve& row = profile_.host.gather_row;
    const double found = row.empty() ? profile_.host.gather_piece / threads : row.At(threads);
    const double seconds = static_cast<double>(lookup.accesses) * found +
                           static_cast<double>(lookup.bytes) / ReadRate(lookup.threads);
    const auto bytes = static_cast<double>(counts_.host_memory);
    return HostReads(bytes > 0 ? bytes / seconds : profile_.host.memory, lookup.threads);
  }
  // What waiting and waking take is latency, charged where it ends.
  OpCost operator()(const plan::HostSync&) const { return {}; }
  OpCost operator()(const plan::HostHandoff&) const {
    OpCost cost;
    cost.host = cost.first_call = Time(profile_.host.notify);
    return cost;
  }
  OpCost operator()(const plan::HostCalls&) const { return {}; }
  OpCost operator()(const plan::Eager& eager) const {
    OpCost cost = Kernel();
    cost.fixed *= eager.kernels;
    if (eager.blocks > 0 && cost.amount > 0) {
      // A block streams no faster than a multiprocessor's share of the memory.
      const double share = std::min(1.0, eager.blocks / profile_.device.sms);
      const double rate = std::min(cost.rate, share * capacity_[At(Resource::kDeviceMemory)]);
      cost.rate = cost.weight = rate;
      cost.demand[1].per_unit = share * profile_.device.sms / rate;
    }
    return cost;
  }
  OpCost operator()(const plan::GraphLaunch& launch) const {
    OpCost cost;
    cost.host = cost.first_call =
        Time(profile_.host.graph_launch + Recorded(profile_.recorder.launch) +
             static_cast<double>(launch.nodes) * profile_.host.graph_node);
    cost.spread = profile_.host.spread;
    return cost;
  }

 private:
  // Bytes a second that so many threads read: as fast as when they gather, of which half is
  // written.
  double ReadRate(int32_t threads) const {
    const hardware::Curve& rate = profile_.host.gather_rate;
    const double all = std::max(threads, 1);
    return 2 * (rate.empty() ? all * profile_.host.gather_thread : rate.At(all));
  }
  // What host threads read of the host's memory, at such a rate if it lets them.
  OpCost HostReads(double rate, int32_t threads) const {
    OpCost cost;
    cost.amount = static_cast<double>(counts_.host_memory);
    cost.rate = cost.weight = std::min(rate, profile_.host.memory);
    cost.fixed = WakeThreads(threads);
    cost.extrapolated = true;
    cost.spread = profile_.host.spread;
    Add(cost, Resource::kHostMemory, 1);
    return cost;
  }
  // So many threads share work: the others are woken first.
  Picoseconds WakeThreads(int64_t threads) const {
    const hardware::Curve& start = profile_.host.gather_start;
    if (!start.empty()) return Time(start.At(static_cast<double>(threads)));
    return Time(threads > 1 ? profile_.handoff(Site::kHost, Site::kHost, How::kEvent) : 0);
  }
  // What a call takes more where the run is recorded.
  double Recorded(double more) const { return profile_.host.recorded * more; }
  double BatchCall() const {
    return profile_.host.batch_call + Recorded(profile_.recorder.copy_call);
  }

  static OpCost NoCall() {
    OpCost cost;
    cost.calls = 0;
    return cost;
  }

  OpCost Launched(const KernelPoint& point) const {
    OpCost cost;
    const double call = fit_.host_s > 0 ? fit_.host_s * point.host_factor : profile_.host.launch;
    cost.first_call = Time(call + Recorded(profile_.recorder.launch));
    cost.host = cost.first_call * counts_.launches;
    if (counts_.launches > 1)
      cost.last_piece = Time(profile_.handoff(Site::kHost, Site::kKernel, How::kStream));
    cost.calls = counts_.launches;
    cost.kernel = true;
    return cost;
  }

  static OpCost Boosted(OpCost cost) {
    cost.boosted = true;
    return cost;
  }

  OpCost Product() const {
    OpCost cost = Kernel();
    cost.boosted = FlopsTime() >= static_cast<double>(counts_.device()) / fit_.bandwidth;
    cost.streams_weights = !cost.boosted;
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
    const double blocks = std::clamp(std::ceil(bytes / kBytesABlock), 1.0, profile_.device.sms);
    Add(cost, Resource::kDeviceMemory, 1);
    Add(cost, Resource::kSms, blocks / cost.rate);
    return cost;
  }

  void UseLink(OpCost& cost, bool h2d) const {
    cost.weight = kLinkPriority * (h2d ? profile_.link.both_h2d : profile_.link.both_d2h);
    Add(cost, h2d ? Resource::kLinkH2D : Resource::kLinkD2H, 1);
    Add(cost, Resource::kLinkBoth, 1);
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

Picoseconds WakeTime(const Curve& by_idle, Picoseconds idle) {
  const double seconds = Seconds(idle);
  if (by_idle.empty() || seconds <= 0) return Picoseconds{0};
  return FromSeconds(by_idle.FromZero(seconds));
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
  for (int kind = 0; kind < plan::kOpKinds; ++kind) {
    const auto fit = profile_.kernels.find(plan::KindName(kind));
    if (fit == profile_.kernels.end()) {
      fits_[static_cast<size_t>(kind)] = FitOfAnotherKind(profile_, kind);
      continue;
    }
    KernelFit& law = fits_[static_cast<size_t>(kind)] = fit->second;
    points_[static_cast<size_t>(kind)] = TimedPoints(std::exchange(law.points, {}));
  }
  SetLatencies();
  write_back_ = WriteBack(profile_);
  capacity_[At(Resource::kDeviceMemory)] = profile_.memory.bandwidth;
  capacity_[At(Resource::kLinkH2D)] = profile_.link.h2d;
  capacity_[At(Resource::kLinkD2H)] = profile_.link.d2h;
  capacity_[At(Resource::kLinkBoth)] = std::max(
      {profile_.link.both_h2d + profile_.link.both_d2h, profile_.link.h2d, profile_.link.d2h});
  capacity_[At(Resource::kSms)] = profile_.device.sms;
  capacity_[At(Resource::kHostMemory)] = profile_.host.memory;
}

void CostModel::SetLatencies() {
  const auto recorded = [&](double more) { return FromSeconds(profile_.host.recorded * more); };
  HandoffTable<Picoseconds>& handoff = latencies_.handoff;
  for (size_t how = 0; how < kHowNames.size(); ++how) {
    for (size_t from = 0; from < kSiteNames.size(); ++from) {
      for (size_t to = 0; to < kSiteNames.size(); ++to) {
        const auto a = static_cast<Site>(from), b = static_cast<Site>(to);
        const auto follows = static_cast<How>(how);
        handoff(a, b, follows) = FromSeconds(profile_.handoff(a, b, follows));
      }
    }
  }
  handoff(Site::kKernel, Site::kKernel, How::kStream) += recorded(profile_.recorder.kernel);
  handoff(Site::kH2D, Site::kH2D, How::kStream) += recorded(profile_.recorder.copy);
  handoff(Site::kD2H, Site::kD2H, How::kStream) += recorded(profile_.recorder.copy);
  for (const Site from : {Site::kKernel, Site::kH2D, Site::kD2H}) {
    handoff(from, Site::kHost, How::kEvent) += recorded(profile_.recorder.sync);
  }
  latencies_.cpp.event_record =
      FromSeconds(profile_.host.event_record) + recorded(profile_.recorder.event_record);
  latencies_.cpp.stream_wait =
      FromSeconds(profile_.host.stream_wait) + recorded(profile_.recorder.stream_wait);
  const PyTorchCosts pytorch(profile_);
  latencies_.pytorch = {.event_record = FromSeconds(pytorch.EventRecord()),
                        .stream_wait = FromSeconds(pytorch.EventWait()),
                        .enter = FromSeconds(pytorch.Of(plan::Operator::kStreamContext))};
}

CostModel::Background CostModel::BackgroundOf(plan::Direction direction) const {
  const bool h2d = direction == plan::Direction::kHostToDevice;
  const double rate = h2d ? profile_.background.h2d : profile_.background.d2h;
  if (rate <= 0) return {};
  const auto piece = static_cast<Bytes>(profile_.background.piece);
  return {Cost(plan::Copy{direction, plan::CopyPath::kBulk, 1, piece}),
          std::max(FromSeconds(static_cast<double>(piece) / rate), Picoseconds{1})};
}

OpCost CostModel::Cost(const plan::Work& work, plan::Host host) const {
  const plan::WorkCounts counts = plan::Count(work);
  const auto kind = static_cast<size_t>(plan::KindOf(work));
  const plan::KernelShape shape = plan::ShapeOf(work);
  OpCost cost = std::visit(
      Coster(profile_, capacity_, write_back_, fits_[kind], points_[kind], shape, counts), work);
  if (host == plan::Host::kPyTorch) {
    CallFromPyTorch(work, cost);
  } else if (!IsHostWork(work)) {
    cost.first_call += ExecutorTime();
    cost.host += ExecutorTime();
  }
  if (cost.amount > 0) Time(cost.amount / cost.rate);
  return cost;
}

void CostModel::CallFromPyTorch(const plan::Work& work, OpCost& cost) const {
  const PyTorchCosts costs(profile_);
  const plan::OperatorCalls calls = plan::CallsOf(work);
  if (const auto* launch = std::get_if<plan::GraphLaunch>(&work)) {
    cost.host = cost.first_call =
        Time(costs.GraphLaunch() + static_cast<double>(launch->nodes) * profile_.host.graph_node);
    return;
  }
  if (std::holds_alternative<plan::HostHandoff>(work)) return;
  const auto* gather = std::get_if<plan::HostGather>(&work);
  if (const Curve& row = profile_.pytorch.gather_row; gather != nullptr && !row.empty()) {
    // As measured, of rows of 256 B.
    const double threads = std::max(1, gather->threads);
    const double rows = static_cast<double>(gather->pieces) *
                        std::max(1.0, static_cast<double>(gather->piece_bytes) / 256);
    if (cost.amount > 0) cost.rate = std::min(cost.rate, cost.amount / (rows * row.At(threads)));
  }
  // A batch is one call of its own, with its pieces.
  const bool batch = calls[plan::Operator::kLaunch] > 0 && std::holds_alternative<plan::Copy>(work);
  const Picoseconds made = Time(costs.Of(calls));
  if (calls[plan::Operator::kItem] > 0) {
    cost.host = std::max(made, cost.first_call);  // its copy begins as early as any
    return;
  }
  cost.host = batch ? cost.host + made : made;
  cost.first_call = cost.host / (batch ? 1 : std::max(cost.calls, 1));
}

std::optional<OpCost> CostModel::InlinedCost(const plan::Work& work) const {
  const auto* copy = std::get_if<plan::Copy>(&work);
  const Curve& call = profile_.copy.h2d_inline_call;
  if (copy == nullptr || copy->direction != plan::Direction::kHostToDevice || call.empty() ||
      copy->pieces == 0 || static_cast<double>(copy->piece_bytes) > call.x().back()) {
    return std::nullopt;
  }
  const bool one = copy->path == plan::CopyPath::kBulk && copy->pieces == 1;
  if (!one && copy->path != plan::CopyPath::kPerPiece) return std::nullopt;
  const double bytes = std::max(static_cast<double>(copy->piece_bytes), 1.0);
  const Picoseconds carried =
      Time(call.At(bytes) + profile_.host.recorded * profile_.recorder.copy_call);
  const Curve& time = profile_.copy.h2d_inline_time;
  const Picoseconds moved = time.empty() ? Picoseconds{0} : Time(time.At(bytes));
  OpCost cost;
  if (copy->pieces == 1) {
    // The bytes cross the link with the commands.
    cost = Cost(work);
    cost.host = cost.first_call = carried + ExecutorTime();
    cost.last_piece = cost.fixed = cost.extra_if_sibling_waits = Picoseconds{0};
    cost.extra_if_three_streams_busy = Picoseconds{0};
    cost.engine = Engine::kNone;
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
  cost.first_call = carried + ExecutorTime();
  cost.front_end = moved;
  ++cost.calls;
  return cost;
}

Picoseconds CostModel::Woken(Picoseconds asleep) const {
  return WakeTime(profile_.host.woken, asleep);
}

Picoseconds CostModel::Handoff(Picoseconds asleep) const {
  const Curve& by_sleep = profile_.host.handoff_asleep;
  if (by_sleep.empty()) return latencies_.handoff(Site::kHost, Site::kHost, How::kEvent);
  return asleep.count() > 0 ? FromSeconds(by_sleep.At(Seconds(asleep))) : Picoseconds{0};
}

}  // namespace stallcast::hardware
