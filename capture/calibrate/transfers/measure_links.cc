#include "capture/calibrate/transfers/measure_links.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "capture/calibrate/timing/fit.h"
#include "capture/calibrate/transfers/scattered_gather.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/device_attribute.h"
#include "kernels/runtime/probe.h"
#include "kernels/runtime/upload.h"
#include "models/plan/work.h"
#include "traces/common/median.h"
#include "traces/common/units.h"

namespace stallcast::capture {
namespace {

using hardware::How;
using hardware::Site;

using kernels::Buffer;
using kernels::Check;

constexpr int64_t kPool = CopyEnds::kPool;
constexpr int64_t kLarge = int64_t{1} << 28;  // a copy that runs at the link's rate
constexpr int64_t kLong = int64_t{1} << 24;   // 32 take a thousand times as long as their ends
constexpr int64_t kSmallestPage = 4096;       // smaller copies are rows of one
constexpr int64_t kRead = int64_t{2} << 30;   // a read that runs at the memory's rate

// Time of one copy among many of its size. The ends of a train of long copies count for nothing
// and stay in: where others use the link during one train and not during the next, a difference of
// the two is more than the link carries.
double CopyTime(Stopwatch& watch, const CopyEnds& ends, int64_t bytes, bool down) {
  const int many = static_cast<int>(std::clamp<int64_t>(kPool / bytes / 2, 4, 200));
  const auto train_time = [&](int copies) {
    return copies * watch.Period(copies, [&](int i) {
      if (bytes < kSmallestPage) {
        ends.CopyRow(i, bytes, down, watch.stream());
      } else {
        ends.CopyPage(i, bytes, down, watch.stream());
      }
    });
  };
  if (bytes >= kLong) return train_time(many) / many;
  return Stopwatch::WithoutEnds(many / 4, many, train_time);
}

struct Copies {
  Line line;
  hardware::Curve piece;  // beyond bytes over the line's rate
};

Copies FitCopies(Stopwatch& watch, const CopyEnds& ends, bool down) {
  std::vector<double> sizes, times;
  for (int64_t bytes = 256; bytes <= kLarge; bytes *= 4) {
    sizes.push_back(static_cast<double>(bytes));
    times.push_back(CopyTime(watch, ends, bytes, down));
  }
  Copies copies;
  copies.line = FitLine(sizes, times);
  std::vector<double> beyond;
  for (size_t i = 0; i < sizes.size(); ++i) {
    beyond.push_back(std::max(times[i] - sizes[i] * copies.line.b, 1e-9));
  }
  copies.piece = hardware::Curve(sizes, beyond);
  return copies;
}

// Rate of large copies one way beside twice as many the other way.
double RateBesideTheOtherWay(Stopwatch& watch, const CopyEnds& ends, bool down) {
  constexpr int kCopies = 4, kTrials = 1;
  return static_cast<double>(kLarge) / Stopwatch::Median(kTrials, [&] {
           for (int i = 0; i < 2 * kCopies; ++i) ends.Copy(kLarge, kLarge, !down, watch.other());
           const double seconds = watch.PeriodBeside(
               kCopies, [&](int) { ends.Copy(0, kLarge, down, watch.stream()); });
           watch.Finish();
           return seconds;
         });
}

// Bytes a second.
struct Sharing {
  double lost = 0;   // by reads at the memory's rate
  double moved = 0;  // by what goes on beside them
};

// Of reads of all of `memory`, over and over, while `beside` keeps the other stream busy, which
// enqueues some work and tells its bytes.
template <class Beside>
Sharing ReadsBeside(Stopwatch& watch, const Buffer<std::byte>& memory, int* sink,
                    const Beside& beside) {
  constexpr int kBeside = 10;
  const auto read = [&](int) {
    kernels::ReadOnce(memory.get(), memory.bytes(), sink, watch.stream());
  };
  double bytes = 0;
  const double other = watch.Period(2, [&](int) { bytes = beside(watch.stream()); });
  // Both take about as long, so that either runs beside the other all the while; alone as many, as
  // a long train may be slower than a short one.
  const int reads = std::clamp(static_cast<int>(kBeside * other / watch.Period(8, read)), 8, 400);
  const double alone = watch.Period(reads, read);
  const kernels::Event begin(cudaEventDefault), end(cudaEventDefault);
  std::vector<double> read_seconds, other_seconds;
  for (int trial = 0; trial < 5; ++trial) {
    Check(cudaEventRecord(begin, watch.other()), "cudaEventRecord");
    for (int i = 0; i < kBeside; ++i) beside(watch.other());
    Check(cudaEventRecord(end, watch.other()), "cudaEventRecord");
    read_seconds.push_back(watch.PeriodBeside(reads, read));
    watch.Finish();
    other_seconds.push_back(kernels::ElapsedSeconds(begin, end) / kBeside);
  }
  const auto all = static_cast<double>(memory.bytes());
  return {all / alone - all / Median(std::move(read_seconds)),
          bytes / Median(std::move(other_seconds))};
}

// Seconds of a gather of no bytes, with the gap before it. Small gathers tell it: in one of 32 MiB
// it is a hundredth, and came out as 1.9 to 12 us.
double GatherStart(Stopwatch& watch, const CopyEnds& ends) {
  constexpr int32_t kTokens = 32, kBlocks = 16, kLeast = 2 * kBlocks, kMost = 16 * kBlocks;
  constexpr int kLaunches = 16;
  const ScatteredGather gather(ends, kTokens, /*rows=*/false, int64_t{64} << 20);
  std::vector<double> sizes, times;
  for (int32_t pieces = kLeast; pieces <= kMost; pieces *= 2) {
    sizes.push_back(gather.piece_bytes() * pieces);
    times.push_back(watch.Period(
        kLaunches,
        [&](int i) {
          const int32_t first = i * kMost % (gather.pieces() - kMost + 1);
          gather.Run(kBlocks, pieces, watch.stream(), first);
        },
        9));
  }
  return FitLine(sizes, times).a;
}

}  // namespace

LinkRates MeasureLink(Stopwatch& watch, const CopyEnds& ends) {
  const auto rate = [&](bool down) {
    return static_cast<double>(kLarge) / CopyTime(watch, ends, kLarge, down);
  };
  return {.h2d = rate(true),
          .d2h = rate(false),
          .both_h2d = RateBesideTheOtherWay(watch, ends, true),
          .both_d2h = RateBesideTheOtherWay(watch, ends, false)};
}

void MeasureMemory(Stopwatch& watch, hardware::Profile& profile) {
  const Buffer<std::byte> memory(kRead);
  const Buffer<int> sink(1);
  std::vector<double> sizes, times;
  // Much more than the cache keeps from one read to the next.
  const int64_t least = int64_t{4} * kernels::DeviceAttribute(cudaDevAttrL2CacheSize);
  for (int64_t bytes = kRead / 16; bytes <= kRead; bytes *= 2) {
    if (bytes < least && bytes < kRead / 2) continue;
    sizes.push_back(static_cast<double>(bytes));
    times.push_back(watch.Period(
        8, [&](int) { kernels::ReadOnce(memory.get(), bytes, sink.get(), watch.stream()); }));
  }
  profile.memory.bandwidth = 1 / FitLine(sizes, times).b;
}

void MeasureCopies(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  const Copies h2d = FitCopies(watch, ends, true);
  const Copies d2h = FitCopies(watch, ends, false);
  const Line& down = h2d.line;
  const Line& up = d2h.line;
  profile.copy.h2d_piece = h2d.piece, profile.copy.d2h_piece = d2h.piece;
  profile.copy.h2d_start = down.a, profile.link.h2d = 1 / down.b;
  profile.copy.d2h_start = up.a, profile.link.d2h = 1 / up.b;
  profile.copy.spread = std::max(down.spread, up.spread);

  // Rows of 256 bytes, as many as a page and head have.
  std::vector<double> rows, times;
  for (int count = 64; count <= 16384; count *= 4) {
    rows.push_back(count);
    times.push_back(watch.Period(20, [&](int) {
      Check(cudaMemcpy2DAsync(ends.device.get(), 2048, ends.host, 2048, 256,
                              static_cast<size_t>(count), cudaMemcpyHostToDevice, watch.stream()),
            "cudaMemcpy2DAsync");
    }));
  }
  profile.copy.row_2d = std::max(FitLine(rows, times).b, 1e-12);

  const Buffer<std::byte> memory(kRead);
  const Buffer<int> sink(1);
  const Sharing copies = ReadsBeside(watch, memory, sink.get(), [&](cudaStream_t stream) {
    ends.Copy(0, kLarge, true, stream);
    return static_cast<double>(kLarge);
  });
  profile.copy.device_factor = std::max(copies.lost / copies.moved, 1.0);
}

void MeasureZeroCopy(Stopwatch& watch, const CopyEnds& ends, hardware::Profile& profile) {
  // Close to one another where they come to fill the link.
  const std::vector<double> blocks = {1, 2, 3, 4, 8, 16, 32, 64};
  std::vector<double> pieces, rates;
  double spread = 0;
  for (const int32_t tokens : {0, 1, 2, 4, 8, 16, 32, 64}) {
    // No tokens: single rows of 256 bytes, in pieces of an NHD page.
    const bool rows = tokens == 0;
    const int32_t page_tokens = rows ? 32 : tokens;
    const double piece_bytes = rows ? 256 : 512.0 * tokens;
    pieces.push_back(piece_bytes);
    for (const double count : blocks) {
      // Of 16 blocks 2 to 8 MiB, as layers recall.
      const ScatteredGather gather(ends, page_tokens, rows, static_cast<int64_t>(count) << 19);
      std::vector<double> sizes, times;
      for (const int share : {4, 2, 1}) {
        const int32_t some = gather.pieces() / share;
        sizes.push_back(gather.bytes() / share);
        times.push_back(watch.Period(
            4, [&](int) { gather.Run(static_cast<int32_t>(count), some, watch.stream()); }, 3));
      }
      const Line line = FitLine(sizes, times);
      rates.push_back(std::min(1 / line.b, profile.link.h2d));
      spread = std::max(spread, line.spread);
    }
  }
  profile.zero_copy.rate = hardware::Surface(pieces, blocks, rates);
  profile.zero_copy.start = std::max(
      GatherStart(watch, ends) - profile.handoff(Site::kKernel, Site::kKernel, How::kStream), 1e-7);
  profile.zero_copy.spread = spread;

  const Buffer<std::byte> memory(kRead);
  const Buffer<int> sink(1);
  std::vector<double> measured, loss;
  const ScatteredGather gather(ends, 32, false, int64_t{128} << 20);
  for (const int32_t count : {4, 16, 32, 64}) {
    const Sharing gathers = ReadsBeside(watch, memory, sink.get(), [&](cudaStream_t stream) {
      gather.Run(count, gather.pieces(), stream);
      return gather.bytes();
    });
    measured.push_back(count);
    loss.push_back(std::max(gathers.lost - gathers.moved, 1e6));
  }
  profile.zero_copy.memory_loss = hardware::Curve(measured, loss);
}

}  // namespace stallcast::capture
