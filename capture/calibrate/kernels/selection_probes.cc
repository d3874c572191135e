// Probes of what retrieval methods compute.
#include <algorithm>
#include <memory>
#include <random>

#include "capture/calibrate/kernels/cold_memory.h"
#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/methods/restructure.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"
#include "kernels/runtime/probe.h"
#include "kernels/selection/clusters.h"
#include "kernels/selection/selection.h"
#include "kernels/selection/selection_passes.h"

namespace stallcast::capture {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

// Of `pages` pages of `rows` KV heads: with one vector their means, with two their bounds.
KernelProbe SummarizeProbe(int32_t rows, int32_t pages, int32_t page_tokens, int32_t vectors,
                           int32_t dim) {
  return {plan::Summarize{int64_t{rows} * pages, page_tokens, vectors, dim}, [=] {
            auto cache =
                std::make_shared<ColdMemory>(int64_t{pages} * page_tokens * 2 * rows * dim);
            auto out = Zeroed<Bf16>(int64_t{rows} * pages * 2 * dim);
            std::vector<int32_t> slots;
            for (int32_t row = 0; row < rows; ++row) {
              for (int32_t page = 0; page < pages; ++page) slots.push_back(page);
            }
            auto device_slots = Shared(slots);
            return [=](int i, cudaStream_t stream) {
              kernels::Summarize(
                  vectors == 1 ? kernels::SummaryKind::kMean : kernels::SummaryKind::kMinMax,
                  kernels::NhdPages(cache->At(i), page_tokens, rows, dim), device_slots->get(),
                  pages, 0, pages, rows, out->get(), pages, stream);
            };
          }};
}

KernelProbe SimilarityProbe(int32_t rows, int32_t group, int32_t dim) {
  return {plan::QuerySimilarity{int64_t{rows} * group, dim},
          [=] {
            auto queries = std::make_shared<ColdMemory>(int64_t{2} * rows * group * dim);
            auto similarity = Zeroed<float>(rows);
            auto flags = Zeroed<int32_t>(rows + 1);
            return [=](int i, cudaStream_t stream) {
              kernels::QuerySimilarity(queries->At(i), queries->At(i) + int64_t{rows} * group * dim,
                                       rows, group, dim, 0.9F, similarity->get(), flags->get(),
                                       flags->get() + rows, stream);
            };
          },
          /*after_stream=*/true};
}

KernelProbe ScoreProbe(int32_t pages, int32_t rows, int32_t group, int32_t vectors, int32_t dim,
                       plan::Score::Pool pool) {
  return {plan::Score{pages, rows, group, vectors, dim, pool}, [=] {
            auto summaries = std::make_shared<ColdMemory>(int64_t{rows} * pages * vectors * dim);
            auto query = std::make_shared<Buffer<Bf16>>(int64_t{rows} * group * dim);
            kernels::FillRandom(query->get(), query->size(), 1, 4, nullptr);
            auto scores = Zeroed<float>(int64_t{rows} * (group + 1) * pages);
            auto workspace = Zeroed<float>(kernels::ScoreWorkspace(rows, group, pages));
            const kernels::Pooling pooling =
                pool == plan::Score::Pool::kNone      ? kernels::Pooling::kNone
                : pool == plan::Score::Pool::kSoftmax ? kernels::Pooling::kSoftmaxMean
                                                      : kernels::Pooling::kRawMean;
            return [=](int i, cudaStream_t stream) {
              kernels::Score(query->get(), summaries->At(i), rows, group, dim, vectors, 0, pages,
                             pages, pooling, 0.1F, scores->get(), workspace->get(), stream);
              if (pool == plan::Score::Pool::kSequence) {
                kernels::MeanOverRows(scores->get(), 1, rows, pages,
                                      scores->get() + int64_t{rows} * group * pages, stream);
              }
            };
          }};
}

KernelProbe TopKProbe(int32_t rows, int32_t candidates, int32_t k) {
  return {
      plan::TopK{rows, candidates, k},
      [=] {
        auto scores = Zeroed<float>(int64_t{rows} * candidates);
        auto ids = Zeroed<int32_t>(int64_t{rows} * k);
        auto workspace =
            Zeroed<char>(std::max<int64_t>(1, kernels::TopKWorkspace(rows, candidates, k)));
        // It runs once a layer, on scores that were just written. How many fall into one of its
        // bins counts too: of scores with both signs many more do than of those of pages, and
        // whether the k-th is alone in its bin, which saves a look, differs by layer.
        const Launch written = [=](int layer, cudaStream_t stream) {
          kernels::FillScores(scores->get(), scores->size(), static_cast<uint64_t>(layer), stream);
        };
        const Launch top_k = [=](int, cudaStream_t stream) {
          kernels::TopK(scores->get(), rows, candidates, k, ids->get(), workspace->get(), stream);
        };
        written(0, nullptr);
        return Prepared(top_k, written);
      },
      /*after_stream=*/true};
}

// Every other selected unit is in the cache.
KernelProbe AssignSlotsProbe(int32_t rows, int32_t k, int32_t slots) {
  return {plan::AssignSlots{rows, k, slots}, [=] {
            std::vector<int32_t> ids[2];
            for (int odd = 0; odd < 2; ++odd) {
              for (int32_t row = 0; row < rows; ++row) {
                for (int32_t i = 0; i < k; ++i)
                  ids[odd].push_back(i % 2 == 0 ? 4 * i : 4 * i + odd);
              }
            }
            auto even = Shared(ids[0]), odd = Shared(ids[1]);
            auto held = Shared(Numbers(int64_t{rows} * slots));
            auto missed = Zeroed<int32_t>(int64_t{rows} * (2 * k + 1));
            auto scores = Zeroed<float>(int64_t{rows} * 8 * slots * rows);
            return [=](int i, cudaStream_t stream) {
              const int64_t units = int64_t{rows} * k;
              kernels::SlotVictims victims;
              if (k < slots) victims = {scores->get(), 8 * slots};
              kernels::AssignSlots((i % 2 == 0 ? even : odd)->get(), rows, k, slots, held->get(),
                                   missed->get(), missed->get() + units, missed->get() + 2 * units,
                                   nullptr, victims, stream);
            };
          }};
}

// Units of 16 tokens on average, and a selection among them as LouisKV makes it.
struct Units {
  Units(int32_t rows, int32_t group, int32_t units, int32_t tokens) {
    std::mt19937 random(6);
    std::uniform_int_distribution<int32_t> size(1, 31);
    std::vector<int32_t> offsets{0};
    for (int32_t u = 0; u < units; ++u) offsets.push_back(offsets.back() + size(random));
    const int32_t members = offsets.back();
    std::vector<int32_t> all;
    for (int32_t row = 0; row < rows; ++row) all.insert(all.end(), offsets.begin(), offsets.end());
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(group) *
                              static_cast<size_t>(units));
    for (float& value : values) value = 8 * normal(random);
    offsets_ = kernels::Uploaded(all);
    scores_ = kernels::Uploaded(values);
    members_ = Buffer<int32_t>(int64_t{rows} * members);
    kernels::Check(cudaMemset(members_.get(), 0, static_cast<size_t>(members_.bytes())),
                   "cudaMemset");
    ids_ = Buffer<int32_t>(int64_t{rows} * (tokens + 2));
    source_ = Buffer<int64_t>(int64_t{rows} * tokens);
    args = {.scores = scores_.get(),
            .rows = rows,
            .group = group,
            .units = units,
            .scale = 0.1F,
            .lists = {offsets_.get(), members_.get(), units + 1, members},
            .budget = tokens,
            .heads = rows,
            .kv_heads = rows,
            .pool_tokens = members,
            .unit_ids = ids_.get() + 2 * int64_t{rows},
            .unit_count = ids_.get(),
            .source = source_.get(),
            .token_count = ids_.get() + rows};
    workspace_ = Buffer<char>(kernels::SelectUnitsWorkspace(args));
  }
  void Select(cudaStream_t stream) const { kernels::SelectUnits(args, workspace_.get(), stream); }
  kernels::SelectUnitsArgs args;

