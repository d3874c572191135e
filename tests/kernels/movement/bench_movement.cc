// Movement of KV beside the rates that bound it: the copy engine's and device memory's.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/executor/host_pool.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/held_train.h"
#include "tests/kernels/link_counters.h"
#include "tests/kernels/measure.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

/// [page_tokens][128] keys and values of `piece_bytes`, or of 64 channels where that is too many.
PagedKv PiecesOf(int64_t piece_bytes, int32_t kv_heads, __nv_bfloat16* data, bool nhd) {
  const int32_t head_dim = piece_bytes >= 512 ? 128 : 64;
  const auto tokens = static_cast<int32_t>(piece_bytes / (4 * head_dim));
  return nhd ? NhdPages(data, tokens, kv_heads, head_dim)
             : HndPages(data, tokens, kv_heads, head_dim);
}

std::vector<int32_t> Shuffled(int64_t count, std::mt19937_64& random) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}

void ZeroCopy(Stopwatch& watch) {
  constexpr int64_t kPool = int64_t{4} << 30, kMoved = 64 * kMebibyte;
  constexpr int32_t kHeads = 8;
  const Buffer<__nv_bfloat16> pool(kPool / 2, Memory::kPinned), cache(kMoved / 2);
  std::memset(static_cast<void*>(pool.get()), 1, static_cast<size_t>(kPool));
  // Beside each gather, as others may slow the link for a while.
  const auto engine = [&] {
    return kMoved / watch.Once([&] {
      Check(
          cudaMemcpyAsync(cache.get(), pool.get(), kMoved, cudaMemcpyHostToDevice, watch.stream()),
          "cudaMemcpyAsync");
    });
  };
  fmt::print(
      "\nZero-copy gather of 64 MiB from a 4 GiB pinned pool, beside one copy of 64 MiB\n"
      "{:>10} {:>6} {:>7}  {:>9} {:>10}  share of the copy\n",
      "piece", "pool", "blocks", "GB/s", "copy GB/s");
  std::mt19937_64 random(1);
  for (const int64_t piece : {256, 2048, 8192, 16384}) {
    const int64_t count = kMoved / piece;
    std::vector<int64_t> source(static_cast<size_t>(count));
    std::vector<int32_t> slot = Shuffled(count, random), head(slot.size());
    for (size_t i = 0; i < slot.size(); ++i) {
      source[i] = static_cast<int64_t>(random() % (kPool / piece));
      head[i] = slot[i] % kHeads;
      slot[i] /= kHeads;
    }
    const auto d_source = Uploaded(source);
    const auto d_slot = Uploaded(slot), d_head = Uploaded(head);
    for (const bool rows : {false, true}) {
      for (const int32_t blocks : {1, 2, 4, 8, 16}) {
        const double rate = kMoved / watch.Once([&] {
          ZeroCopyGather(pool.get(), d_source.get(), d_slot.get(), d_head.get(),
                         static_cast<int32_t>(count), nullptr,
                         PiecesOf(piece, kHeads, cache.get(), true), rows, blocks, watch.stream());
        });
        const double copied = engine();
        fmt::print("{:>10} {:>6} {:>7}  {:>9.1f} {:>10.1f}  {:>6.1f} %\n", piece,
                   rows ? "NHD" : "HND", blocks, rate * 1e-9, copied * 1e-9, 100 * rate / copied);
      }
    }
  }
}

