// Probes of ParisKV's index and retrieval, and of WG-KV's gates and sparse prefill.
#include <algorithm>
#include <memory>
#include <random>

#include "capture/calibrate/kernels/cold_memory.h"
#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/methods/pariskv.h"
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/fill.h"
#include "models/methods/pariskv/params.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

constexpr int32_t kDim = 128, kSubspaces = 16, kGroup = 4, kPage = 16, kWindow = 256;

template <class T>
T* As(Bf16* memory) {
  return reinterpret_cast<T*>(memory);
}

// An index of random keys, and what the stages before one under test have made of random queries.
// Copies of the index are cold in turn, as each layer has its own; what a stage hands the next is
// still in the cache.
class Retrieval {
 public:
  Retrieval(int32_t rows, int32_t share, int32_t tokens)
      : rows_(rows),
        share_(share),
        tokens_(tokens),
        candidates_(static_cast<int32_t>(methods::Candidates({}, tokens))),
        book_(kDim, kSubspaces, true, 1),
        tables_(book_),
        limits_(methods::TierLimits(methods::SharesOf({}, tokens).rho, tokens)),
        index_(Places() * (kSubspaces + kDim / 2 + 2 * kSubspaces) / 2 + CountWords() * 2),
        query_(int64_t{rows} * share_ * kGroup * kDim),
        rotated_(int64_t{rows} * kDim),
        estimates_(int64_t{rows} * candidates_),
        bonuses_(int64_t{rows} * kSubspaces * book_.clusters),
        scores_(int64_t{rows} * kernels::ScoreStride(tokens)),
        histograms_(kernels::HistogramSize(rows, tokens)),
        chosen_(int64_t{rows} * candidates_) {
    Ask(nullptr);
    {
      Buffer<Bf16> keys(Places() * kDim);
      kernels::FillRandom(keys.get(), keys.size(), 1, 8, nullptr);
      kernels::Check(cudaMemset(Index(0).counts, 0, static_cast<size_t>(CountWords()) * 4),
                     "cudaMemset");
      kernels::EncodeKeys(tables_, {keys.get(), int64_t{tokens} * kDim, kDim, 0}, rows / share,
                          tokens, 0, Index(0), nullptr);
      for (int copy = 1; index_.At(copy) != index_.At(0); ++copy) {
        kernels::Check(cudaMemcpy(index_.At(copy), index_.At(0), static_cast<size_t>(PartBytes()),
                                  cudaMemcpyDeviceToDevice),
                       "cudaMemcpy");
      }
    }
    Table(0, nullptr), Score(0, nullptr), Choose(nullptr), Rerank(0, nullptr);
    kernels::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void Encode(const kernels::TokenView& keys, int i, cudaStream_t stream) const {
    kernels::EncodeKeys(tables_, keys, rows_ / share_, tokens_, 0, Index(i), stream);
  }
  /// Writes the queries.
  void Ask(cudaStream_t stream) const {
    kernels::FillRandom(query_.get(), query_.size(), 1, 7, stream);
  }
  void Table(int i, cudaStream_t stream) const {
    kernels::CollisionTable(tables_, query_.get(), rows_, share_ == 1 ? kGroup : 1, share_,
                            Index(i), limits_, rotated_.get(), bonuses_.get(), stream);
  }
  void Score(int i, cudaStream_t stream) const {
    kernels::CollisionScores(tables_, bonuses_.get(), Index(i), rows_, share_, tokens_,
                             scores_.get(), histograms_.get(), stream);
  }
  void Choose(cudaStream_t stream) const {
    kernels::BucketTopK(scores_.get(), histograms_.get(), rows_, tokens_, candidates_,
                        chosen_.get(), stream);
  }
  void Rerank(int i, cudaStream_t stream) const {
    kernels::Rerank(tables_, rotated_.get(), Index(i), chosen_.get(), rows_, share_, candidates_,
                    estimates_.get(), stream);
  }
  int32_t candidates() const { return candidates_; }

 private:
  int64_t Places() const { return int64_t{rows_} / share_ * tokens_; }
  int64_t CountWords() const { return int64_t{rows_} / share_ * kSubspaces * book_.clusters; }
  int64_t PartBytes() const {
    return Places() * (kSubspaces + kDim / 2 + 2 * kSubspaces) + CountWords() * 4;
  }
  kernels::KeyIndex Index(int i) const {
    auto* codes = As<uint8_t>(index_.At(i));
    uint8_t* ids = codes + Places() * kDim / 2;
    auto* weights = reinterpret_cast<Bf16*>(ids + Places() * kSubspaces);
    return {ids, codes, weights, reinterpret_cast<int32_t*>(weights + Places() * kSubspaces),
            tokens_};
  }

  int32_t rows_, share_, tokens_, candidates_;
  methods::CodeBook book_;
  kernels::CodeTables tables_;
  std::array<int32_t, methods::kTiers> limits_;
  ColdMemory index_;
  Buffer<Bf16> query_;
  Buffer<float> rotated_, estimates_;
  Buffer<uint8_t> bonuses_, scores_;
  Buffer<int32_t> histograms_, chosen_;
};

void AddRetrieval(int32_t rows, int32_t share, int32_t tokens, std::vector<KernelProbe>& probes) {
  using Stage = void (*)(const Retrieval&, int, cudaStream_t);
  // In a decode step each stage runs once a layer, behind the one before it.
  const auto probe = [&](const plan::Work& work, Stage stage, Stage before) {
    probes.push_back({work,
                      [=] {
                        auto data = std::make_shared<Retrieval>(rows, share, tokens);
                        const auto launch = [data](Stage of) {
                          return [=](int i, cudaStream_t stream) { of(*data, i, stream); };
                        };
                        return Prepared(launch(stage), launch(before));
                      },
                      /*after_stream=*/true});
  };
  const Stage ask = [](const Retrieval& r, int, cudaStream_t s) { r.Ask(s); };
  const Stage table = [](const Retrieval& r, int i, cudaStream_t s) { r.Table(i, s); };
  const Stage score = [](const Retrieval& r, int i, cudaStream_t s) { r.Score(i, s); };
  const Stage choose = [](const Retrieval& r, int, cudaStream_t s) { r.Choose(s); };
  const Stage rerank = [](const Retrieval& r, int i, cudaStream_t s) { r.Rerank(i, s); };
  const auto candidates = methods::Candidates({}, tokens);
  probe(plan::CollisionTable{rows, share == 1 ? kGroup : 1, kDim, kSubspaces}, table, ask);
  probe(plan::CollisionScore{rows, rows / share, tokens, kSubspaces}, score, table);
  probe(plan::BucketTopK{rows, tokens, candidates}, choose, score);
  probe(plan::Rerank{rows, candidates, kDim, kSubspaces}, rerank, choose);
}

KernelProbe EncodeProbe(int32_t rows, int32_t tokens) {
  return {plan::KeyEncode{int64_t{rows} * tokens, kDim, kSubspaces}, [=] {
            auto data = std::make_shared<Retrieval>(rows, 1, tokens);
            auto keys = std::make_shared<ColdMemory>(int64_t{rows} * tokens * kDim);
            return [=](int i, cudaStream_t stream) {
              data->Encode({keys->At(i), int64_t{tokens} * kDim, kDim, 0}, i, stream);
            };
          }};
}

KernelProbe GateProbe(int32_t tokens, int32_t heads) {
  constexpr int32_t kHidden = 4 * kDim;
  return {plan::GateMlp{tokens, heads, kDim, kHidden}, [=] {
            const int64_t w1 = int64_t{heads} * kHidden * 2 * kDim, each = int64_t{heads} * kHidden;
            // As small as trained ones: GELU takes other paths for large numbers.
            auto weights = std::make_shared<ColdMemory>(w1 + 2 * each + heads, 0.05F);
            auto keys = std::make_shared<ColdMemory>(int64_t{2} * tokens * heads * kDim);
            auto scores = Zeroed<float>(int64_t{tokens} * heads);
            kernels::GateWeights shape;
            shape.kv_heads = heads, shape.head_dim = kDim, shape.hidden = kHidden;
            auto workspace = Zeroed<float>(kernels::GateMlpWorkspace(shape));
            return [=](int i, cudaStream_t stream) {
              kernels::GateWeights now = shape;
              now.w1 = weights->At(i);
              now.b1 = now.w1 + w1, now.w2 = now.b1 + each, now.b2 = now.w2 + each;
              const int64_t row = int64_t{tokens} * kDim;
              Bf16* before = keys->At(i);
              kernels::GateMlp(now, {before, row, kDim, 0}, {before + heads * row, row, kDim, 0},
                               tokens, scores->get(), tokens, 1, workspace->get(), stream);
            };
          }};
}

// Of each row's tokens every `one_of`-th is admitted; of rows of one token, every `one_of`-th row.
KernelProbe AdmitProbe(int32_t rows, int32_t tokens, int32_t one_of) {
  const int64_t all = int64_t{rows} * tokens;
  return {plan::Admit{rows, all, all / one_of, kDim}, [=] {
            std::vector<float> values(static_cast<size_t>(all));
            std::mt19937 random(3);
            for (float& value : values) {
              value = random() % static_cast<uint32_t>(one_of) == 0 ? 1.0F : 0.0F;
            }
            auto scores = Shared(values);
            auto kv = std::make_shared<ColdMemory>(2 * all * kDim);
            const int32_t pages = tokens / kPage + 64;
            auto pool = std::make_shared<Buffer<Bf16>>(int64_t{rows} * pages * kPage * 2 * kDim);
            auto table = Shared(Numbers(int64_t{rows} * pages));
            auto lengths = Zeroed<int32_t>(rows);
            auto workspace = Zeroed<int32_t>(kernels::AdmitWorkspace(rows, tokens));
            return [=](int i, cudaStream_t stream) {
              // Rows of several tokens are filled anew each time.
              if (tokens > 1) {
                kernels::Check(cudaMemsetAsync(lengths->get(), 0,
                                               static_cast<size_t>(lengths->bytes()), stream),
                               "cudaMemsetAsync");
              }
              kernels::Admit({kv->At(i), 2 * int64_t{tokens} * kDim, kDim, int64_t{tokens} * kDim},
                             scores->get(), tokens, rows, tokens, 0.5F,
                             kernels::HndPages(pool->get(), kPage, 1, kDim), table->get(), pages,
                             lengths->get(), {}, workspace->get(), stream);
            };
          }};
}

KernelProbe WindowScoreProbe(int32_t rows, int32_t keys, int32_t queries) {
  return {plan::WindowScore{rows, int64_t{rows} * keys, queries, kGroup, kDim}, [=] {
            auto query = std::make_shared<ColdMemory>(int64_t{rows} * queries * kGroup * kDim);
            auto pages = std::make_shared<ColdMemory>(int64_t{rows} * keys * 2 * kDim);
            std::vector<int32_t> numbers = Numbers(int64_t{rows} * keys), at;
            for (const int32_t n : numbers) at.push_back(n % keys);
            auto places = Shared(numbers), positions = Shared(at);
            auto counts = Shared(std::vector<int32_t>(static_cast<size_t>(rows), keys));
            auto scores = Zeroed<float>(int64_t{rows} * keys);
            kernels::WindowScoreArgs args;
            args.cache = kernels::HndPages(pages->At(0), kPage, 1, kDim);
            args.places = places->get(), args.positions = positions->get();
            args.counts = counts->get(), args.scores = scores->get();
            args.rows = rows, args.stride = keys, args.queries = queries, args.group = kGroup;
            args.first_position = keys - queries, args.smooth = 5, args.scale = 0.1F;
            auto workspace = Zeroed<float>(kernels::WindowScoreWorkspace(args));
            args.workspace = workspace->get();
            return [=](int i, cudaStream_t stream) {
              static_cast<void>(places), static_cast<void>(positions), static_cast<void>(counts);
              static_cast<void>(scores), static_cast<void>(workspace);
              kernels::WindowScoreArgs now = args;
              now.query = query->At(i), now.cache.data = pages->At(i);
              kernels::WindowScore(now, stream);
            };
          }};
}

// Keys and values of a row's tokens to other places of a cache.
KernelProbe MoveProbe(int32_t rows, int32_t tokens) {
  return {plan::Layout{int64_t{2} * rows * tokens, int64_t{2} * kDim}, [=] {
            const int64_t row = int64_t{2} * tokens * kDim;
            auto memory = std::make_shared<ColdMemory>(int64_t{2} * rows * row);
            std::vector<int32_t> numbers = Numbers(int64_t{rows} * tokens);
            for (int32_t& number : numbers) number %= tokens;
            auto places = Shared(numbers);
            return [=](int i, cudaStream_t stream) {
              const kernels::TokenView from{memory->At(i), 2 * row, kDim, row};
              kernels::FetchTokens(from, places->get(), nullptr, rows, 1, tokens, 0, 0, from,
                                   tokens, kDim, 1056, stream);
            };
          }};
}

// Page tables of what rows attend, of `entries` each.
KernelProbe TableProbe(int32_t rows, int32_t entries) {
  return {plan::Layout{rows, entries * Bytes{sizeof(int32_t)}}, [=] {
            constexpr int32_t kLead = kWindow / kPage;
            const int32_t chosen = entries - kLead;
            std::vector<int32_t> selected = Numbers(int64_t{rows} * chosen);
            for (int32_t& id : selected) id %= chosen;
            auto ids = Shared(selected), table = Shared(Numbers(int64_t{rows} * entries));
            auto begun = Shared(std::vector<int32_t>(static_cast<size_t>(rows), chosen));
            auto lengths = Shared(std::vector<int32_t>(static_cast<size_t>(rows), entries * kPage));
            auto attended = Zeroed<int32_t>(int64_t{rows} * (entries + 1));
            return [=](int, cudaStream_t stream) {
              kernels::AttendSelected(ids->get(), rows, chosen, table->get(), entries, kLead, kPage,
                                      lengths->get(), begun->get(), attended->get(),
                                      attended->get() + int64_t{rows} * entries, stream);
            };
          }};
}

// A share of the tokens, at random, is seen by all that follow.
KernelProbe SparsePrefillProbe(int32_t tokens, double share) {
  constexpr int32_t kHeads = 8;
  std::vector<std::vector<int32_t>> columns(kHeads);
  std::mt19937 random(5);
  int64_t vertical = 0;
  for (auto& row : columns) {
    for (int32_t token = 0; token < tokens - kWindow; ++token) {
      if (static_cast<double>(random()) < share * 0x1p32) row.push_back(token);
    }
    vertical += std::ssize(row);
  }
  return {plan::VerticalSlashAttention{1, tokens, kWindow, vertical, kHeads * kGroup, kHeads, kDim},
          [=] {
            std::vector<int32_t> all(static_cast<size_t>(int64_t{kHeads} * tokens)), count;
            std::vector<uint8_t> flags(all.size());
            for (size_t head = 0; head < kHeads; ++head) {
              const auto begin = head * static_cast<size_t>(tokens);
              std::copy(columns[head].begin(), columns[head].end(),
                        all.begin() + static_cast<std::ptrdiff_t>(begin));
              for (const int32_t token : columns[head]) {
                flags[begin + static_cast<size_t>(token)] = 1;
              }
              count.push_back(static_cast<int32_t>(columns[head].size()));
            }
            auto numbers = Shared(all), counts = Shared(count);
            auto admitted = Shared(flags);
            const int64_t heads = int64_t{tokens} * kHeads * kDim;
            auto query = std::make_shared<Buffer<Bf16>>(2 * heads * kGroup);
            auto kv = std::make_shared<Buffer<Bf16>>(2 * heads);
            kernels::FillRandom(query->get(), query->size(), 1, 2, nullptr);
            kernels::FillRandom(kv->get(), kv->size(), 1, 3, nullptr);
            kernels::VerticalSlashArgs args;
            args.query = query->get();
            args.output = query->get() + heads * kGroup;
            args.kv = {kv->get(), 2 * int64_t{tokens} * kDim, kDim, int64_t{tokens} * kDim};
            args.columns = numbers->get(), args.column_counts = counts->get();
            args.admitted = admitted->get();
            args.sequences = 1, args.tokens = tokens, args.window = kWindow;
            args.kv_heads = kHeads, args.group = kGroup, args.head_dim = kDim;
            args.scale = 0.8F;  // logits that differ by as much as real ones
            return [=](int, cudaStream_t stream) {
              static_cast<void>(query), static_cast<void>(kv), static_cast<void>(numbers);
              static_cast<void>(counts), static_cast<void>(admitted);
              kernels::VerticalSlashAttention(args, stream);
            };
          },
          /*after_stream=*/false,
          /*sustained=*/true};
}

}  // namespace

