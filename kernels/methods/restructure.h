// Choosing tokens by an observation window, and moving them to the front of their sequence.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

struct ObservationScoreArgs {
  PageRuns keys;
  int32_t rows = 0, tokens = 0;
  const __nv_bfloat16* query = nullptr;  ///< [sequences][queries][kv_heads * group][head_dim]
  int32_t queries = 0, group = 0;
  float scale = 0;          ///< of softmax logits
  float* scores = nullptr;  ///< [rows][tokens]
};

/// For each row the weight of each token: softmax over the tokens for each query of each head of
/// the group, then the mean over them. head_dim 64 or 128.
void ObservationScore(const ObservationScoreArgs& args, void* workspace, cudaStream_t stream);
int64_t ObservationScoreWorkspace(const ObservationScoreArgs& args);

/// Keys and values of `tokens` tokens of each row from one run of pages to another, both of `rows`
/// rows: those of the `count` places in `first` ([rows][count], ascending in a row) to the front,
/// then all others, both in the order they had. Values are not touched.
void Restructure(const PageRuns& from, const PageRuns& to, const int32_t* first, int32_t count,
                 int32_t rows, int32_t tokens, cudaStream_t stream);

}  // namespace stallcast::kernels