/// What crosses the link: a read request takes 24 bytes of it (framing 4, header 16, checksum 4), a
/// completion 20 and its payload (framing 4, header 12, checksum 4).
void OnLink(Stopwatch& watch) {
  constexpr int64_t kMoved = 64 * kMebibyte, kPiece = 16384, kCount = kMoved / kPiece;
  constexpr int kCopies = 24;  // twice that is under the 4 GiB at which the counters wrap
  constexpr double kRequestBytes = 24, kCompletionBytes = 20;
  constexpr int32_t kHeads = 8;
  LinkCounters counters;
  if (!counters.Available()) {
    fmt::print("\nBytes on the link: NVML has no counters of them here\n");
    return;
  }
  const Buffer<__nv_bfloat16> pool(kMoved / 2, Memory::kPinned), cache(kMoved / 2);
  const Buffer<int> sink(1);
  std::memset(static_cast<void*>(pool.get()), 1, static_cast<size_t>(kMoved));
  std::mt19937_64 random(4);
  std::vector<int64_t> source;
  std::vector<int32_t> slot, head;
  for (const int32_t piece : Shuffled(kCount, random)) {
    source.push_back(piece);
    slot.push_back(piece / kHeads);
    head.push_back(piece % kHeads);
  }
  const auto d_source = Uploaded(source);
  const auto d_slot = Uploaded(slot), d_head = Uploaded(head);
  fmt::print(
      "\nBytes on the link, by NVML's counters, while 64 MiB are read {} times; a read request is "
      "{} bytes, a completion {} and its payload\n{:<24} {:>9} {:>14} {:>14} {:>16} {:>14}\n",
      kCopies, kRequestBytes, kCompletionBytes, "", "GB/s", "received", "so payload",
      "so requested", "link GB/s");
  const auto row = [&](const char* name, const auto& work) {
    work();
    Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
    const LinkBytes before = counters.Read();
    const double seconds = watch.Once(
        [&] {
          for (int i = 0; i < kCopies; ++i) work();
        },
        1);
    const LinkBytes crossed = counters.Read() - before;
    // Once() runs its work twice, the first time to warm up.
    const double payload = 2.0 * kCopies * kMoved;
    const double received = crossed.received / payload, sent = crossed.sent / payload;
    const double rate = kCopies * kMoved / seconds;
    fmt::print("{:<24} {:>9.1f} {:>9.4f} a B {:>10.0f} a TLP {:>10.0f} a TLP {:>14.1f}\n", name,
               rate * 1e-9, received, kCompletionBytes / (received - 1), kRequestBytes / sent,
               rate * received * 1e-9);
  };
  row("copy engine", [&] {
    Check(cudaMemcpyAsync(cache.get(), pool.get(), kMoved, cudaMemcpyHostToDevice, watch.stream()),
          "cudaMemcpyAsync");
  });
  row("gather of 16 KiB pieces", [&] {
    ZeroCopyGather(pool.get(), d_source.get(), d_slot.get(), d_head.get(), kCount, nullptr,
                   PiecesOf(kPiece, kHeads, cache.get(), true), false, 16, watch.stream());
  });
  row("loads in order", [&] { ReadOnce(pool.get(), kMoved, sink.get(), watch.stream()); });
}

void OnDevice(Stopwatch& watch) {
  constexpr int32_t kHeads = 8;
  constexpr int64_t kPiece = 16384, kSpan = 1024 * kMebibyte;
  const Buffer<__nv_bfloat16> packed(kSpan / 2), cache(kSpan / 2);
  Check(cudaMemset(packed.get(), 1, kSpan), "cudaMemset");
  const double copy = 2 * kSpan / watch.Once([&] {
    Check(
        cudaMemcpyAsync(cache.get(), packed.get(), kSpan, cudaMemcpyDeviceToDevice, watch.stream()),
        "cudaMemcpyAsync");
  });
  fmt::print(
      "\nMoving 16 KiB pieces in device memory; cudaMemcpyAsync of 1 GiB reads and writes "
      "{:.0f} GB/s\n{:<16} {:>7} {:>10} {:>10}  share of the copy\n",
      copy * 1e-9, "kernel", "pieces", "us", "GB/s");
  std::mt19937_64 random(2);
  for (const int64_t count : {int64_t{32}, int64_t{256}, int64_t{2048}, kSpan / kPiece}) {
    std::vector<int32_t> slot = Shuffled(kSpan / kPiece, random), head(slot.size());
    for (size_t i = 0; i < slot.size(); ++i) {
      head[i] = slot[i] % kHeads;
      slot[i] /= kHeads;
    }
    const auto pages = Uploaded(Shuffled(kSpan / kPiece / kHeads, random));
    const auto d_slot = Uploaded(slot), d_head = Uploaded(head);
    // Each launch of a graph moves other pieces, so that none is in L2 from the launch before.
    const auto launches = static_cast<int>(std::min<int64_t>(64, kSpan / kPiece / count));
    const PagedKv nhd = PiecesOf(kPiece, kHeads, cache.get(), true);
    const auto scatter = [&](int i) {
      const int64_t first = i * count;
      ScatterPages(packed.get() + first * kPiece / 2, d_slot.get() + first, d_head.get() + first,
                   static_cast<int32_t>(count), nullptr, nhd, watch.stream());
    };
    const auto transpose = [&](int i) {
      const int64_t first = i * count;
      TransposePages(nhd, pages.get() + first / kHeads, static_cast<int32_t>(count / kHeads),
                     packed.get() + first * kPiece / 2, watch.stream());
    };
    const auto print = [&](const char* kernel, double seconds) {
      const double rate = 2 * count * kPiece / seconds;
      fmt::print("{:<16} {:>7} {:>10.2f} {:>10.0f}  {:>6.1f} %\n", kernel, count, seconds * 1e6,
                 rate * 1e-9, 100 * rate / copy);
    };
    print("ScatterPages", watch.InGraph(scatter, launches));
    print("TransposePages", watch.InGraph(transpose, launches));
  }
}

