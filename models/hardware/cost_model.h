// What an op costs on a machine when nothing else runs, and which shared resources it uses.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "models/hardware/profile.h"
#include "models/hardware/timed_points.h"
#include "models/hardware/write_back.h"
#include "models/plan/plan.h"

namespace stallcast::hardware {

/// Capacities that running ops share as fluid.
enum class Resource : uint8_t {
  kDeviceMemory,
  kLinkH2D,
  kLinkD2H,
  kLinkBoth,
  kSms,
  kHostMemory,
  kCopyTurns,  ///< of the copy engine, by small copies whose streams take turns: of its time
};
inline constexpr int kResources = 7;

/// Servers that run one op at a time; who is next is the engine's matter (sim/engine.h).
enum class Engine : uint8_t { kNone, kCopyH2D, kCopyD2H };

/// What starts slower while others load the device memory.
enum class Start : uint8_t { kNone, kKernel, kH2DPiece, kD2HPiece };

/// How much of a resource one unit of an op's flow takes.
struct Demand {
  Resource resource = Resource::kDeviceMemory;
  double per_unit = 0;
};

/// An op alone: the host call, a fixed time, then `amount` units at up to `rate` units/s.
///
/// A stream op starts on its lane no earlier than `first_call` after its call begins, and ends no
/// earlier than `last_piece` after its call ends; alone on the device it takes Alone(). For most
/// ops `first_call` is `host` and `last_piece` 0. An op that stands for n copy calls has first_call
/// = host / n, so that calls and copies overlap and the slower of them sets the pace: with a call
/// of h and a piece of e, n pieces take h + n e when e > h and n h + e when h > e. One of several
/// kernels starts behind the first one's launch, and ends no earlier than the last can start. One
/// whose first call carries a piece starts with that; the others come to the copy engine when the
/// front end has moved it and handed over, but not before `second_call`.
///
/// Host work occupies its lane for host + Alone().
struct OpCost {
  Picoseconds host{0};         ///< of the issuing host thread
  Picoseconds first_call{0};   ///< <= host
  Picoseconds second_call{0};  ///< > 0: the first call carries a piece, the engine moves others
  Picoseconds last_piece{0};
  Picoseconds fixed{0};         ///< on its lane, sharing nothing; first but with streams_weights
  Picoseconds engine_start{0};  ///< on its lane while it holds the copy engine
  Picoseconds crowded{0};       ///< more of that while two other streams have work
  Picoseconds grouped{0};       ///< else, while a kernel of its group's streams waits
  Picoseconds front_end{0};     ///< from its start, that no kernel starts
  double amount = 0;            ///< bytes
  double rate = 0;              ///< bytes/s; > 0 where amount > 0
  /// Fair share relative to other flows on a saturated resource: flow i gets weight_i * level,
  /// capped by its rate.
  double weight = 1;
  Engine engine = Engine::kNone;
  Start start = Start::kNone;
  double starts = 0;  ///< in fixed + engine_start
  int32_t calls = 1;  ///< that the host makes
  uint8_t demands = 0;
  std::array<Demand, 5> demand{};
  double written = 0;    ///< bytes that wait to be written back behind it, as WriteBack has them
  bool dragged = false;  ///< a product that takes longer meanwhile
  bool boosted = false;  ///< computes: faster until the power limit sets the clock
  double holding_blocks = 0;     ///< of a zero-copy gather, whose bytes on their way hold up others
  double rounds = 0;             ///< in which a zero-copy gather reads its bytes
  bool streams_weights = false;  ///< a product bound by memory: others start later meanwhile
  bool wakes = false;    ///< threads that sleep between two such ops: GatherWoken() comes on top
  Picoseconds cools{0};  ///< what the next calls of its thread take longer, all together
  double spread = 0;     ///< relative standard deviation
  bool extrapolated = false;  ///< outside the range that the profile was calibrated for