 private:
  Buffer<float> scores_;
  Buffer<int32_t> offsets_, members_, ids_;
  Buffer<int64_t> source_;
  Buffer<char> workspace_;
};

KernelProbe SelectUnitsProbe(int32_t rows, int32_t group, int32_t units, int32_t tokens) {
  return {plan::SelectUnits{rows, group, units, tokens}, [=] {
            auto of = std::make_shared<Units>(rows, group, units, tokens);
            return [=](int, cudaStream_t stream) { of->Select(stream); };
          }};
}

KernelProbe SortProbe(int32_t rows, int32_t units) {
  return {plan::Sort{rows, units}, [=] {
            auto of = std::make_shared<Units>(rows, 1, units, 16);
            auto passes = std::make_shared<kernels::SelectionPasses>(rows, 1, units);
            passes->Softmax(of->args, nullptr);
            passes->Mean(of->args, nullptr);
            return [=](int, cudaStream_t stream) { passes->Sort(of->args, stream); };
          }};
}

KernelProbe KMeansProbe(int32_t rows, int32_t tokens, int32_t clusters, int32_t dim) {
  constexpr int32_t kIterations = 5;
  return {plan::KMeans{rows, tokens, clusters, dim, kIterations}, [=] {
            auto keys = std::make_shared<ColdMemory>(int64_t{rows} * tokens * 2 * dim);
            auto centroids = Zeroed<Bf16>(int64_t{rows} * clusters * dim);
            auto offsets = Zeroed<int32_t>(int64_t{rows} * (clusters + 1));
            auto members = Zeroed<int32_t>(int64_t{rows} * tokens);
            kernels::KMeansArgs args{
                .keys = {kernels::NhdPages(keys->At(0), tokens, rows, dim), 1},
                .rows = rows,
                .tokens = tokens,
                .clusters = clusters,
                .iterations = kIterations,
                .centroids = centroids->get(),
                .centroid_stride = clusters,
                .lists = {offsets->get(), members->get(), clusters + 1, tokens}};
            auto workspace = Zeroed<char>(kernels::KMeansWorkspace(args));
            return [=](int i, cudaStream_t stream) {
              static_cast<void>(centroids);
              static_cast<void>(offsets);
              static_cast<void>(members);
              kernels::KMeansArgs now = args;
              now.keys.cache.data = keys->At(i);
              kernels::KMeans(now, workspace->get(), stream);
            };
          }};
}