void OnHost(Stopwatch& watch) {
  constexpr int64_t kPool = int64_t{2} << 30, kMoved = 64 * kMebibyte;
  const Buffer<char> pool(kPool, Memory::kPinned), out(kMoved, Memory::kPinned);
  std::memset(pool.get(), 1, static_cast<size_t>(kPool));
  std::memset(out.get(), 1, static_cast<size_t>(kMoved));
  fmt::print("\nHost gather of 64 MiB into pinned memory\n{:>10} {:>8} {:>9}\n", "piece", "threads",
             "GB/s");
  std::mt19937_64 random(3);
  for (const int64_t piece : {256, 8192, 16384}) {
    std::vector<int64_t> source(static_cast<size_t>(kMoved / piece));
    for (int64_t& id : source) id = static_cast<int64_t>(random() % (kPool / piece));
    for (const int threads : {1, 2, 4, 8, 16}) {
      const double rate = kMoved / watch.Once([&] {
        HostGather(pool.get(), source.data(), kMoved / piece, {piece}, out.get(), threads);
      });
      fmt::print("{:>10} {:>8} {:>9.1f}\n", piece, threads, rate * 1e-9);
    }
  }
}

// As the layers of a step recall, one after the other from pools of their own: the more memory they
// have together, the fewer of its addresses the processor has translated before.
void OnHostInTurn() {
  constexpr int64_t kLayers = 32, kMoved = 7 * kMebibyte, kLargest = int64_t{16} << 30;
  constexpr int kGathers = 96;
  using Clock = std::chrono::steady_clock;
  HostPool memory;
  const std::byte* const pool = memory.Get(kLargest);
  const Buffer<char> out(kMoved, Memory::kPinned);
  std::memset(out.get(), 1, static_cast<size_t>(kMoved));
  fmt::print("\nHost gathers of 7 MiB by 32 layers in turn, GB/s\n{:>10} {:>8}", "piece",
             "threads");
  for (int64_t all = int64_t{1} << 30; all <= kLargest; all *= 4) {
    fmt::print(" {:>5} GiB", all >> 30);
  }
  fmt::print("\n");
  std::mt19937_64 random(4);
  for (const int64_t piece : {256, 8192, 16384}) {
    for (const int threads : {1, 4}) {
      fmt::print("{:>10} {:>8}", piece, threads);
      for (int64_t all = int64_t{1} << 30; all <= kLargest; all *= 4) {
        const int64_t layer = all / kLayers;
        std::vector<double> seconds;
        for (int gather = 0; gather < kGathers; ++gather) {
          std::vector<int64_t> source(static_cast<size_t>(kMoved / piece));
          for (int64_t& id : source) {
            id = static_cast<int64_t>(random() % static_cast<uint64_t>(layer / piece));
          }
          const auto begin = Clock::now();
          HostGather(pool + gather % kLayers * layer, source.data(), kMoved / piece, {piece},
                     out.get(), threads);
          seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
        }
        fmt::print(" {:>9.1f}", kMoved / Median(std::move(seconds)) * 1e-9);
      }
      fmt::print("\n");
    }
  }
}

