// Units of different sizes: k-means of keys, and choosing units under a budget of tokens.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

/// Tokens by unit, a list a (sequence, KV head): unit u of row r holds members[r * members_stride +
/// i] for i from offsets[r * offsets_stride + u] to offsets[r * offsets_stride + u + 1].
struct UnitLists {
  int32_t* offsets = nullptr;
  int32_t* members = nullptr;
  int64_t offsets_stride = 0, members_stride = 0;
};

struct KMeansArgs {
  PageRuns keys;
  int32_t rows = 0;
  int32_t first_token = 0, tokens = 0;  ///< of each row
  int32_t clusters = 0, iterations = 0;
  /// Mean key of each cluster (zeros for an empty one), [rows][centroid_stride][head_dim].
  __nv_bfloat16* centroids = nullptr;
  int64_t centroid_stride = 0;
  UnitLists lists;  ///< tokens counted from the sequence's start, ascending in a cluster
  /// Without Hopper's own instructions, which otherwise serve where they are compiled in (sm_90a).
  bool portable = false;
};

/// k-means in 8-bit whole numbers, step by step as models/methods/common/key_clusters.h says, so
/// that the clusters are the same. head_dim 64, 128 or 256; 1 <= clusters <= tokens, rows * tokens
/// under 2^31.
void KMeans(const KMeansArgs& args, void* workspace, cudaStream_t stream);
int64_t KMeansWorkspace(const KMeansArgs& args);

struct SelectUnitsArgs {
  const float* scores = nullptr;  ///< raw, [rows][group][units]
  /// A row is a (sequence, selection head).
  int32_t rows = 0, group = 0, units = 0;
  float scale = 0;  ///< of softmax logits
  /// A (sequence, KV head) has only so many of the units, none if it chooses nothing; null: all.
  const int32_t* units_of = nullptr;
  UnitLists lists;     ///< units with no tokens are never chosen and take no part in the softmax
  int32_t budget = 0;  ///< tokens of a row
  /// Where the tokens lie in a pool of [sequence][pool_tokens][kv_heads] rows: a selection head h
  /// of `heads` a sequence reads KV head h * kv_heads / heads.
  int32_t heads = 0, kv_heads = 0;
  int64_t pool_tokens = 0;

  int32_t* unit_ids = nullptr;     ///< [rows][budget], ascending
  int32_t* unit_count = nullptr;   ///< [rows]
  int64_t* source = nullptr;       ///< [rows][budget]: pool row of each token, by unit
  int32_t* token_count = nullptr;  ///< [rows]
};

/// Ranks units by the mean over the group of their softmax, ties to the smaller id, and takes whole
/// ones while they fit into the budget, then the first tokens of the next.
void SelectUnits(const SelectUnitsArgs& args, void* workspace, cudaStream_t stream);
int64_t SelectUnitsWorkspace(const SelectUnitsArgs& args);

}  // namespace stallcast::kernels
