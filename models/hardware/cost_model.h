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
};
inline constexpr int kResources = 6;

/// Servers that run one op at a time; who is next is the engine's matter (sim/engine.h).
enum class Engine : uint8_t { kNone, kCopyH2D, kCopyD2H };

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
  Picoseconds fixed{0};  ///< on its lane, sharing nothing; first but with streams_weights
  Picoseconds extra_if_three_streams_busy{0};
  Picoseconds extra_if_sibling_waits{0};  ///< while a kernel of its group's streams waits
  Picoseconds front_end{0};               ///< from its start, that no kernel starts
  double amount = 0;                      ///< bytes
  double rate = 0;                        ///< bytes/s; > 0 where amount > 0
  /// Fair share relative to other flows on a saturated resource: flow i gets weight_i * level,
  /// capped by its rate.
  double weight = 1;
  Engine engine = Engine::kNone;
  bool kernel = false;           ///< or several: `calls`
  bool streams_weights = false;  ///< a memory-bound GEMM: delays kernels, is slowed by write-back
  bool boosted = false;          ///< computes: faster until the power limit sets the clock
  bool extrapolated = false;     ///< outside the range that the profile was calibrated for
  uint8_t demands = 0;
  int32_t calls = 1;  ///< that the host makes
  std::array<Demand, 5> demand{};
  double written = 0;  ///< bytes that wait to be written back behind it, as WriteBack has them
  double spread = 0;   ///< relative standard deviation

  Picoseconds Alone() const {
    return fixed + (amount > 0 ? FromSeconds(amount / rate) : Picoseconds{0});
  }
};

/// Fixed times between ops, and the calls that belong to events.
struct Latencies {
  HandoffTable<Picoseconds> handoff;
  /// Host calls. `enter` and leave a stream that is not the current one, which PyTorch's thread
  /// does.
  struct Calls {
    Picoseconds event_record{0}, stream_wait{0}, enter{0};
  };
  Calls cpp, pytorch;
  const Calls& Of(bool from_pytorch) const { return from_pytorch ? pytorch : cpp; }
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
/// GEMM delays. A GEMM that is bound by memory has weights in flight to each multiprocessor from
/// its start until its fixed time is left, in which its last blocks end. What another kernel reads
/// of the device's memory before it begins comes behind them: the profile's gemm.delays_kernel.
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
/// translated that they lie in. They take blocks / 2 multiprocessors (1,024 threads of 2,048) and
/// of device memory, beside the write, what the profile says that readers lose.
class CostModel {
 public:
  /// Throws what Check() throws.
  explicit CostModel(Profile profile);

  /// Error: an op that takes more than a day. `host`: of the lane that issues it. From PyTorch its
  /// call takes what the operators take that issue it (plan::CallsOf).
  OpCost Cost(const plan::Work& work, plan::Host host = plan::Host::kCpp) const;
  /// A copy whose stream has nothing left to do: its first piece, if small enough, goes to the GPU
  /// in the call itself and needs no copy engine. None: as always.
  std::optional<OpCost> InlinedCost(const plan::Work& work) const;
  /// What the first calls of a thread that has slept so long take longer, all together.
  Picoseconds Woken(Picoseconds asleep) const;
  /// From one host thread's notice to the going on of another that has slept so long; where the
  /// profile has it by that, one that does not sleep goes on at once.
  Picoseconds Handoff(Picoseconds asleep) const;
  const Latencies& latencies() const { return latencies_; }
  /// Seconds that a kernel's start takes longer while a GEMM streams weights.
  double start_beside_gemm() const { return profile_.gemm.delays_kernel; }
  const WriteBack& write_back() const { return write_back_; }
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
  /// What the executor spends on an op, with its first call.
  Picoseconds ExecutorTime() const {
    return FromSeconds(profile_.host.op + profile_.host.recorded * profile_.recorder.op);
  }

  void SetLatencies();
  void CallFromPyTorch(const plan::Work& work, OpCost& cost) const;

  Profile profile_;
  std::array<KernelFit, plan::kOpKinds> fits_;  ///< but for their points
  std::array<TimedPoints, plan::kOpKinds> points_;
  Latencies latencies_;
  WriteBack write_back_;
  std::array<double, kResources> capacity_{};
};

}  // namespace stallcast::hardware