// One copy a page, as FreeKV's and ArkVale's layers recall: 40 ascending pages of each of 8 heads
// of a layer into its cache of 8 MiB, layers in turn. Beside it the same number of copies that lie
// far from one another at both ends.
void PagesByCopyEngine(Stopwatch& watch) {
  constexpr int64_t kPage = 16384, kLayers = 32, kLargest = int64_t{16} << 30;
  constexpr int64_t kCache = 8 * kMebibyte, kFar = 7919;
  constexpr int kHeads = 8, kPagesAHead = 40, kCopies = kHeads * kPagesAHead, kTrials = 64;
  HostPool memory;
  const std::byte* const pool = memory.Get(kLargest);
  const Buffer<std::byte> device(int64_t{1} << 30);
  HeldTrain train;
  fmt::print("\nPages of 16 KiB, one copy each, us\n{:>8} {:>16} {:>22}\n", "pool",
             "as layers recall", "far from one another");
  std::mt19937_64 random(5);
  const auto copy = [&](int64_t from, int64_t to) {
    Check(cudaMemcpyAsync(device.get() + to, pool + from, kPage, cudaMemcpyHostToDevice,
                          watch.stream()),
          "cudaMemcpyAsync");
  };
  for (int64_t all = int64_t{1} << 30; all <= kLargest; all *= 4) {
    const int64_t layer = all / kLayers, pages = layer / kPage / kHeads;
    std::vector<double> near, far;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<int64_t> chosen;
      for (int head = 0; head < kHeads; ++head) {
        for (int i = 0; i < kPagesAHead; ++i) {
          chosen.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(pages)));
        }
        std::sort(chosen.end() - kPagesAHead, chosen.end());
      }
      const int64_t at = trial % kLayers;
      near.push_back(train.Seconds(watch.stream(), kCopies, [&](int i) {
        const int64_t head = i / kPagesAHead, page = chosen[static_cast<size_t>(i)];
        copy(at * layer + (page * kHeads + head) * kPage, at * kCache + i * kPage);
      }));
      far.push_back(train.Seconds(watch.stream(), kCopies, [&](int i) {
        const int64_t place = (int64_t{trial} * kCopies + i) * kFar;
        copy(place % (all / kPage) * kPage, place % (device.bytes() / kPage) * kPage);
      }));
    }
    fmt::print("{:>4} GiB {:>16.3f} {:>22.3f}\n", all >> 30,
               Median(std::move(near)) / kCopies * 1e6, Median(std::move(far)) / kCopies * 1e6);
  }
}

