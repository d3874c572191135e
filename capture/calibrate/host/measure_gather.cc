#include "capture/calibrate/host/measure_gather.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "capture/calibrate/host/host_drift.h"
#include "capture/calibrate/timing/fit.h"
#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/layer_pages.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/host_cores.h"
#include "kernels/runtime/probe.h"
#include "traces/common/median.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using kernels::Memory;
using kernels::PlaceShape;
using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int64_t kLayer = LayerPages::kPool;
constexpr int64_t kPage = CopyEnds::kPage, kRow = 256;
// A layer's recall: of one sequence that keeps most, of one that keeps little, of a large batch.
constexpr int64_t kLeast = int64_t{256} << 10;
constexpr auto kFew = static_cast<int64_t>(hardware::kGatherFirst);
constexpr int64_t kMany = int64_t{16} << 20;
constexpr int kTrials = 21;
// Before those: behind a rest the first dozens by several threads take longer than the hundreds of
// a run (capture/results/hardware-notes.md).
constexpr std::chrono::milliseconds kSettling{8};
// From one gather's end to the next one's begin: within that the threads are awake still.
constexpr std::chrono::microseconds kApart = 50us;

// One stretch; or a token's key and value row, the values behind all keys of the layer.
constexpr PlaceShape kPages{kPage}, kTokens{kRow, 2, kLayer / 2};

template <class Trial>
double MedianOnceSettled(const Trial& trial) {
  for (const auto end = SteadyClock::now() + kSettling; SteadyClock::now() < end;) trial();
  return Stopwatch::Median(kTrials, trial);
}

std::vector<int64_t> Picked(std::mt19937_64& random, int64_t count, int64_t below) {
  std::vector<int64_t> picked(static_cast<size_t>(count));
  for (int64_t& place : picked) {
    place = static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  }
  return picked;
}

}  // namespace

class Gathers::Pool {
 public:
  explicit Pool(const LayerPools& pools) : pools_(pools), out_(kMany, Memory::kPinned) {
    std::memset(out_.get(), 1, static_cast<size_t>(out_.bytes()));
  }

  /// Seconds of a gather of so many bytes, each kApart from the one before, as a method's layers
  /// keep a pace: behind one pause among gathers without any, threads wake more slowly. The host
  /// lists pages, the device lists tokens.
  double Seconds(int64_t bytes, const PlaceShape& shape, int threads) {
    const int64_t count = bytes / shape.bytes(), in_layer = kLayer / shape.bytes();
    return MedianOnceSettled([&] {
      const std::vector<int64_t> picked = Picked(random_, count, in_layer);
      std::vector<int64_t> listed;
      const auto begin = std::max(ended_ + kApart, SteadyClock::now());
      SpinUntil(begin);
      const bool by_host = shape.rows == 1;
      if (by_host) {
        listed.reserve(picked.size());
        for (const int64_t place : picked) listed.push_back(place);
      }
      Gather(by_host ? listed : picked, shape, threads);
      ended_ = SteadyClock::now();
      return std::chrono::duration<double>(ended_ - begin).count();
    });
  }

 private:
  // Of the next layer.
  void Gather(const std::vector<int64_t>& places, const PlaceShape& shape, int threads) {
    layer_ = (layer_ + 1) % pools_.Count(kLayer);
    kernels::HostGather(pools_.Pool(layer_, kLayer), places.data(),
                        static_cast<int64_t>(places.size()), shape, out_.get(), threads);
  }

  const LayerPools& pools_;
  Buffer<std::byte> out_;
  std::mt19937_64 random_{2};
  int layer_ = 0;
  SteadyClock::time_point ended_;
};

double GatherHere(std::span<const std::byte> pool) {
  static std::mt19937_64 random(4);  // other places each time
  const Buffer<char> out(kGatherNow.pieces * kGatherNow.piece_bytes, Memory::kPinned);
  std::memset(out.get(), 1, static_cast<size_t>(out.bytes()));
  const int64_t all = std::ssize(pool) / kGatherNow.piece_bytes;
  const int64_t a_layer = std::min(std::max(all / LayerPools::kLayers, kGatherNow.pieces), all);
  int64_t next = 0;
  return MedianOnceSettled([&] {
    const std::vector<int64_t> picked = Picked(random, kGatherNow.pieces, a_layer);
    const std::byte* from =
        pool.data() + next++ % (all / a_layer) * a_layer * kGatherNow.piece_bytes;
    SpinUntil(SteadyClock::now() + kApart);
    const auto begin = SteadyClock::now();
    kernels::HostGather(from, picked.data(), kGatherNow.pieces, {kGatherNow.piece_bytes}, out.get(),
                        kGatherNow.threads);
    return std::chrono::duration<double>(SteadyClock::now() - begin).count();
  });
}

Gathers::Gathers(const LayerPools& pools) : pool_(std::make_unique<Pool>(pools)) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int threads = 1; threads <= all; threads *= 2) times_.push_back({.threads = threads});
}

Gathers::~Gathers() = default;

// A run looks for the fastest core right before it: so does each of these.
void Gathers::Measure() {
  for (Times& of : times_) {
    const kernels::OnCore core = kernels::OnFastestCore();
    of.least_pages.push_back(pool_->Seconds(kLeast, kPages, of.threads));
    of.few_pages.push_back(pool_->Seconds(kFew, kPages, of.threads));
    of.many_pages.push_back(pool_->Seconds(kMany, kPages, of.threads));
    of.few_rows.push_back(pool_->Seconds(kFew, kTokens, of.threads));
    of.many_rows.push_back(pool_->Seconds(kMany, kTokens, of.threads));
  }
}

void Gathers::Set(hardware::Profile& profile) const {
  std::vector<double> counts, first_rates, rates, starts, rows;
  for (const Times& of : times_) {
    // Of a byte from one time to a later one; noise must not make it nothing.
    const auto seconds_a_byte = [](int64_t less, double sooner, int64_t more, double later) {
      const auto bytes = static_cast<double>(more);
      return std::max((later - sooner) / static_cast<double>(more - less), later / bytes / 2);
    };
    const double few = Median(of.few_pages);
    const double in_pages = seconds_a_byte(kFew, few, kMany, Median(of.many_pages));
    const double in_rows = seconds_a_byte(kFew, Median(of.few_rows), kMany, Median(of.many_rows));
    const double at_first = seconds_a_byte(kLeast, Median(of.least_pages), kFew, few);
    // A piece of either size takes as long beside its bytes, which pass at one rate.
    const double page = kPage * in_pages;
    const double row =
        std::clamp((in_rows - in_pages) / (1.0 / kRow - 1.0 / kPage), 1e-10, page / 2);
    counts.push_back(of.threads);
    rates.push_back(kPage / (page - row));
    first_rates.push_back(kPage / std::max(kPage * at_first - row, kPage * at_first / 2));
    starts.push_back(std::max(few - static_cast<double>(kFew) * at_first, 1e-8));
    rows.push_back(row);
  }
  profile.host.gather_thread = rates.front();
  profile.host.gather_piece = rows.front();
  profile.host.gather_first_rate = hardware::Curve(counts, first_rates);
  profile.host.gather_rate = hardware::Curve(counts, rates);
  profile.host.gather_start = hardware::Curve(counts, starts);
  profile.host.gather_row = hardware::Curve(counts, rows);
  profile.host.memory = 2 * *std::ranges::max_element(rates);
}

}  // namespace stallcast::capture
