// Whether kernels follow one another as fast on every stream: a run's streams are made anew, and in
// recordings the gap between kernels is one of two, by run.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "capture/calibrate/stopwatch.h"
#include "kernels/probe.h"
#include "tests/kernels/measure.h"

namespace stallcast::capture {
namespace {

constexpr int kStreams = 16, kRounds = 3, kFew = 100, kMany = 500;

// Of a stream, from one empty kernel to the next.
double Gap(Stopwatch& watch) {
  return Stopwatch::WithoutEnds(kFew, kMany, [&](int count) {
    return count * watch.Period(count, [&](int) { kernels::Nothing(watch.stream()); });
  });
}

// By turns, so that what changes with time shows in all streams.
void Table(const char* what, bool anew) {
  fmt::print("{}\n  stream", what);
  for (int i = 0; i < kStreams; ++i) fmt::print(" {:>5}", i);
  fmt::print("  slowest/fastest\n");
  std::vector<Stopwatch> streams(kStreams);
  for (int round = 0; round < kRounds; ++round) {
    if (anew) {
      streams.clear();  // first, as between two runs
      streams = std::vector<Stopwatch>(kStreams);
    }
    std::vector<double> gaps;
    for (Stopwatch& stream : streams) gaps.push_back(Gap(stream));
    fmt::print("  round{}", round);
    for (const double gap : gaps) fmt::print(" {:>5.3f}", gap * 1e6);
    const auto [least, most] = std::ranges::minmax(gaps);
    fmt::print("  {:>15.3f}\n", most / least);
  }
  fmt::print("\n");
}

void Run() {
  fmt::print(
      "us from one empty kernel to the next in a held train; {} streams there at once, each with "
      "an idle one beside it\n\n",
      kStreams);
  Table("the same streams in three rounds", false);
  Table("streams made anew each round", true);
}

}  // namespace
}  // namespace stallcast::capture

int main() {
  return stallcast::kernels::Benchmark("bench_streams", [] { stallcast::capture::Run(); });
}
