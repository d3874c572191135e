// Probes of what retrieval methods compute.
#include <algorithm>
#include <memory>
#include <random>

#include "capture/calibrate/kernel_probe.h"
#include "kernels/cuda_error.h"
#include "kernels/movement.h"
#include "kernels/selection.h"

namespace stallcast::capture {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

// `units` pages over `rows` KV heads.
KernelProbe SummarizeProbe(int32_t rows, int32_t pages, int32_t page_tokens, int32_t dim) {
  return {
      plan::Summarize{int64_t{rows} * pages, page_tokens, 2, dim}, [=] {
        auto cache = std::make_shared<ColdMemory>(int64_t{pages} * page_tokens * 2 * rows * dim);
        auto out = Zeroed<Bf16>(int64_t{rows} * pages * 2 * dim);
        std::vector<int32_t> slots;
        for (int32_t row = 0; row < rows; ++row) {
          for (int32_t page = 0; page < pages; ++page) slots.push_back(page);
        }
        auto device_slots = Shared(slots);
        return [=](int i, cudaStream_t stream) {
          kernels::Summarize(kernels::SummaryKind::kMinMax,
                             kernels::NhdPages(cache->At(i), page_tokens, rows, dim),
                             device_slots->get(), pages, 0, pages, rows, out->get(), pages, stream);
        };
      }};
}

KernelProbe SimilarityProbe(int32_t rows, int32_t group, int32_t dim) {
  return {plan::QuerySimilarity{int64_t{rows} * group, dim}, [=] {
            auto queries = std::make_shared<ColdMemory>(int64_t{2} * rows * group * dim);
            auto similarity = Zeroed<float>(rows);
            auto flags = Zeroed<int32_t>(rows + 1);
            return [=](int i, cudaStream_t stream) {
              kernels::QuerySimilarity(queries->At(i), queries->At(i) + int64_t{rows} * group * dim,
                                       rows, group, dim, 0.9F, similarity->get(), flags->get(),
                                       flags->get() + rows, stream);
            };
          }};
}

KernelProbe ScoreProbe(int32_t pages, int32_t rows, int32_t group, int32_t dim,
                       plan::Score::Pool pool) {
  return {plan::Score{pages, rows, group, 2, dim, pool}, [=] {
            auto summaries = std::make_shared<ColdMemory>(int64_t{rows} * pages * 2 * dim);
            auto query = std::make_shared<Buffer<Bf16>>(int64_t{rows} * group * dim);
            kernels::FillRandom(query->get(), query->size(), 1, 4, nullptr);
            auto scores = Zeroed<float>(int64_t{rows} * (group + 1) * pages);
            auto workspace = Zeroed<float>(kernels::ScoreWorkspace(rows, group, pages));
            const kernels::Pooling pooling = pool == plan::Score::Pool::kSoftmax
                                                 ? kernels::Pooling::kSoftmaxMean
                                                 : kernels::Pooling::kRawMean;
            return [=](int i, cudaStream_t stream) {
              kernels::Score(query->get(), summaries->At(i), rows, group, dim, 2, 0, pages, pages,
                             pooling, 0.1F, scores->get(), workspace->get(), stream);
              if (pool == plan::Score::Pool::kSequence) {
                kernels::MeanOverRows(scores->get(), 1, rows, pages,
                                      scores->get() + int64_t{rows} * group * pages, stream);
              }
            };
          }};
}

KernelProbe TopKProbe(int32_t rows, int32_t candidates, int32_t k) {
  return {plan::TopK{rows, candidates, k}, [=] {
            std::mt19937 random(5);
            std::normal_distribution<float> normal;
            std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(candidates));
            for (float& value : values) value = normal(random);
            auto scores = Shared(values);
            auto ids = Zeroed<int32_t>(int64_t{rows} * k);
            auto workspace =
                Zeroed<char>(std::max<int64_t>(1, kernels::TopKWorkspace(rows, candidates, k)));
            return [=](int, cudaStream_t stream) {
              kernels::TopK(scores->get(), rows, candidates, k, ids->get(), workspace->get(),
                            stream);
            };
          }};
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

// Missed pages from a buffer into their slots, evenly over the heads.
KernelProbe LayoutProbe(int32_t pieces, int32_t page_tokens, int32_t dim) {
  constexpr int32_t kHeads = 8;
  const Bytes piece = int64_t{2} * page_tokens * dim * 2;
  return {plan::Layout{pieces, piece}, [=] {
            const int32_t rows = std::min(pieces, kHeads);
            const int32_t k = (pieces + rows - 1) / rows;
            auto from = std::make_shared<ColdMemory>(pieces * piece / 2);
            auto to = std::make_shared<ColdMemory>(k * kHeads * piece / 2);
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
            return [=](int i, cudaStream_t stream) {
              static_cast<void>(slots);
              static_cast<void>(counts);
              kernels::ScatterMissed(from->At(i), missed, {k, 0, k, 0},
                                     kernels::NhdPages(to->At(i), page_tokens, kHeads, dim),
                                     stream);
            };
          }};
}

std::vector<KernelProbe> SelectionProbes() {
  constexpr int32_t kDim = 128;
  std::vector<KernelProbe> probes;
  for (const int32_t rows : {4, 8, 32}) {
    for (const int32_t pages : {1, 16, 256, 1024, 4096}) {
      for (const int32_t tokens : {16, 32}) {
        probes.push_back(SummarizeProbe(rows, pages, tokens, kDim));
      }
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
          probes.push_back(ScoreProbe(pages, rows, group, kDim, pool));
        }
      }
    }
  }
  for (const int32_t rows : {1, 2, 4, 8, 32, 128}) {
    for (const int32_t candidates : {128, 256, 512, 1024, 2048, 4096, 8192, 32768}) {
      for (const int32_t k : {16, 32, 64, 128}) {
        if (k <= candidates) probes.push_back(TopKProbe(rows, candidates, k));
      }
    }
  }
  for (const int32_t rows : {1, 4, 8, 16, 32, 128}) {
    for (const int32_t slots : {16, 32, 64, 128}) {
      probes.push_back(AssignSlotsProbe(rows, slots, slots));
      probes.push_back(AssignSlotsProbe(rows, slots / 2, slots));
    }
  }
  for (int32_t pieces = 1; pieces <= 4096; pieces *= 4) {
    for (const int32_t tokens : {16, 32}) probes.push_back(LayoutProbe(pieces, tokens, kDim));
  }
  return probes;
}

}  // namespace stallcast::capture
