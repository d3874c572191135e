// What waits behind a zero-copy gather. A gather keeps 64 KiB a block on their way, and whatever
// else reads host memory, the front end its commands, a copy engine its source, gets its turn
// behind them: by Little's law after the bytes on their way over the link's rate, 20 us at 16
// blocks and 55 GB/s. More than what the link carries in one round trip brings nothing but that.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/decoder/decoder.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/fast_streams.h"
#include "kernels/runtime/probe.h"
#include "kernels/selection/selection.h"
#include "tests/kernels/measure.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kBlocks = {0, 1, 2, 3, 4, 6, 8, 16, 32, 64};  // 0: no gather

/// Gathers pages of 16 KiB from a pinned pool of 1 GiB, again and again.
class Gather {
 public:
  Gather() {
    std::memset(static_cast<void*>(pool_.get()), 1, static_cast<size_t>(pool_.bytes()));
    std::mt19937_64 random(1);
    std::vector<int64_t> source;
    std::vector<int32_t> slot, head;
    for (int32_t i = 0; i < kPieces; ++i) {
      source.push_back(static_cast<int64_t>(random() % (kPool / kPiece)));
      slot.push_back(i / kHeads);
      head.push_back(i % kHeads);
    }
    source_ = Uploaded(source);
    slot_ = Uploaded(slot);
    head_ = Uploaded(head);
  }

  void Once(int32_t blocks, cudaStream_t stream) {
    ZeroCopyGather(pool_.get(), source_.get(), slot_.get(), head_.get(), kPieces, nullptr,
                   NhdPages(cache_.get(), kTokens, kHeads, kDim), false, blocks, stream);
  }
  double Rate(int32_t blocks, Stopwatch& watch) {
    return kPieces * kPiece / watch.Once([&] { Once(blocks, watch.stream()); });
  }
  /// Keeps the link busy for some 150 ms from now on.
  void Begin(int32_t blocks) {
    for (int i = 0; blocks > 0 && i < kGathers; ++i) Once(blocks, stream_);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  /// Whether it was busy until now; waits for the end.
  bool End(int32_t blocks) {
    const bool busy = cudaStreamQuery(stream_) == cudaErrorNotReady;
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return busy || blocks == 0;
  }

 private:
  static constexpr int64_t kPool = int64_t{1} << 30, kPiece = 16384;
  static constexpr int32_t kPieces = 8192, kHeads = 8, kTokens = 32, kDim = 128;
  static constexpr int kGathers = 60;

  Buffer<__nv_bfloat16> pool_{kPool / 2, Memory::kPinned}, cache_{kPieces * kPiece / 2};
  Buffer<int64_t> source_;
  Buffer<int32_t> slot_, head_;
  Stream stream_;
};

class Table {
 public:
  explicit Table(Gather& gather) : gather_(gather) {}

  /// A row of what measure() returns, s, beside each gather.
  template <class Measure>
  void Row(const std::string& what, const Measure& measure) {
    measure();  // loads what it launches, which waits for all kernels
    fmt::print("{:<62}", what);
    for (const int blocks : kBlocks) {
      gather_.Begin(blocks);
      const double seconds = measure();
      const bool beside = gather_.End(blocks);
      fmt::print(" {:>6}", beside ? fmt::format("{:.1f}", seconds * 1e6) : "-");
    }
    fmt::print("\n");
  }

