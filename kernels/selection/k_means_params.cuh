// What k-means' search for the nearest centroids is given, and how centroids lie for it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/warpgroup.cuh"

namespace stallcast::kernels {

struct NearestParams {
  const int8_t* keys;       ///< [rows][tokens][dim]
  const int8_t* centroids;  ///< [rows][padded][dim], the channels of each as the search wants them
  const int32_t* bias;      ///< [rows][padded], INT32_MIN behind the last cluster
  uint32_t* labels;         ///< [rows][tokens]: row * clusters + cluster
  int rows, tokens, clusters;
  int padded;  ///< whole tiles
};

/// For warpgroup products: rows of centroids as tiles of products take them, and a word for each of
/// them that makes the search a multiply-add and a maximum: 2 k . c - |c|^2 above, and below, the
/// larger the sooner it comes, a centroid's place among those that the same thread meets. A warp
/// has 16 of a tile's 64 rows, a thread rows g and g + 8 of these (g = lane / 4).
template <int kDim>
struct SwizzledCentroids {
  static constexpr int kTile = 64;
  static constexpr int kWarpRows = 16;
  static constexpr int kPlaces = 512;
  static constexpr int kMaxClusters = kPlaces / 2 * kTile;
  /// No square is larger, nor any 2 k . c - |c|^2 = |k|^2 - |k - c|^2. Counted from here the latter
  /// lie evenly about zero, and with the place fill a word almost.
  static constexpr int32_t kMaxSquare = kDim * 127 * 127;
  static constexpr int32_t kFactor = 2 * kPlaces;
  static_assert(int64_t{2} * kMaxSquare * kPlaces + kPlaces <= INT32_MAX);

  __device__ static int Channel(int cluster, int i) {
    return SwizzledPiece<kDim>(cluster, i / 16) * 16 + i % 16;
  }
  /// A key's word is its product times kFactor, and this.
  __device__ static int32_t Bias(int cluster, int32_t norm) {
    const int place = cluster / kTile * 2 + cluster % kWarpRows / 8;
    return (kMaxSquare - norm) * kPlaces + kPlaces - 1 - place;
  }
  /// The cluster of a word that a thread of this warp and g has found.
  __device__ static int Cluster(int32_t word, int warp, int g) {
    const int place = kPlaces - 1 - (word & (kPlaces - 1));
    return place / 2 * kTile + warp * kWarpRows + place % 2 * 8 + g;
  }
};

#ifdef STALLCAST_SM90A
/// Whether the device has these products and their words tell so many clusters apart.
bool HopperFindsNearest(int dim, int clusters);

/// The nearest centroid of each key: the largest 2 k . c - |c|^2, ties to the smaller cluster. For
/// 64 or 128 channels.
void FindNearestHopper(const NearestParams& params, int dim, cudaStream_t stream);
#endif

}  // namespace stallcast::kernels