  Picoseconds Alone() const {
    return fixed + engine_start + (amount > 0 ? FromSeconds(amount / rate) : Picoseconds{0});
  }
};

/// Fixed times between ops.
struct Latencies {
  Picoseconds launch{0};           ///< issue to start on an idle stream
  Picoseconds copy_launch{0};      ///< the same of a copy
  Picoseconds gap{0};              ///< previous op of the lane to this one
  Picoseconds crowded_gap{0};      ///< more of that while a kernel of its group's streams waits
  Picoseconds copy_gap{0};         ///< the same between a kernel and a copy
  Picoseconds flag_gap{0};         ///< before a copy to the host that a host waits for
  Picoseconds between_copies{0};   ///< the same between copies that go one way, beside their own
  Picoseconds to_host_gap{0};      ///< the same before a copy to the host behind one to the GPU
  Picoseconds to_device_gap{0};    ///< the same before a copy to the GPU behind one to the host
  Picoseconds look_period{0};      ///< of which those two are means; 0: they are all that is known
  Picoseconds to_host_look{0};     ///< from such a copy's commands to its start at the first look
  Picoseconds to_device_look{0};   ///< the same of to_device_gap
  Picoseconds event{0};            ///< end of a waited-for op on another lane to this one's start
  Picoseconds event_to_copy{0};    ///< the same from a kernel to a copy
  Picoseconds event_from_copy{0};  ///< the same from a copy to a kernel
  Picoseconds event_wait{0};       ///< more before an op for each of its waits
  Picoseconds event_recorded{0};   ///< more behind an op with an event
  Picoseconds graph_gap{0};        ///< `gap` inside a CUDA graph
  Picoseconds event_record{0}, stream_wait{0};  ///< host calls
  Picoseconds copy_switch{0};     ///< host calls of a copy to the GPU behind a kernel, more
  Picoseconds op{0};              ///< of the host for each op, beside its calls
  Picoseconds host_sync{0};       ///< end of a waited-for op to the host going on
  Picoseconds host_sync_copy{0};  ///< the same of a copy
  Picoseconds host_handoff{0};
  Picoseconds beside_call{0};  ///< of a launch or a copy, more while another thread waits
  /// A call takes so many times as long while another thread is in one, and while two or more are.
  double contended = 1, contended_more = 1;
};

/// Costs of ops on one machine.
///
/// Kernels. Time alone is the law of the kind's KernelFit times TimedPoints' factor. A unit is a
/// byte of device memory; demand on kDeviceMemory is 1 a byte, on kSms as many multiprocessors, for
/// as long as it runs, as it has blocks: one for every 32 KiB that it moves, at least one, at most
/// all (32 KiB in flight and in turn is what keeps a multiprocessor's share of memory busy). Weight
/// is the rate alone, so two kernels that together want twice a resource both run at half speed.
///
/// Copies hold the copy engine of their direction. A unit is a byte over the link. They and
/// zero-copy reads go before kernels: their weight is large enough that device memory and
/// multiprocessors, which they hardly use, never throttle them in favour of a kernel.
///
/// Both ways at once. A flow demands 1 of its direction and 1 of kLinkBoth a byte; kLinkBoth has
/// the capacity both_h2d + both_d2h and weights are in the ratio both_h2d : both_d2h. One flow a
/// direction then rises with the level until kLinkBoth is full, which is at both_h2d and both_d2h
/// exactly: max-min fairness gives the measured rates, and each direction alone its full rate. (If
/// the two together carry less than one alone, kLinkBoth has that one's capacity.)
///
/// Starts. What a kernel, or a copy's piece, takes at its start is latency of the device memory in
/// good part: it grows with the share of the memory that others use meanwhile (the profile's load
/// curves), so small copies and kernels beside a large product take longer.
///
/// Hold-ups. A zero-copy gather keeps 64 KiB a block on their way, and what the GPU reads of the
/// host's memory before a kernel or a piece of a copy begins comes behind them (the profile's
/// zero_copy.holds_* curves, by blocks): with many blocks, little starts beside a gather. A
/// stream's next commands are read while what is before them runs, so only what is then left of it
/// shows, and nothing where they were read before the gather began.
///
/// A product that is bound by memory has weights on their way to each multiprocessor from its start
/// until its fixed time is left, in which its last blocks end. What kernels and copies read of the
/// device's memory before they begin comes behind them, read for read: the profile's
/// product.holds_kernel, holds_h2d_piece and holds_d2h_piece, where they are more than the load
/// curves say, and product.holds_round for each round of a zero-copy gather.
///
/// Drag. Products that are bound by memory take longer by WriteBack for the bytes that wait, and
/// pay of that at most memory.drag_share of their time, so that as many bytes fewer wait. A gather
/// and a scatter add what they write, other kernels as many bytes as cost what TimedPoints says.
///
/// Boost. Kernels that compute are calibrated at the clock that the power limit sets. In a prompt,
/// which finds an idle GPU, it takes device.boost_time of them to set in; until then they are
/// device.boost times as fast.
///
/// Background traffic. Copies of others over the link, by the profile's background values, take the
/// copy engine and the link as the plan's own copies do.
///
/// Zero-copy reads. The rate is the profile's table at the piece size and at the blocks that have
/// bytes to read (a block reads 64 KiB at a time), capped by the link. Pieces scattered over the
/// layers' pools come no faster than the addresses of the regions of the host's memory are
/// translated that they lie in. Beside copies their share of the link is the profile's by their
/// blocks. They take blocks / 2 multiprocessors (1,024 threads of 2,048) and of device memory,
/// beside the write, what the profile says that readers lose.
class CostModel {
 public:
  /// Throws what Check() throws.
  explicit CostModel(Profile profile);

