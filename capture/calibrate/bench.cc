#include "capture/calibrate/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <variant>

#include "capture/calibrate/host/measure_gather.h"
#include "capture/calibrate/kernels/kernel_probe.h"
#include "capture/calibrate/kernels/measure_batches.h"
#include "capture/calibrate/kernels/measure_kernels.h"
#include "capture/calibrate/transfers/measure_links.h"
#include "capture/calibrate/transfers/measure_pages.h"
#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

struct Item {
  std::string shape;
  KernelProbe probe;
};

std::string Bytes(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:g} MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:g} KiB", bytes / (1 << 10));
  return fmt::format("{:g} B", bytes);
}
std::string Tokens(int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}K", tokens / 1024) : fmt::format("{}", tokens);
}

void AddExperts(const llm::Model& m, int64_t rows, std::vector<Item>& items) {
  const llm::Experts& e = *m.experts;
  const int64_t pairs = rows * e.active;
  for (const bool sums : {false, true}) {
    KernelProbe probe = GroupedGemmProbe(m, rows, sums);
    const auto& work = std::get<plan::GroupedGemm>(probe.work);
    items.push_back(
        {fmt::format("{} rows of {:.1f} experts, {} x {}", pairs, work.matrices, work.n, work.k),
         std::move(probe)});
  }
  items.push_back({fmt::format("{} rows, {} of {}", rows, e.active, e.count), RouteProbe(rows, e)});
  items.push_back(
      {fmt::format("{} x {}", pairs, e.intermediate), SwiGluProbe(pairs, e.intermediate)});
}

void AddDecoder(const llm::Model& m, int64_t rows, std::vector<Item>& items) {
  const bool prompt = rows >= 1024;
  const llm::LayerWeights w = llm::WeightsOf(m, m.KindOf(m.layers - 1));
  const llm::Matrix head{m.vocabulary, m.hidden};
  for (const llm::Matrix* of : {&w.input, &w.output, &w.router, &w.gate_up, &w.down, &head}) {
    if (of->n == 0 || (prompt && of == &head)) continue;  // of the last token alone
    items.push_back(
        {fmt::format("{} x {} x {}", rows, of->n, of->k), GemmProbe({rows, of->n, of->k})});
    items.back().probe.sustained = prompt;
  }
  items.push_back({fmt::format("{} x {}", rows, m.hidden), NormProbe(rows, m.hidden)});
  for (const bool bounds : {false, true}) {
    if (bounds && prompt) continue;
    items.push_back({fmt::format("{} x {} + {} heads{}", rows, m.query_heads, m.kv_heads,
                                 bounds ? ", page bounds" : ""),
                     RopeProbe(rows, m.query_heads, m.kv_heads, m.head_dim, bounds)});
  }
  if (w.down.n > 0) {
    items.push_back({fmt::format("{} x {}", rows, w.down.k), SwiGluProbe(rows, w.down.k)});
  }
  if (prompt) return;
  if (w.router.n > 0) AddExperts(m, rows, items);
  items.push_back({fmt::format("{} x {}", rows, m.vocabulary), SampleProbe(rows, m.vocabulary)});
}

void AddAttention(const llm::Model& m, std::vector<Item>& items) {
  for (const int32_t batch : {1, 4}) {
    const int32_t rows = batch * m.kv_heads;
    const std::string heads = fmt::format("{} x {} + {} heads", batch, m.query_heads, m.kv_heads);
    for (const int64_t tokens : {2048, 8192, 32768, 131072}) {
      items.push_back({fmt::format("{} tokens, {}", Tokens(tokens), heads),
                       DecodeAttentionProbe(tokens, rows, m.group(), m.head_dim)});
    }
    items.push_back({fmt::format("2K of 32K tokens in pages of 32, {}", heads),
                     DecodeAttentionProbe(2048, rows, m.group(), m.head_dim, 32768)});
  }
  for (const int64_t tokens : {8192, 32768}) {
    items.push_back(
        {fmt::format("{} tokens, {} + {} heads", Tokens(tokens), m.query_heads, m.kv_heads),
         PrefillAttentionProbe(tokens, m.kv_heads, m.group(), m.head_dim)});
  }
}

