// Whether kernels follow one another as fast on every stream, and on those that LentStreams
// chooses; and what pairs of them are to one another.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cuda_error.h"
#include "kernels/fast_streams.h"
#include "kernels/probe.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kStreams = 16, kRounds = 3;

// Of the first stream: alone, as others come into use one by one, and when they are gone.
void TableOfTheFirst(const StreamTimer& timer) {
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
void Table(const char* what, const StreamTimer& timer, bool anew) {
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

// Seconds of a copy of 256 bytes to the device, by turns on two streams.
class Copies {
 public:
  double Seconds(cudaStream_t one, cudaStream_t two) {
    volatile int* const flag = flag_.get();
    const auto train = [&] {
      HoldUntil(flag_.get(), one);
      Check(cudaEventRecord(start_, one), "cudaEventRecord");
      Join(one, two);
      for (int i = 0; i < kCopies; ++i) {
        const ptrdiff_t at = 256 * i;
        Check(cudaMemcpyAsync(device_.get() + at, host_.get() + at, 256, cudaMemcpyHostToDevice,
                              i % 2 == 0 ? one : two),
              "cudaMemcpyAsync");
      }
      Join(two, one);
      Check(cudaEventRecord(stop_, one), "cudaEventRecord");
      *flag = 1;
      Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    };
    *flag = 1;
    train();
    *flag = 0;
    train();
    return ElapsedSeconds(start_, stop_) / kCopies;
  }

 private:
  static constexpr int kCopies = 100;

  void Join(cudaStream_t first, cudaStream_t then) const {
    Check(cudaEventRecord(passed_, first), "cudaEventRecord");
    Check(cudaStreamWaitEvent(then, passed_, 0), "cudaStreamWaitEvent");
  }

  Buffer<int> flag_{1, Memory::kPinned};
  Buffer<char> host_{int64_t{1} << 20, Memory::kPinned}, device_{int64_t{1} << 20};
  Event start_{cudaEventDefault}, stop_{cudaEventDefault}, passed_{cudaEventDisableTiming};
};

template <class Of>
void TableOfPairs(const char* what, const std::vector<Stream>& streams, const Of& of) {
  fmt::print("{}\n        ", what);
  for (size_t i = 0; i < streams.size(); ++i) fmt::print(" {:>4}", i);
  for (size_t i = 0; i < streams.size(); ++i) {
    fmt::print("\n  {:>4}  ", i);
    for (size_t j = 0; j < streams.size(); ++j) {
      fmt::print(" {:>4.2f}", of(streams[i], streams[j]) * 1e6);
    }
  }
  fmt::print("\n\n");
}

void Run() {
  fmt::print("us from one empty kernel to the next in a held train\n\n");
  const StreamTimer timer;
  TableOfTheFirst(timer);
  {
    const std::vector<Stream> streams(24);
    Copies copies;
    fmt::print("24 streams\n        ");
    for (const Stream& stream : streams) fmt::print(" {:>4.2f}", timer.Gap(stream) * 1e6);
    fmt::print("\n\n");
    TableOfPairs("from a kernel to one on the other stream of a pair that waits for it", streams,
                 [&](cudaStream_t one, cudaStream_t two) { return timer.Handover(one, two); });
    TableOfPairs("a copy of 256 bytes to the device, by turns", streams,
                 [&](cudaStream_t one, cudaStream_t two) { return copies.Seconds(one, two); });
  }
  Table("16 streams in three rounds", timer, false);
  Table("streams made anew each round", timer, true);
  const LentStreams lent(4);
  fmt::print("those that runs get\n ");
  for (const cudaStream_t stream : lent) fmt::print(" {:>5.3f}", timer.Gap(stream) * 1e6);
  fmt::print("; handed over to from the first in");
  for (const cudaStream_t stream : lent) {
    if (stream != lent[0]) fmt::print(" {:>5.3f}", timer.Handover(lent[0], stream) * 1e6);
  }
  fmt::print(", copies by turns in");
  Copies copies;
  for (const cudaStream_t stream : lent) {
    if (stream != lent[0]) fmt::print(" {:>5.3f}", copies.Seconds(lent[0], stream) * 1e6);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_streams", stallcast::kernels::Run); }