  /// Error: an op that takes more than a day.
  OpCost Cost(const plan::Work& work) const;
  /// A copy whose stream has nothing left to do: its first piece, if small enough, goes to the GPU
  /// in the call itself and needs no copy engine. None: as always.
  std::optional<OpCost> InlinedCost(const plan::Work& work) const;
  /// What the first calls of a thread that has slept so long take longer, all together.
  Picoseconds Woken(Picoseconds asleep) const;
  /// The same of one that has waited so long for the device.
  Picoseconds Waited(Picoseconds time) const;
  /// From one host thread's notice to the going on of another that has slept so long; where the
  /// profile has it by that, one that does not sleep goes on at once.
  Picoseconds Handoff(Picoseconds asleep) const;
  /// What an op that wakes threads takes longer so long after the last one.
  Picoseconds GatherWoken(Picoseconds asleep) const;
  const Latencies& latencies() const { return latencies_; }
  /// Seconds that a start takes longer while others use `share` of the device memory, 0 to 1.
  double LoadedStart(Start start, double share) const {
    const auto& table = loaded_[static_cast<size_t>(start)];
    const double at = std::clamp(share, 0.0, 1.0) * (table.size() - 1);
    const auto low = std::min(static_cast<size_t>(at), table.size() - 2);
    return table[low] + (at - static_cast<double>(low)) * (table[low + 1] - table[low]);
  }
  /// The same while a product streams weights, where that is more; and a gather's round.
  double StartBesideProduct(Start start) const {
    return beside_product_[static_cast<size_t>(start)];
  }
  double RoundBesideProduct() const { return profile_.product_holds_round; }
  /// Seconds that a start takes longer while zero-copy gathers of others have so many blocks.
  double HeldUpStart(Start start, double blocks) const;
  const WriteBack& write_back() const { return write_back_; }
  /// Whether any start depends on what others do.
  bool has_load() const { return has_load_; }
  /// A copy of background traffic and the mean time from one to the next (BackgroundTicks); 0:
  /// there is none.
  struct Background {
    OpCost copy;
    Picoseconds period{0};
  };
  Background BackgroundOf(plan::Direction direction) const;
  /// Units/s (bytes/s, or multiprocessors) by Resource. kLinkBoth couples the two directions.
  const std::array<double, kResources>& capacity() const { return capacity_; }
  const Profile& profile() const { return profile_; }

 private:
  Profile profile_;
  std::array<KernelFit, plan::kOpKinds> fits_;  ///< but for their points
  std::array<TimedPoints, plan::kOpKinds> points_;
  Latencies latencies_;
  WriteBack write_back_;
  std::array<double, kResources> capacity_{};
  /// By Start; at evenly spaced shares from 0 to 1.
  std::array<std::array<double, 65>, 4> loaded_{};
  std::array<double, 4> beside_product_{};  ///< by Start
  bool has_load_ = false;
};

}  // namespace stallcast::hardware