// Methods of pages of 32 tokens that choose 64 of them.
void AddSelection(const llm::Model& m, std::vector<Item>& items) {
  constexpr int32_t kPage = 32, kChosen = 64;
  for (const int32_t batch : {1, 4}) {
    const int32_t rows = batch * m.kv_heads;
    items.push_back({fmt::format("{} queries", rows * m.group()),
                     SimilarityProbe(rows, m.group(), m.head_dim)});
    for (const int32_t pages : {256, 1024, 4096}) {
      const std::string of = fmt::format("{} heads x {} pages", rows, pages);
      items.push_back({of + " of 32 tokens", SummarizeProbe(rows, pages, kPage, 2, m.head_dim)});
      items.push_back({of + ", group", ScoreProbe(pages, rows, m.group(), 2, m.head_dim,
                                                  plan::Score::Pool::kGroup)});
      items.push_back({of + ", softmax", ScoreProbe(pages, rows, m.group(), 2, m.head_dim,
                                                    plan::Score::Pool::kSoftmax)});
      items.push_back(
          {fmt::format("{} of {} x {}", kChosen, rows, pages), TopKProbe(rows, pages, kChosen)});
    }
    items.push_back({fmt::format("{} x {} into {} slots", rows, kChosen, kChosen),
                     AssignSlotsProbe(rows, kChosen, kChosen)});
  }
  for (const int32_t pieces : {8, 64, 512}) {
    items.push_back({fmt::format("{} x {}", pieces, Bytes(2.0 * kPage * m.head_dim * 2)),
                     LayoutProbe(pieces, kPage, m.head_dim)});
  }
}

std::vector<Item> Items(const llm::Model& model) {
  std::vector<Item> items;
  for (const int64_t rows : {1, 4, 8, 8192}) AddDecoder(model, rows, items);
  AddAttention(model, items);
  AddSelection(model, items);
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return plan::KindOf(a.probe.work) < plan::KindOf(b.probe.work);
  });
  return items;
}

constexpr const char* kCopies = "copy";
constexpr const char* kBatches = "batched_copy";
constexpr const char* kZeroCopy = "zero_copy_gather";
constexpr const char* kHostGather = "host_gather";

// A transfer of a piece of `bytes` against the rate that limits it.
BenchRow Transfer(const char* kernel, std::string shape, double bytes, double seconds,
                  std::string limit, double rate) {
  return {kernel, std::move(shape), seconds, bytes, 0, std::move(limit), bytes / rate / seconds};
}

void AddCopies(Stopwatch& watch, hardware::Profile& profile, std::vector<BenchRow>& rows,
               const std::function<bool(const char*)>& wanted) {
  const CopyEnds ends;
  const LayerPools pools(LayerPools::kOfLongContexts);
  LayerPages pages(pools, ends);
  MeasureCopies(watch, ends, profile);
  SetLink(std::array{MeasureLink(watch, ends)}, profile);
  Pages page_times(pages);
  page_times.Measure(watch);
  page_times.Set(profile);
  if (wanted(kCopies)) {
    for (const bool down : {true, false}) {
      const hardware::Curve& piece = down ? profile.copy.h2d_piece : profile.copy.d2h_piece;
      const double rate = down ? profile.link.h2d : profile.link.d2h;
      const std::string link = down ? "link to device" : "link to host";
      for (const double bytes : piece.x()) {
        rows.push_back(Transfer(kCopies, Bytes(bytes) + (down ? " to device" : " to host"), bytes,
                                piece.At(bytes) + bytes / rate, link, rate));
      }
      if (down) {
        const double page = 16384, alone = piece.At(page) + page / rate;
        for (const double pool : profile.copy.translation.x()) {
          rows.push_back(Transfer(kCopies,
                                  fmt::format("{} anywhere in {}", Bytes(page), Bytes(pool)), page,
                                  alone + profile.copy.translation.At(pool), link, rate));
        }
      }
      const double both = down ? profile.link.both_h2d : profile.link.both_d2h;
      rows.push_back(Transfer(
          kCopies,
          fmt::format("{} to {}, both ways at once", Bytes(1 << 28), down ? "device" : "host"),
          1 << 28, (1 << 28) / both, link, rate));
    }
  }
  if (!wanted(kBatches)) return;
  Batches batches;
  batches.Measure(watch, pages);
  batches.Set(profile);
  for (const double bytes : profile.batch.host_piece.x()) {
    const double seconds = profile.batch.host_piece.At(bytes) +
                           profile.batch.engine_piece.At(bytes) + bytes / profile.link.h2d;
    rows.push_back(Transfer(kBatches, Bytes(bytes) + " a piece", bytes, seconds, "link to device",
                            profile.link.h2d));
  }
}