KernelProbe ObservationProbe(int32_t rows, int32_t group, int32_t queries, int32_t tokens,
                             int32_t dim) {
  return {plan::ObservationScore{rows, group, queries, dim, tokens}, [=] {
            auto keys = std::make_shared<ColdMemory>(int64_t{rows} * tokens * 2 * dim);
            auto query = std::make_shared<Buffer<Bf16>>(int64_t{queries} * rows * group * dim);
            kernels::FillRandom(query->get(), query->size(), 1, 4, nullptr);
            auto scores = Zeroed<float>(int64_t{rows} * tokens);
            kernels::ObservationScoreArgs args{
                .keys = {kernels::NhdPages(keys->At(0), tokens, rows, dim), 1},
                .rows = rows,
                .tokens = tokens,
                .query = query->get(),
                .queries = queries,
                .group = group,
                .scale = 0.1F,
                .scores = scores->get()};
            auto workspace = Zeroed<char>(kernels::ObservationScoreWorkspace(args));
            return [=](int i, cudaStream_t stream) {
              static_cast<void>(query);
              static_cast<void>(scores);
              kernels::ObservationScoreArgs now = args;
              now.keys.cache.data = keys->At(i);
              kernels::ObservationScore(now, workspace->get(), stream);
            };
          }};
}

