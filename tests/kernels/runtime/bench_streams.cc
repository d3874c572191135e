// Whether kernels follow one another as fast on every stream, and on those that FastStreams
// chooses; and what pairs of them are to one another.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fast_streams.h"
#include "kernels/runtime/probe.h"
#include "tests/kernels/measure.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

constexpr int kStreams = 16, kRounds = 3;

// Of the first stream: alone, as others come into use one by one, and when they are gone.
void TableOfTheFirst(StreamTimer& timer) {
  fmt::print("the first stream, by others that have been used, and when they are gone\n  others");
  for (int i = 0; i < kStreams; ++i) fmt::print(" {:>5}", i);
  fmt::print("  gone\n  gap   ");
  const Stream first;
  {
    std::vector<Stream> others;
    for (int i = 0; i < kStreams; ++i) {
      if (i > 0) timer.Gap(others.emplace_back());
      fmt::print(" {:>5.3f}", timer.Gap(first) * 1e6);
    }
  }
  fmt::print(" {:>5.3f}\n\n", timer.Gap(first) * 1e6);
}

// By turns, so that what changes with time shows in all streams.
void Table(const char* what, StreamTimer& timer, bool anew) {
  fmt::print("{}\n  stream", what);
  for (int i = 0; i < kStreams; ++i) fmt::print(" {:>5}", i);
  fmt::print("  slowest/fastest\n");
  std::vector<Stream> streams(kStreams);
  for (int round = 0; round < kRounds; ++round) {
    if (anew) {
      streams.clear();  // first, as between two runs
      streams = std::vector<Stream>(kStreams);
    }
    std::vector<double> gaps;
    for (const Stream& stream : streams) gaps.push_back(timer.Gap(stream));
    fmt::print("  round{}", round);
    for (const double seconds : gaps) fmt::print(" {:>5.3f}", seconds * 1e6);
    const auto [least, most] = std::ranges::minmax(gaps);
    fmt::print("  {:>15.3f}\n", most / least);
  }
  fmt::print("\n");
}

class Copies {
 public:
  explicit Copies(StreamTimer& timer) : timer_(timer) {}
  /// Seconds of a copy of 256 bytes to the device, by turns on two streams.
  double ByTurns(cudaStream_t one, cudaStream_t two) {
    return timer_.PerItem(one, [&](int i) {
      if (i == 0) Join(one, two);
      Copy(i, kFlag, true, i % 2 == 0 ? one : two);
      if (i == kItems - 1) Join(two, one);
    });
  }
  /// Seconds of a page to the device and a flag to the host, one after the other.
  double ToAndFro(cudaStream_t stream) {
    return timer_.PerItem(stream, [&](int i) {
      Copy(i, kPage, true, stream);
      Copy(i, kFlag, false, stream);
    });
  }
  /// Seconds of a kernel and a page to the device, one after the other.
  double BehindKernels(cudaStream_t stream) {
    return timer_.PerItem(stream, [&](int i) {
      Nothing(stream);
      Copy(i, kPage, true, stream);
    });
  }
  /// As ArkVale recalls: a page, then two flags that the host waits for. Seconds of a page by the
  /// host's clock.
  double Recalled(cudaStream_t stream) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    for (int i = 0; i < kItems; ++i) {
      const auto begin = Clock::now();
      Copy(i, kPage, true, stream);
      for (int flag = 0; flag < 2; ++flag) {
        Copy(i, kFlag, false, stream);
        Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      }
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return Median(std::move(seconds));
  }

 private:
  static constexpr int kItems = StreamTimer::kItems;
  static constexpr size_t kFlag = 256, kPage = 131072;

  void Copy(int i, size_t bytes, bool to_device, cudaStream_t stream) const {
    const ptrdiff_t at = static_cast<ptrdiff_t>(bytes) * i;
    Check(to_device ? cudaMemcpyAsync(device_.get() + at, host_.get() + at, bytes,
                                      cudaMemcpyHostToDevice, stream)
                    : cudaMemcpyAsync(host_.get() + at, device_.get() + at, bytes,
                                      cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
  }

  void Join(cudaStream_t first, cudaStream_t then) const {
    Check(cudaEventRecord(passed_, first), "cudaEventRecord");
    Check(cudaStreamWaitEvent(then, passed_, 0), "cudaStreamWaitEvent");
  }

  StreamTimer& timer_;
  Buffer<char> host_{kItems * kPage, Memory::kPinned}, device_{kItems * kPage};
  Event passed_{cudaEventDisableTiming};
};

template <class Streams, class Of>
void Row(const char* what, const Streams& streams, const Of& of) {
  fmt::print("  {:<36}", what);
  for (const auto& stream : streams) fmt::print(" {:>5.2f}", of(stream) * 1e6);
  fmt::print("\n");
}

// What passes on each stream alone.
template <class Streams>
void TableOfStreams(const Streams& streams, StreamTimer& timer, Copies& copies) {
  Row("kernel to kernel", streams, [&](cudaStream_t stream) { return timer.Gap(stream); });
  Row("page to the device, flag to the host", streams,
      [&](cudaStream_t stream) { return copies.ToAndFro(stream); });
  Row("kernel, page to the device", streams,
      [&](cudaStream_t stream) { return copies.BehindKernels(stream); });
  Row("page, two flags waited for", streams,
      [&](cudaStream_t stream) { return copies.Recalled(stream); });
}

template <class Streams, class Of>
void TableOfPairs(const char* what, const Streams& streams, const Of& of) {
  fmt::print("{}\n", what);
  for (const auto& one : streams) {
    fmt::print("  ");
    for (const auto& two : streams) fmt::print(" {:>4.2f}", of(one, two) * 1e6);
    fmt::print("\n");
  }
  fmt::print("\n");
}

template <class Streams>
void TablesOfPairs(const Streams& streams, StreamTimer& timer, Copies& copies) {
  TableOfPairs("from a kernel to one on the other stream of a pair that waits for it", streams,
               [&](cudaStream_t one, cudaStream_t two) { return timer.Handover(one, two); });
  TableOfPairs("from a kernel to the next while the other stream has one that waits for an event",
               streams,
               [&](cudaStream_t one, cudaStream_t two) { return timer.GapBeside(one, two); });
  TableOfPairs("a copy of 256 bytes to the device, by turns", streams,
               [&](cudaStream_t one, cudaStream_t two) { return copies.ByTurns(one, two); });
}

void Run() {
  fmt::print("us, of items of trains that are held back until they are enqueued\n\n");
  StreamTimer timer;
  {
    const FastStreams fast(5);  // a process's first, or they are not what runs get
    Copies copies(timer);
    fmt::print("those that runs get, in this order\n");
    for (int round = 0; round < kRounds; ++round) TableOfStreams(fast, timer, copies);
    fmt::print("\n");
    TablesOfPairs(fast, timer, copies);
  }
  TableOfTheFirst(timer);
  {
    const std::vector<Stream> streams(24);
    Copies copies(timer);
    fmt::print("24 streams\n");
    for (int round = 0; round < kRounds; ++round) TableOfStreams(streams, timer, copies);
    fmt::print("\n");
    TablesOfPairs(streams, timer, copies);
  }
  Table("16 streams in three rounds", timer, false);
  Table("streams made anew each round", timer, true);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_streams", stallcast::kernels::Run); }