void AddZeroCopy(Stopwatch& watch, hardware::Profile& profile, std::vector<BenchRow>& rows) {
  MeasureZeroCopy(watch, CopyEnds(), profile);
  for (const double bytes : profile.zero_copy.rate.rows()) {
    for (const double blocks : {4, 16}) {
      rows.push_back(Transfer(kZeroCopy, fmt::format("{} a piece, {} blocks", Bytes(bytes), blocks),
                              bytes, bytes / profile.zero_copy.rate.At(bytes, blocks),
                              "link to device", profile.link.h2d));
    }
  }
}

}  // namespace

std::vector<BenchRow> Bench(const BenchOptions& options) {
  const auto wanted = [&](std::string_view name) {
    return name.find(options.filter) != std::string_view::npos;
  };
  const auto progress = [&](const std::string& what, double share) {
    if (options.progress) options.progress(what, share);
  };
  std::vector<Item> items = Items(options.model);
  std::set<std::string, std::less<>> names{kCopies, kBatches, kZeroCopy, kHostGather};
  for (const Item& item : items) names.emplace(plan::KindName(item.probe.work));
  if (std::none_of(names.begin(), names.end(), wanted)) {
    throw UsageError(fmt::format("no kernel's name has \"{}\" in it", options.filter), "--filter",
                     fmt::format("choose of: {}", fmt::join(names, ", ")));
  }
  std::erase_if(items, [&](const Item& item) { return !wanted(plan::KindName(item.probe.work)); });

  Stopwatch watch;
  hardware::Profile profile;
  progress("device memory", 0);
  MeasureMemory(watch, profile);
  // Large enough that its edges do not count, and so short that the clock stays up.
  constexpr int64_t kLarge = 8192;
  const KernelProbe product = GemmProbe({kLarge, kLarge, kLarge});
  const double tensor =
      items.empty() ? 1 : plan::Count(product.work).flops / TimeKernel(watch, product, 0).seconds;

  std::vector<BenchRow> rows;
  for (size_t i = 0; i < items.size(); ++i) {
    const plan::Work& work = items[i].probe.work;
    const std::string name(plan::KindName(work));
    progress(name, 0.05 + 0.75 * static_cast<double>(i) / static_cast<double>(items.size()));
    const plan::WorkCounts counts = plan::Count(work);
    BenchRow row{name,
                 items[i].shape,
                 TimeKernel(watch, items[i].probe, 0).seconds,
                 static_cast<double>(counts.device()),
                 counts.flops,
                 "",
                 0};
    const double memory = row.bytes / profile.memory.bandwidth, arithmetic = row.flops / tensor;
    row.limit = memory > arithmetic ? "memory" : "tensor";
    row.share = std::max(memory, arithmetic) / row.seconds;
    rows.push_back(row);
  }
  if (wanted(kCopies) || wanted(kBatches) || wanted(kZeroCopy)) {
    progress("copies", 0.8);
    AddCopies(watch, profile, rows, wanted);
  }
  if (wanted(kZeroCopy)) {
    progress("zero-copy reads", 0.85);
    AddZeroCopy(watch, profile, rows);
  }
  if (wanted(kHostGather)) {
    progress("host", 0.95);
    const LayerPools pools(LayerPools::kLayers * LayerPages::kPool);
    Gathers gathers(pools);
    gathers.Measure();
    gathers.Set(profile);
    // A layer's recall at batch 4, in pages and in rows: each byte is read and written.
    constexpr double kRecalled = 16 << 20;
    for (const double piece : {16384, 256}) {
      for (const double threads : profile.host.gather_rate.x()) {
        rows.push_back(Transfer(
            kHostGather,
            fmt::format("{} x {} a piece, {} threads", kRecalled / piece, Bytes(piece), threads),
            kRecalled,
            profile.host.gather_start.At(threads) +
                kRecalled / piece * profile.host.gather_row.At(threads) +
                kRecalled / profile.host.gather_rate.At(threads),
            "host memory", profile.host.memory / 2));
      }
    }
  }
  return rows;
}

}  // namespace stallcast::capture