/// A layer's recall as FreeKV makes it, and what of it makes a page slower than in one train: each
/// of eight heads' 13 pages go by a copy each to a buffer, and by a kernel behind them to the
/// cache, on one stream or on two by turns, alone or while a third reads, as products do, but
/// leaves room for those kernels.
void HeadsByTurns(Stopwatch& watch) {
  constexpr int kLayers = 32, kHeads = 8, kPages = 13, kCopies = kHeads * kPages;
  constexpr int kTurns = 3;  // the first warms up
  constexpr int64_t kPage = 16384, kLayer = 128 * kMebibyte, kFar = 7919;
  constexpr int64_t kRead = 400 * kMebibyte;
  constexpr int kReadBlocks = 198;        // some 90 % of the memory's rate
  constexpr int64_t kReadTime = 700'000;  // ns; longer than a recall
  HostPool memory;
  const std::byte* const pool = memory.Get(kLayers * kLayer);
  const Buffer<std::byte> device(int64_t{1} << 30), weights(kRead);
  const Buffer<__nv_bfloat16> cache(kLayer / 2);
  const Buffer<int> sink(1);
  const Buffer<uint64_t> read(1);
  std::vector<int32_t> numbers(kPages);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto slots = Uploaded(numbers);
  std::vector<Buffer<int32_t>> heads;
  for (int head = 0; head < kHeads; ++head) {
    heads.push_back(Uploaded(std::vector<int32_t>(kPages, head)));
  }
  const Stream other, third;
  const Event forked(cudaEventDisableTiming), joined(cudaEventDisableTiming);
  const auto behind = [](cudaEvent_t event, cudaStream_t before, cudaStream_t after) {
    Check(cudaEventRecord(event, before), "cudaEventRecord");
    Check(cudaStreamWaitEvent(after, event, 0), "cudaStreamWaitEvent");
  };
  HeldTrain train;
  std::mt19937_64 random(8);
  enum class Source { kKnown, kNew, kApart };
  int64_t far = 0;
  const auto recall = [&](int layer, Source source, bool two, bool beside) {
    behind(forked, watch.stream(), other);
    if (beside) {
      behind(joined, watch.stream(), third);
      ReadFor(weights.get(), kRead, kReadBlocks, kReadTime, read.get(), sink.get(), third);
    }
    for (int head = 0; head < kHeads; ++head) {
      const cudaStream_t stream = two && head % 2 == 1 ? cudaStream_t{other} : watch.stream();
      const int64_t buffer = (layer * 2 + head % 2) * int64_t{kPages} * kPage;
      for (int i = 0; i < kPages; ++i) {
        const int64_t page = source == Source::kKnown
                                 ? i * 60
                                 : static_cast<int64_t>(random() % (kLayer / kPage / kHeads));
        int64_t from = layer * kLayer + (page * kHeads + head) * kPage, to = buffer + i * kPage;
        if (source == Source::kApart) {
          const int64_t place = ++far * kFar;
          from = place % (kLayers * kLayer / kPage) * kPage;
          to = place % (device.bytes() / kPage) * kPage;
        }
        Check(
            cudaMemcpyAsync(device.get() + to, pool + from, kPage, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
      }
      ScatterPages(reinterpret_cast<const __nv_bfloat16*>(device.get() + buffer), slots.get(),
                   heads[static_cast<size_t>(head)].get(), kPages, nullptr,
                   NhdPages(cache.get(), 32, kHeads, 128), stream);
    }
    behind(forked, other, watch.stream());
  };
  fmt::print("\nA layer's recall of 8 x 13 pages of 16 KiB, one copy each, us a page\n{:<34}", "");
  for (const char* source : {"the same", "new", "far apart"}) fmt::print(" {:>10}", source);
  for (const bool two : {false, true}) {
    for (const bool beside : {false, true}) {
      fmt::print("\n{:<34}", fmt::format("{}{}", two ? "two streams by turns" : "one stream",
                                         beside ? ", beside reads" : ""));
      for (const Source source : {Source::kKnown, Source::kNew, Source::kApart}) {
        recall(0, source, two, beside);  // loads it
        std::vector<double> seconds;
        for (int i = 0; i < kTurns * kLayers; ++i) {
          const double took = train.Seconds(watch.stream(), 1,
                                            [&](int) { recall(i % kLayers, source, two, beside); });
          Check(cudaStreamSynchronize(third), "cudaStreamSynchronize");
          if (i >= kLayers) seconds.push_back(took);
        }
        fmt::print(" {:>10.3f}", Median(std::move(seconds)) / kCopies * 1e6);
      }
    }
  }
  fmt::print("\n");
}

/// Zero-copy gathers as FreeKV and LouisKV launch them, by their blocks: 32 layers of 128 MiB in
/// turn, each time what none has brought before.
void RecallsInTurn(Stopwatch& watch) {
  constexpr int kLayers = 32;
  constexpr int64_t kLayer = 128 * kMebibyte;
  constexpr int32_t kHeads = 8, kDim = 128, kTokens = 32, kUnit = 16;
  constexpr int32_t kLayerPages = kLayer / (kHeads * kTokens * kDim * 4);
  constexpr int32_t kLayerTokens = kLayerPages * kTokens;
  constexpr std::array kBlocks = {2, 4, 8, 16, 32};
  HostPool memory;
  auto* const pool = reinterpret_cast<__nv_bfloat16*>(memory.Get(kLayers * kLayer));
  const auto of_layer = [&](int layer) { return pool + layer * (kLayer / 2); };
  const Buffer<__nv_bfloat16> cache(kLayer / 2);
  HeldTrain train;
  std::mt19937_64 random(6);
  fmt::print("\nZero-copy gathers of 32 layers in turn, us by blocks (GB/s)\n{:<42}", "");
  for (const int blocks : kBlocks) fmt::print(" {:>15}", blocks);
  const auto row = [&](const std::string& what, double bytes, const auto& gather) {
    fmt::print("\n{:<42}", what);
    for (const int blocks : kBlocks) {
      gather(0, blocks);  // loads it
      const double seconds = train.Seconds(watch.stream(), kLayers, [&](int layer) {
        gather(layer, blocks);
      }) / kLayers;
      fmt::print(" {:>7.1f} ({:>5.1f})", seconds * 1e6, bytes / seconds * 1e-9);
    }
  };
  for (const int32_t pages : {4, 40}) {
    const int64_t lists = int64_t{kLayers} * std::ssize(kBlocks);
    std::vector<int32_t> unit, slot;
    for (int64_t list = 0; list < lists * kHeads; ++list) {
      for (int32_t i = 0; i < pages; ++i) {
        unit.push_back(static_cast<int32_t>(random() % kLayerPages));
        slot.push_back(i);
      }
      std::sort(unit.end() - pages, unit.end());
    }
    const auto units = Uploaded(unit), slots = Uploaded(slot);
    const auto count = Uploaded(std::vector<int32_t>(kHeads, pages));
    int64_t list = 0;
    row(fmt::format("{} x {} pages that heads miss", kHeads, pages), kHeads * pages * 16384.0,
        [&](int layer, int blocks) {
          const int64_t at = list++ % lists * kHeads * pages;
          ZeroCopyMissed(of_layer(layer),
                         {.unit = units.get() + at,
                          .slot = slots.get() + at,
                          .count = count.get(),
                          .rows = kHeads,
                          .k = pages},
                         {.slots_a_sequence = pages, .pool_pages = kLayerPages},
                         NhdPages(cache.get(), kTokens, kHeads, kDim), false, blocks,
                         watch.stream());
        });
  }
  for (const int32_t tokens : {160, 1600}) {
    const int64_t lists = int64_t{kLayers} * std::ssize(kBlocks);
    std::vector<int64_t> source;
    for (int64_t list = 0; list < lists; ++list) {
      for (int32_t head = 0; head < kHeads; ++head) {
        for (int32_t i = 0; i < tokens; i += kUnit) {
          const auto unit = static_cast<int64_t>(random() % (kLayerTokens / kUnit));
          for (int32_t j = 0; j < kUnit; ++j) source.push_back((unit * kUnit + j) * kHeads + head);
        }
      }
    }
    const auto sources = Uploaded(source);
    const auto count = Uploaded(std::vector<int32_t>(kHeads, tokens));
    int64_t list = 0;
    row(fmt::format("{} x {} tokens of units of {}", kHeads, tokens, kUnit),
        kHeads * tokens * 512.0, [&](int layer, int blocks) {
          ZeroCopyTokens(HndPages(of_layer(layer), 1, kHeads, kDim),
                         {.source = sources.get() + list++ % lists * kHeads * tokens,
                          .count = count.get(),
                          .rows = kHeads,
                          .k = tokens,
                          .heads = kHeads,
                          .slots_a_sequence = tokens},
                         NhdPages(cache.get(), 1, kHeads, kDim), blocks, watch.stream());
        });
  }
  fmt::print("\n");
}

void Run() {
  Stopwatch watch;
  ZeroCopy(watch);
  RecallsInTurn(watch);
  OnLink(watch);
  OnDevice(watch);
  OnHost(watch);
  OnHostInTurn();
  PagesByCopyEngine(watch);
  HeadsByTurns(watch);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_movement", stallcast::kernels::Run); }