// Single rows of tokens in a new order, keys and values: restructuring, and what LouisKV's prompt
// leaves on the GPU.
KernelProbe RowsProbe(int32_t heads, int32_t tokens, int32_t dim) {
  return {plan::Layout{int64_t{2} * heads * tokens, int64_t{dim} * 2}, [=] {
            auto from = std::make_shared<ColdMemory>(int64_t{heads} * tokens * 2 * dim);
            auto to = std::make_shared<ColdMemory>(int64_t{heads} * tokens * 2 * dim);
            const int32_t count = tokens / 16;
            std::vector<int32_t> first;
            for (int32_t row = 0; row < heads; ++row) {
              for (int32_t i = 0; i < count; ++i) first.push_back(16 * i);
            }
            auto places = Shared(first);
            return [=](int i, cudaStream_t stream) {
              kernels::Restructure({kernels::NhdPages(from->At(i), tokens, heads, dim), 1},
                                   {kernels::NhdPages(to->At(i), tokens, heads, dim), 1},
                                   places->get(), count, heads, tokens, stream);
            };
          }};
}

// Missed pages from a buffer into their slots, evenly over the heads.
KernelProbe LayoutProbe(int32_t pieces, int32_t page_tokens, int32_t dim) {
  constexpr int32_t kHeads = 8;
  const Bytes piece = int64_t{2} * page_tokens * dim * 2;
  return {
      plan::Layout{pieces, piece}, [=] {
        const int32_t rows = std::min(pieces, kHeads);
        const int32_t k = (pieces + rows - 1) / rows;
        auto from = std::make_shared<ColdMemory>(pieces * piece / 2);
        auto to = std::make_shared<ColdMemory>(int64_t{k} * kHeads * piece / 2);
        std::vector<int32_t> slot, count;
        for (int32_t row = 0; row < rows; ++row) {
          for (int32_t i = 0; i < k; ++i) slot.push_back(i);
          count.push_back(pieces / rows + (row < pieces % rows ? 1 : 0));
        }
        auto slots = Shared(slot), counts = Shared(count);
        kernels::MissedUnits missed;
        missed.unit = missed.slot = slots->get();
        missed.count = counts->get();
        missed.rows = rows;
        missed.k = k;
        // A copy engine has just filled the buffer.
        const auto bytes = static_cast<size_t>(pieces * piece);
        auto host = std::make_shared<Buffer<Bf16>>(pieces * piece / 2, kernels::Memory::kPinned);
        const Launch arrived = [=](int i, cudaStream_t stream) {
          kernels::Check(
              cudaMemcpyAsync(from->At(i), host->get(), bytes, cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
        };
        const Launch scatter = [=](int i, cudaStream_t stream) {
          static_cast<void>(slots);
          static_cast<void>(counts);
          kernels::ScatterMissed(from->At(i), missed, {k, 0, k, 0},
                                 kernels::NhdPages(to->At(i), page_tokens, kHeads, dim), stream);
        };
        return Prepared(scatter, arrived);
      }};
}

std::vector<KernelProbe> SelectionProbes() {
  constexpr int32_t kDim = 128;
  std::vector<KernelProbe> probes;
  for (const int32_t rows : {4, 8, 32}) {
    for (const int32_t pages : {1, 16, 256, 1024, 4096}) {
      for (const int32_t tokens : {16, 32}) {
        probes.push_back(SummarizeProbe(rows, pages, tokens, 2, kDim));
      }
    }
  }
  // Segments of a sequence's local buffer, then a prompt's pages.
  for (const int32_t rows : {4, 8}) {
    for (const int32_t tokens : {1, 4, 16, 64, 128, 512, 2048}) {
      probes.push_back(SummarizeProbe(rows, 1, tokens, 1, kDim));
    }
    for (const int32_t pages : {512, 4096}) {
      probes.push_back(SummarizeProbe(rows, pages, 16, 1, kDim));
    }
  }
  for (const int32_t rows : {2, 4, 8, 16, 32}) {
    for (const int32_t group : {4, 7}) probes.push_back(SimilarityProbe(rows, group, kDim));
  }
  for (const int32_t rows : {2, 4, 8, 16, 32}) {
    for (const int32_t pages : {64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      for (const int32_t group : {4, 7}) {
        for (const auto pool : {plan::Score::Pool::kGroup, plan::Score::Pool::kSoftmax,
                                plan::Score::Pool::kSequence}) {
          probes.push_back(ScoreProbe(pages, rows, group, 2, kDim, pool));
        }
        probes.push_back(ScoreProbe(pages, rows, group, 1, kDim, plan::Score::Pool::kNone));
      }
    }
  }
  for (const int32_t rows : {1, 2, 4, 8, 32, 128}) {
    // A block's threads hold 4, 8 or 16 scores each: on both sides of where that changes. A context
    // seldom has a number of pages that lets all rows start at a multiple of 16 bytes.
    for (const int32_t about : {128, 256, 512, 1024, 2048, 4096, 4160, 8192, 8320, 32768}) {
      const int32_t candidates = about - 1;
      for (const int32_t k : {16, 32, 64, 127}) {
        if (k <= candidates) probes.push_back(TopKProbe(rows, candidates, k));
      }
    }
  }
  // ShadowKV's chunks, many and small.
  for (const int32_t rows : {4, 8, 32}) {
    for (const int32_t chunks : {1024, 4096, 16384}) {
      const int32_t group = rows == 4 ? 7 : 4;
      probes.push_back(ScoreProbe(chunks, rows, group, 1, kDim, plan::Score::Pool::kSoftmax));
      probes.push_back(TopKProbe(rows, chunks - 1, 256));
    }
  }
  for (const int32_t rows : {1, 4, 8, 16, 32, 128}) {
    for (const int32_t slots : {16, 32, 64, 128, 256}) {
      probes.push_back(AssignSlotsProbe(rows, slots, slots));
      probes.push_back(AssignSlotsProbe(rows, slots / 2, slots));
    }
  }
  for (int32_t pieces = 1; pieces <= 4096; pieces *= 4) {
    for (const int32_t tokens : {16, 32}) probes.push_back(LayoutProbe(pieces, tokens, kDim));
  }
  for (const int32_t tokens : {32, 512, 2048, 8192, 32768}) {
    probes.push_back(RowsProbe(8, tokens, kDim));
  }
  for (const int32_t rows : {8, 32}) {
    for (const int32_t units : {128, 512, 1024, 2048, 4096}) {
      for (const int32_t tokens : {192, 704, 1728}) {
        if (tokens > 16 * units) continue;
        probes.push_back(SelectUnitsProbe(rows, 4, units, tokens));
      }
      probes.push_back(SelectUnitsProbe(rows, 1, units, 1728));
      probes.push_back(SortProbe(rows, units));
    }
  }
  for (const int32_t rows : {4, 16}) {
    probes.push_back(SelectUnitsProbe(rows, 7, 2048, 1728));
    probes.push_back(SelectUnitsProbe(rows, 4, 2048, 1728));
  }
  for (const int32_t rows : {8, 32}) {
    for (const int32_t tokens : {2048, 8192, 32768, 65536}) {
      probes.push_back(KMeansProbe(rows, tokens, tokens / 16, kDim));
    }
    for (const int32_t tokens : {8192, 32768, 65536}) {
      for (const int32_t queries : {32, 64}) {
        probes.push_back(ObservationProbe(rows, 4, queries, tokens, kDim));
      }
    }
  }
  // PRKV's static sets.
  for (const int32_t rows : {8, 32}) {
    for (const int32_t tokens : {8192, 32768, 65536}) {
      for (const int32_t k : {128, 480}) probes.push_back(TopKProbe(rows, tokens, k));
    }
  }
  return probes;
}

}  // namespace stallcast::capture
