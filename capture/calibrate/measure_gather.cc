#include "capture/calibrate/measure_gather.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "capture/calibrate/stopwatch.h"
#include "kernels/movement.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using kernels::Memory;
using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kLayers = 32, kLayer = int64_t{128} << 20;
constexpr double kPage = 16384, kRow = 256;
// Pages of a layer's recall: at a small batch, and at a large one.
constexpr double kFew = 128, kMany = 1024, kRows = 16384;
// Between the recalls of two layers.
constexpr auto kApart = std::chrono::microseconds(200);
constexpr int kTrials = 21;

class Gathering {
 public:
  Gathering()
      : pool_(kLayers * kLayer, Memory::kPinned),
        out_(static_cast<int64_t>(kMany * kPage), Memory::kPinned) {
    std::memset(pool_.get(), 1, static_cast<size_t>(pool_.bytes()));
    std::memset(out_.get(), 1, static_cast<size_t>(out_.bytes()));
  }

  /// Seconds of a gather, its list included.
  double Seconds(double pieces, double piece_bytes, int threads) {
    const auto count = static_cast<int64_t>(pieces), bytes = static_cast<int64_t>(piece_bytes);
    return Stopwatch::Median(kTrials, [&] {
      const int64_t in_layer = kLayer / bytes, first = layer_++ % kLayers * in_layer;
      std::vector<int64_t> picked(static_cast<size_t>(count));
      for (int64_t& piece : picked) {
        piece = first + static_cast<int64_t>(random_() % static_cast<uint64_t>(in_layer));
      }
      const auto begin = SteadyClock::now() + kApart;
      while (SteadyClock::now() < begin) {
      }
      std::vector<int64_t> source;
      source.reserve(picked.size());
      for (const int64_t piece : picked) source.push_back(piece);
      kernels::HostGather(pool_.get(), source.data(), count, bytes, out_.get(), threads);
      return std::chrono::duration<double>(SteadyClock::now() - begin).count();
    });
  }

 private:
  Buffer<std::byte> pool_, out_;
  std::mt19937_64 random_{2};
  int64_t layer_ = 0;
};

}  // namespace

void MeasureGather(hardware::Profile& profile) {
  Gathering gathering;
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // By one thread a piece takes so long, and its bytes; several threads share what pieces take.
  const double row = gathering.Seconds(kRows, kRow, 1) / static_cast<double>(kRows);
  std::vector<double> counts, rates, starts;
  for (int threads = 1; threads <= all; threads *= 2) {
    const double few = gathering.Seconds(kFew, kPage, threads);
    const double many = gathering.Seconds(kMany, kPage, threads);
    // Of a page once all threads gather; noise must not make it nothing.
    const double page = std::max((many - few) / (kMany - kFew), many / kMany / 2);
    if (threads == 1) {
      profile.host_gather_thread = (kPage - kRow) / std::max(page - row, page / 100);
      profile.host_gather_piece = std::max(row - kRow / profile.host_gather_thread, 1e-10);
    }
    counts.push_back(threads);
    rates.push_back(kPage / std::max(page - profile.host_gather_piece / threads, page / 100));
    starts.push_back(std::max(few - kFew * page, 1e-8));
  }
  profile.host_gather_rate = hardware::Curve(counts, rates);
  profile.host_gather_start = hardware::Curve(counts, starts);
  profile.host_memory = 2 * *std::ranges::max_element(rates);
}

}  // namespace stallcast::capture
