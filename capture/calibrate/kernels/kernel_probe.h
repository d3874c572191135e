// A kernel kind under test: its shapes, and how one of them is launched.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/runtime/upload.h"
#include "models/llm/model.h"
#include "models/plan/work.h"

namespace stallcast::capture {

/// Launches the i-th of a train on a stream. What a step reads cold is another part of memory each
/// time, what it finds in the cache is the same.
using Launch = std::function<void(int i, cudaStream_t stream)>;

/// A kernel made ready, and what runs right before it in a plan (may be empty): it finds in the
/// cache what that has left.
struct Prepared {
  template <class Run>
  Prepared(Run run) : launch(std::move(run)) {}
  Prepared(Launch run, Launch run_before) : launch(std::move(run)), before(std::move(run_before)) {}
  Launch launch, before;
};

struct KernelProbe {
  plan::Work work;
  std::function<Prepared()> prepare;  ///< allocates and fills
  /// Timed after a kernel that streams through memory on all multiprocessors, as it follows matrix
  /// products in a decoder: it starts later and colder than behind one like itself.
  bool after_stream = false;
  /// Timed once it has run so long that the power limit sets the clock, as it does for most of a
  /// prefill: the tensor cores at work.
  bool sustained = false;
  /// A launch returns when all of it is done: it is timed by the host's clock, and alone.
  bool waits = false;
};

// A probe each, of bf16 and heads of `dim` channels; `rows` are KV heads over all sequences.
KernelProbe GemmProbe(const plan::Gemm& work);
/// A model's experts, of which `tokens` rows take as many distinct ones as are expected: the first
/// GEMM of each, or, with `sums`, the second, which adds up a row's.
KernelProbe GroupedGemmProbe(const llm::Model& model, int64_t tokens, bool sums);
KernelProbe RouteProbe(int64_t tokens, const llm::Experts& experts);
KernelProbe NormProbe(int64_t rows, int64_t width);
KernelProbe RopeProbe(int64_t tokens, int32_t query_heads, int32_t kv_heads, int32_t dim,
                      bool bounds);
KernelProbe SwiGluProbe(int64_t rows, int64_t width);
KernelProbe SampleProbe(int64_t rows, int64_t vocabulary);
/// Of `cached` tokens, where there are more, each row attends pages of 16 at random. There rows of
/// one query head choose by fours for a KV head, `alike` of their pages the same, as Quest's do.
KernelProbe DecodeAttentionProbe(int64_t tokens, int32_t rows, int32_t group, int32_t dim,
                                 int64_t cached = 0, double alike = 0.5);
KernelProbe PrefillAttentionProbe(int64_t tokens, int32_t kv_heads, int32_t group, int32_t dim);
/// `pages` a row.
KernelProbe SummarizeProbe(int32_t rows, int32_t pages, int32_t page_tokens, int32_t vectors,
                           int32_t dim);
KernelProbe SimilarityProbe(int32_t rows, int32_t group, int32_t dim);
KernelProbe ScoreProbe(int32_t pages, int32_t rows, int32_t group, int32_t vectors, int32_t dim,
                       plan::Score::Pool pool);
KernelProbe TopKProbe(int32_t rows, int32_t candidates, int32_t k);
/// Every other selected unit is cached.
KernelProbe AssignSlotsProbe(int32_t rows, int32_t k, int32_t slots);
/// Missed pages of a head each, from a buffer into their slots.
KernelProbe LayoutProbe(int32_t pieces, int32_t page_tokens, int32_t dim);

/// Known models that the executor runs, as bf16; mixtures of experts where this GPU holds them.
std::vector<llm::Model> ModelsToRun();

/// Of one kind each; of gemm the products of those models and prefill's large ones.
std::vector<KernelProbe> GemmProbes();
std::vector<KernelProbe> ExpertProbes();     ///< grouped_gemm, route
std::vector<KernelProbe> DecoderProbes();    ///< norm, rope_append, swiglu, sample
std::vector<KernelProbe> AttentionProbes();  ///< decode_attention, prefill_attention
std::vector<KernelProbe> SelectionProbes();  ///< summarize, query_similarity, score, top_k, sort,
                                             ///< assign_slots, select_units, k_means,
                                             ///< observation_score, layout
std::vector<KernelProbe> RetrievalProbes();  ///< key_encode to rerank, gate_mlp, admit,
                                             ///< window_score, vertical_slash_attention, layout
std::vector<KernelProbe> LowRankProbes();  ///< rebuild_keys, factorize_keys where there is cuSOLVER

/// For launches, which are copied, to share.
template <class T>
std::shared_ptr<kernels::Buffer<T>> Shared(const std::vector<T>& values) {
  return std::make_shared<kernels::Buffer<T>>(kernels::Uploaded(values));
}
template <class T>
std::shared_ptr<kernels::Buffer<T>> Zeroed(int64_t count) {
  auto buffer = std::make_shared<kernels::Buffer<T>>(count);
  kernels::Zero(*buffer);
  return buffer;
}
/// 0, 1, 2, ...
inline std::vector<int32_t> Numbers(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace stallcast::capture