std::vector<KernelProbe> RetrievalProbes() {
  std::vector<KernelProbe> probes;
  for (int32_t tokens = 4096; tokens <= 262144; tokens *= 2) {
    AddRetrieval(8, 1, tokens, probes);
    if (tokens <= 131072) AddRetrieval(32, 1, tokens, probes);
    if (tokens <= 131072) AddRetrieval(32, 4, tokens, probes);  // query heads choose
  }
  // Of those that were reranked: no other top-k has so many. Of two lengths of one number once.
  const auto chosen = static_cast<int32_t>(methods::ParisKvParams{}.topk);
  for (const int32_t tokens : {8192, 32768, 65536, 131072, 262144}) {
    const auto candidates = static_cast<int32_t>(methods::Candidates({}, tokens));
    for (const int32_t rows : {8, 32}) probes.push_back(TopKProbe(rows, candidates, chosen));
  }
  for (const int32_t tokens : {16, 512, 8192, 32768, 131072}) {
    for (const int32_t rows : {8, 32}) {
      if (int64_t{rows} * tokens > (1 << 20)) continue;
      probes.push_back(EncodeProbe(rows, tokens));
      probes.back().after_stream = tokens <= 512;  // an update of a decode step
    }
  }
  for (const int32_t rows : {8, 32}) {
    for (const int32_t tokens : {16, 128, 512}) probes.push_back(MoveProbe(rows, tokens));
    for (const int32_t entries : {64, 128}) {
      probes.push_back(TableProbe(rows, entries));
      probes.back().after_stream = true;
    }
  }
  for (const int32_t heads : {4, 8}) {
    for (const int32_t tokens : {1, 2, 4, 8, 64, 1024}) {
      probes.push_back(GateProbe(tokens, heads));
      probes.back().after_stream = tokens <= 64;
    }
  }
  for (const int32_t tokens : {8192, 32768, 131072}) {
    probes.push_back(GateProbe(tokens, 8));
    probes.back().sustained = true;
  }
  for (const int32_t rows : {64, 256, 512, 1024}) {
    probes.push_back(AdmitProbe(rows, 1, 4));
    probes.back().after_stream = true;
  }
  for (const int32_t tokens : {1024, 8192, 32768, 131072}) {
    for (const int32_t one_of : {2, 4, 10}) probes.push_back(AdmitProbe(8, tokens, one_of));
  }
  for (const int32_t keys : {1024, 4096, 8192}) {
    for (const int32_t queries : {32, 256}) probes.push_back(WindowScoreProbe(8, keys, queries));
  }
  for (const int32_t tokens : {8192, 32768}) {
    for (const double share : {0.1, 0.25, 0.5, 1.0}) {
      probes.push_back(SparsePrefillProbe(tokens, share));
    }
  }
  probes.push_back(SparsePrefillProbe(65536, 0.25));
  probes.push_back(SparsePrefillProbe(131072, 0.25));
  probes.push_back(SparsePrefillProbe(262144, 0.25));
  return probes;
}

}  // namespace stallcast::capture