 private:
  Gather& gather_;
};

/// Seconds, by the host's clock, of enqueue() and a wait for `stream`: the median of some calls.
template <class Enqueue>
double Waited(cudaStream_t stream, const Enqueue& enqueue) {
  constexpr int kCalls = 40;
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    const auto begin = Clock::now();
    enqueue();
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return Median(std::move(seconds));
}

void Run() {
  constexpr int kItems = 64;
  constexpr int64_t kPage = 16384, kN = 4096, kK = 4096;
  const FastStreams streams(2);
  const cudaStream_t one = streams[0], two = streams[1];
  Gather gather;
  Stopwatch watch;
  HeldTrain train;
  const Event passed{cudaEventDisableTiming};
  const Buffer<char> host(kItems * kPage, Memory::kPinned), device(kItems * kPage);
  const Buffer<__nv_bfloat16> keys(kItems * kPage / 2), means(kItems * 128);
  const Buffer<int32_t> slots(kItems);
  Check(cudaMemset(slots.get(), 0, static_cast<size_t>(slots.bytes())), "cudaMemset");
  Check(cudaMemset(keys.get(), 0, static_cast<size_t>(keys.bytes())), "cudaMemset");
  const Buffer<__nv_bfloat16> weights = RandomOnDevice(kN * kK), in = RandomOnDevice(kK), out(kN);
  Gemm gemm;

  const auto copy = [&](int i, int64_t bytes, bool to_device) {
    char* const there = device.get() + i * kPage;
    char* const here = host.get() + i * kPage;
    Check(
        to_device
            ? cudaMemcpyAsync(there, here, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, one)
            : cudaMemcpyAsync(here, there, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, one),
        "cudaMemcpyAsync");
  };
  const auto summarize = [&] {
    Summarize(SummaryKind::kMean, NhdPages(keys.get(), 32, 8, 128), slots.get(), 1, 0, 1, 8,
              means.get(), 1, one);
  };
  const auto held = [&](const auto& item) {
    return [&one, &train, item] {
      item(0);  // loads it, which a train that is held back would wait for
      Check(cudaStreamSynchronize(one), "cudaStreamSynchronize");
      return train.Seconds(one, kItems, item) / kItems;
    };
  };
  const auto to_and_fro = [&] {
    Nothing(one);
    Check(cudaEventRecord(passed, one), "cudaEventRecord");
    Check(cudaStreamWaitEvent(two, passed, 0), "cudaStreamWaitEvent");
    Nothing(two);
    Check(cudaEventRecord(passed, two), "cudaEventRecord");
    Check(cudaStreamWaitEvent(one, passed, 0), "cudaStreamWaitEvent");
  };
  const auto waited = [&](const auto& enqueue) {
    return [&one, enqueue] { return Waited(one, enqueue); };
  };

  fmt::print("us beside a zero-copy gather of 16 KiB pages, by its blocks (of 64 KiB in flight)\n");
  fmt::print("{:<62}", "");
  for (const int blocks : kBlocks) fmt::print(" {:>6}", blocks);
  fmt::print("\n{:<62} {:>6}", "the gather itself, GB/s", "");
  for (const int blocks : kBlocks) {
    if (blocks > 0) fmt::print(" {:>6.1f}", gather.Rate(blocks, watch) * 1e-9);
  }
  fmt::print("\n");

  Table table(gather);
  fmt::print("called while it runs, until the host knows of the end\n");
  table.Row("  an empty kernel", waited([&] { Nothing(one); }));
  table.Row("  eight empty kernels", waited([&] {
              for (int i = 0; i < 8; ++i) Nothing(one);
            }));
  table.Row("  eight, by turns on two streams that wait for one another", waited([&] {
              for (int i = 0; i < 4; ++i) to_and_fro();
            }));
  table.Row("  a mean of 8 x 32 keys", waited(summarize));
  table.Row("  a flag of 4 bytes to the host", waited([&] { copy(0, 4, false); }));
  table.Row("  a page to the host", waited([&] { copy(0, kPage, false); }));
  table.Row("  a page to the device", waited([&] { copy(0, kPage, true); }));
  table.Row("  a kernel and a flag", waited([&] {
              Nothing(one);
              copy(0, 4, false);
            }));
  table.Row("  a product of 4096 x 4096",
            waited([&] { gemm.Run(in.get(), weights.get(), out.get(), 1, kN, kK, one); }));

  fmt::print("in a train that is held back until it is enqueued\n");
  table.Row("  an empty kernel", held([&](int) { Nothing(one); }));
  table.Row("  two, by turns on two streams that wait for one another",
            held([&](int) { to_and_fro(); }));
  table.Row("  a mean of 8 x 32 keys", held([&](int) { summarize(); }));
  table.Row("  a page to the host", held([&](int i) { copy(i, kPage, false); }));
  table.Row("  a page to the device", held([&](int i) { copy(i, kPage, true); }));
  table.Row("  a product of 4096 x 4096",
            held([&](int) { gemm.Run(in.get(), weights.get(), out.get(), 1, kN, kK, one); }));
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_beside_gather", stallcast::kernels::Run); }
