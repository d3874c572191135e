// Whether kernels follow one another as fast on every stream, and on those that FastestStreams()
// chooses.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/fast_streams.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int kStreams = 16, kRounds = 3;

// Of the first stream: alone, as others come into use one by one, and when they are gone.
void TableOfTheFirst(const GapTimer& gap) {
  fmt::print("the first stream, by others that have been used, and when they are gone\n  others");
  for (int i = 0; i < kStreams; ++i) fmt::print(" {:>5}", i);
  fmt::print("  gone\n  gap   ");
  const Stream first;
  {
    std::vector<Stream> others;
    for (int i = 0; i < kStreams; ++i) {
      if (i > 0) gap.Seconds(others.emplace_back());
      fmt::print(" {:>5.3f}", gap.Seconds(first) * 1e6);
    }
  }
  fmt::print(" {:>5.3f}\n\n", gap.Seconds(first) * 1e6);
}

// By turns, so that what changes with time shows in all streams.
void Table(const char* what, const GapTimer& gap, bool anew) {
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
    for (const Stream& stream : streams) gaps.push_back(gap.Seconds(stream));
    fmt::print("  round{}", round);
    for (const double seconds : gaps) fmt::print(" {:>5.3f}", seconds * 1e6);
    const auto [least, most] = std::ranges::minmax(gaps);
    fmt::print("  {:>15.3f}\n", most / least);
  }
  fmt::print("\n");
}

void Run() {
  fmt::print("us from one empty kernel to the next in a held train\n\n");
  const GapTimer gap;
  TableOfTheFirst(gap);
  Table("16 streams in three rounds", gap, false);
  Table("streams made anew each round", gap, true);
  fmt::print("the fastest, chosen anew\n ");
  for (int i = 0; i < kStreams; ++i) {
    fmt::print(" {:>5.3f}", gap.Seconds(FastestStreams(1).front()) * 1e6);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_streams", stallcast::kernels::Run); }
