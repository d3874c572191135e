// What an op moves and computes, as numbers with units. One struct an op kind: the cost model, the
// byte counts and the CUDA launchers each have one function a struct, and the compiler names the
// one that is missing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "models/plan/operator.h"
#include "models/plan/width.h"
#include "traces/common/units.h"

namespace stallcast::plan {

enum class Direction : uint8_t { kHostToDevice, kDeviceToHost };

/// C[m,n] = A[m,k] B[k,n]; A and C are bf16, B is a weight matrix of its own width.
struct Gemm {
  static constexpr std::string_view kName = "gemm";
  int64_t m = 0, n = 0, k = 0;
  Width weights = {};
  bool operator==(const Gemm&) const = default;
};

/// Gemms of one shape over different matrices, as one kernel: of `rows` rows each takes one of the
/// matrices, of which `matrices` are read (an expected number; it need not be whole).
struct GroupedGemm {
  static constexpr std::string_view kName = "grouped_gemm";
  static constexpr std::string_view kCostedAs = "gemm";
  static constexpr bool kRun = true;
  int64_t rows = 0, n = 0, k = 0;
  double matrices = 0;
  Width weights = {};
  /// Rows written, where what a token's rows give is added up with weights; 0: all.
  int64_t outputs = 0;
  bool operator==(const GroupedGemm&) const = default;
};

/// Softmax over `experts` logits in each of `rows` rows, the `active` best, and who goes where.
struct Route {
  static constexpr std::string_view kName = "route";
  static constexpr std::string_view kCostedAs = "norm";
  static constexpr bool kRun = true;
  int64_t rows = 0;
  int32_t experts = 0, active = 0;
  bool operator==(const Route&) const = default;
};

/// Residual add and RMSNorm over `rows` vectors of `width`.
struct Norm {
  static constexpr std::string_view kName = "norm";
  int64_t rows = 0, width = 0;
  bool operator==(const Norm&) const = default;
};

/// RoPE on the new tokens' queries and keys, and append of keys and values to the cache.
struct RopeAppend {
  static constexpr std::string_view kName = "rope_append";
  int64_t tokens = 0;
  int32_t query_heads = 0, kv_heads = 0, head_dim = 0;
  bool bounds = false;  ///< keeps the bounds of the new tokens' pages up to date (Quest)
  bool operator==(const RopeAppend&) const = default;
};

/// silu(gate) * up over `rows` vectors of `width`.
struct SwiGlu {
  static constexpr std::string_view kName = "swiglu";
  int64_t rows = 0, width = 0;
  bool operator==(const SwiGlu&) const = default;
};

/// Greedy choice of the next token from `rows` rows of logits.
struct Sample {
  static constexpr std::string_view kName = "sample";
  int64_t rows = 0, vocabulary = 0;
  bool operator==(const Sample&) const = default;
};

/// Attention of one new token a sequence over a paged cache on the GPU (split KV, GQA).
struct DecodeAttention {
  static constexpr std::string_view kName = "decode_attention";
  int64_t kv_tokens = 0;      ///< summed over sequences and KV heads
  int64_t kv_tokens_max = 0;  ///< longest (sequence, KV head)
  int32_t sequences = 0, kv_heads = 0, group = 0, head_dim = 0;
  /// Of kv_tokens, those read from memory, where several heads read the same; 0: all.
  int64_t distinct_tokens = 0;
  /// A KV head's tokens in the cache that the attended pages are picked from; 0: the attended ones
  /// alone.
  int64_t cache_tokens = 0;
  int32_t queries = 1;     ///< new tokens a sequence
  Bytes kv_row_bytes = 0;  ///< a token's key, or value, of a head; 0: bf16
  Bytes KvRowBytes() const { return kv_row_bytes > 0 ? kv_row_bytes : Bytes{2} * head_dim; }
  bool operator==(const DecodeAttention&) const = default;
};

/// Absorbed decode attention over latents (MLA): all heads of a sequence read the same latent of a
/// token, `width` wide, of which the first `value_width` elements are the value too.
struct LatentAttention {
  static constexpr std::string_view kName = "latent_attention";
  static constexpr std::string_view kCostedAs = "decode_attention";
  int64_t kv_tokens = 0;      ///< summed over sequences
  int64_t kv_tokens_max = 0;  ///< longest sequence
  int32_t sequences = 0, heads = 0, width = 0, value_width = 0, queries = 1;
  Bytes kv_row_bytes = 0;  ///< a token's latent
  bool operator==(const LatentAttention&) const = default;
};

/// The indexer of DeepSeek sparse attention: scores of `pairs` pairs of a new token and a cached
/// key of `key_bytes` bytes, each of `dim` elements and over `heads` heads, and the `top_k` best
/// keys of each token; `keys` are read.
struct LatentIndex {
  static constexpr std::string_view kName = "latent_index";
  static constexpr std::string_view kCostedAs = "score";
  int64_t keys = 0, pairs = 0;
  int64_t keys_max = 0;  ///< longest sequence
  int32_t heads = 0, dim = 0;
  Bytes key_bytes = 0;
  int32_t top_k = 0;
  bool operator==(const LatentIndex&) const = default;
};

/// A linear-attention layer's states, `heads` of key_dim x value_dim a sequence in single
/// precision, read, updated by `tokens` tokens over all sequences, and written.
struct StateUpdate {
  static constexpr std::string_view kName = "state_update";
  static constexpr std::string_view kCostedAs = "norm";
  int64_t sequences = 0, tokens = 0;
  int32_t heads = 0, key_dim = 0, value_dim = 0;
  bool operator==(const StateUpdate&) const = default;
};

/// Sum of a buffer of `bytes` over `gpus` GPUs, which each of them gets.
struct AllReduce {
  static constexpr std::string_view kName = "all_reduce";
  static constexpr std::string_view kCostedAs = "norm";  // where a profile has neither fit nor link
  Bytes bytes = 0;
  int32_t gpus = 1;
  bool operator==(const AllReduce&) const = default;
};

/// Causal attention of `tokens` new tokens a sequence after `past` earlier ones.
struct PrefillAttention {
  static constexpr std::string_view kName = "prefill_attention";
  int64_t sequences = 0, tokens = 0, past = 0;
  int32_t query_heads = 0, kv_heads = 0, head_dim = 0;
  bool operator==(const PrefillAttention&) const = default;
};

/// Causal attention of a whole prompt in which a token sees the `window` last ones and, of those
/// before, the ones that its KV head admitted: `vertical` columns, summed over sequences and KV
/// heads, reckoned to be spread evenly over the prompt but its last window.
struct VerticalSlashAttention {
  static constexpr std::string_view kName = "vertical_slash_attention";
  int64_t sequences = 0, tokens = 0, window = 0, vertical = 0;
  int32_t query_heads = 0, kv_heads = 0, head_dim = 0;
  bool operator==(const VerticalSlashAttention&) const = default;
};

/// WG-KV's gate: an MLP a KV head, 2 head_dim -> hidden -> 1, on the new tokens' keys before and
/// after RoPE.
struct GateMlp {
  static constexpr std::string_view kName = "gate_mlp";
  int64_t tokens = 0;
  int32_t kv_heads = 0, head_dim = 0, hidden = 0;
  bool operator==(const GateMlp&) const = default;
};

/// Appends the `admitted` of `tokens` keys and values, over all `rows`, to their rows' pages.
struct Admit {
  static constexpr std::string_view kName = "admit";
  int64_t rows = 0, tokens = 0, admitted = 0;
  int32_t head_dim = 0;
  bool operator==(const Admit&) const = default;
};

/// Attention weights of the last `queries` queries on `tokens` keys over all rows, the largest of a
/// group summed over queries and max-pooled.
struct WindowScore {
  static constexpr std::string_view kName = "window_score";
  int64_t rows = 0, tokens = 0, queries = 0;
  int32_t group = 0, head_dim = 0;
  bool operator==(const WindowScore&) const = default;
};

/// Summaries (`vectors` of head_dim each) of `units` units of `unit_tokens` keys.
struct Summarize {
  static constexpr std::string_view kName = "summarize";
  int64_t units = 0;  ///< over sequences and KV heads
  int32_t unit_tokens = 0, vectors = 0, head_dim = 0;
  bool operator==(const Summarize&) const = default;
};

/// Cosine of each of `rows` query vectors with its predecessor, pooled; writes a flag a group.
struct QuerySimilarity {
  static constexpr std::string_view kName = "query_similarity";
  int64_t rows = 0;
  int32_t head_dim = 0;
  bool operator==(const QuerySimilarity&) const = default;
};

/// Scores of `units` unit summaries for each query head, with softmax and pooling over the group.
struct Score {
  static constexpr std::string_view kName = "score";
  int64_t units = 0;    ///< a (sequence, KV head)
  int64_t kv_rows = 0;  ///< sequences * KV heads: each reads its own summaries once
  int32_t group = 0, vectors = 0, head_dim = 0;
  /// What scores are pooled over: the group, in the scoring kernel; the group after a softmax over
  /// units, or all heads of a sequence, in a second one; nothing, each query head has its own.
  enum class Pool : uint8_t { kGroup, kSoftmax, kSequence, kNone };
  Pool pool = Pool::kGroup;
  bool operator==(const Score&) const = default;
};

/// The `k` best of `candidates` scores in each of `rows` rows.
struct TopK {
  static constexpr std::string_view kName = "top_k";
  int64_t rows = 0, candidates = 0, k = 0;
  bool operator==(const TopK&) const = default;
};

/// All `candidates` of each of `rows` rows in the order of their scores.
struct Sort {
  static constexpr std::string_view kName = "sort";
  int64_t rows = 0, candidates = 0;
  bool operator==(const Sort&) const = default;
};

/// Hits, misses and victim slots from `k` selected units against `slots` cached ones, a row.
struct AssignSlots {
  static constexpr std::string_view kName = "assign_slots";
  int64_t rows = 0, k = 0, slots = 0;
  bool operator==(const AssignSlots&) const = default;
};

/// Units of different sizes for each of `rows` rows, best first, until `tokens` tokens are chosen:
/// softmax and mean of the scores of a group, ranking, and the tokens of the units chosen.
struct SelectUnits {
  static constexpr std::string_view kName = "select_units";
  int64_t rows = 0;
  int32_t group = 0;
  int64_t units = 0, tokens = 0;
  bool operator==(const SelectUnits&) const = default;
};

/// k-means of the keys of each of `rows` rows, in 8-bit whole numbers: `iterations` assignments of
/// each key to the nearest centroid, and the tokens and mean key of each cluster.
struct KMeans {
  static constexpr std::string_view kName = "k_means";
  int64_t rows = 0, tokens = 0, clusters = 0;
  int32_t head_dim = 0, iterations = 0;
  bool operator==(const KMeans&) const = default;
};

/// Weights that the last `queries` queries of each head of a group give to `tokens` keys (softmax
/// over them), averaged over queries and group: a score a token and row.
struct ObservationScore {
  static constexpr std::string_view kName = "observation_score";
  int64_t rows = 0;  ///< sequences * KV heads
  int32_t group = 0, queries = 0, head_dim = 0;
  int64_t tokens = 0;
  bool operator==(const ObservationScore&) const = default;
};

/// ParisKV's index of `keys` keys: a sign pattern and a weight a subspace, 4 bits a dimension.
struct KeyEncode {
  static constexpr std::string_view kName = "key_encode";
  int64_t keys = 0;  ///< over sequences and KV heads
  int32_t head_dim = 0, subspaces = 0;
  bool operator==(const KeyEncode&) const = default;
};

/// Bonus of each of a subspace's sign patterns for a row's query: the mean of its group, rotated.
struct CollisionTable {
  static constexpr std::string_view kName = "collision_table";
  int64_t rows = 0;
  int32_t group = 0, head_dim = 0, subspaces = 0;
  bool operator==(const CollisionTable&) const = default;
};

/// Sums of bonuses of `tokens` keys for each row, and their histogram.
struct CollisionScore {
  static constexpr std::string_view kName = "collision_score";
  int64_t rows = 0;
  int64_t kv_rows = 0;  ///< indices: rows of one KV head read the same
  int64_t tokens = 0;
  int32_t subspaces = 0;
  bool operator==(const CollisionScore&) const = default;
};

/// The `k` best of `candidates` byte-sized scores in each row, by their histogram.
struct BucketTopK {
  static constexpr std::string_view kName = "bucket_top_k";
  int64_t rows = 0, candidates = 0, k = 0;
  bool operator==(const BucketTopK&) const = default;
};

/// Estimates of query-key products of `candidates` keys a row, from their 4-bit codes and weights.
struct Rerank {
  static constexpr std::string_view kName = "rerank";
  int64_t rows = 0, candidates = 0;
  int32_t head_dim = 0, subspaces = 0;
  bool operator==(const Rerank&) const = default;
};

/// Factors of rank `rank` of the keys of each sequence, all heads side by side, by a singular value
/// decomposition in single precision (ShadowKV).
struct FactorizeKeys {
  static constexpr std::string_view kName = "factorize_keys";
  int64_t sequences = 0, tokens = 0;
  int32_t kv_heads = 0, head_dim = 0, rank = 0;
  bool operator==(const FactorizeKeys&) const = default;
};

/// Keys of `tokens` tokens, over all `rows`, from such factors, turned by RoPE. Each row has as
/// many blocks, so the longest decides.
struct RebuildKeys {
  static constexpr std::string_view kName = "rebuild_keys";
  int64_t rows = 0, tokens = 0;
  int32_t rank = 0, head_dim = 0;
  int64_t tokens_max = 0;  ///< longest row; 0: all have as many
  /// Where all rows are as long as the longest.
  int64_t TokensAsLongest() const { return std::max(tokens, rows * tokens_max); }
  bool operator==(const RebuildKeys&) const = default;
};

/// Moves `pieces` pieces inside device memory between layouts (HND to NHD, scatter, transpose).
struct Layout {
  static constexpr std::string_view kName = "layout";
  int64_t pieces = 0;
  Bytes piece_bytes = 0;
  bool operator==(const Layout&) const = default;
};

enum class CopyPath : uint8_t {
  kPerPiece,  ///< one cudaMemcpyAsync a piece
  kBatched,   ///< one cudaMemcpyBatchAsync
  k2D,        ///< one cudaMemcpy2DAsync, a piece a row
  kBulk,      ///< one cudaMemcpyAsync of everything
};
std::string_view Name(CopyPath path);

/// Copy engine transfer between pinned host memory and the GPU.
struct Copy {
  static constexpr std::string_view kName = "copy";
  Direction direction = Direction::kHostToDevice;
  CopyPath path = CopyPath::kBulk;
  int64_t pieces = 0;
  Bytes piece_bytes = 0;
  /// Pieces come from anywhere in a pool of so many bytes; 0: from near each other.
  Bytes scattered_over = 0;
  /// Regions of that pool (plan::kCopyRegion) in which scattered pieces lie and none of the layer's
  /// recall before them does.
  int64_t regions = 0;
  /// Where it begins or ends on the host, or in which order: a PyTorch program may copy to or from
  /// memory that is not pinned, and to strided memory.
  enum class HostMemory : uint8_t { kPinned, kStrided, kPageable };
  HostMemory host_memory = HostMemory::kPinned;
  bool operator==(const Copy&) const = default;
};

/// A kernel of `blocks` blocks of 1,024 threads (each two of 512) that reads `pieces` pieces
/// straight from pinned host memory.
struct ZeroCopyGather {
  static constexpr std::string_view kName = "zero_copy_gather";
  /// On their way at a time: four loads of 16 bytes a thread.
  static constexpr Bytes kBytesABlock = 65'536;
  static constexpr Bytes kBytesAWarp = 2'048;
  /// In how many goes so many blocks read so many bytes.
  static constexpr int64_t Rounds(Bytes bytes, int64_t blocks) {
    const Bytes at_a_time = blocks * kBytesABlock;
    return (bytes + at_a_time - 1) / at_a_time;
  }
  int64_t pieces = 0;
  Bytes piece_bytes = 0;
  int32_t blocks = 0;
  /// Pieces lie anywhere in a pool of so many bytes, each by itself; 0: near each other.
  Bytes scattered_over = 0;
  /// Regions of the host's memory (plan::Regions) that scattered pieces lie in; negative: as many
  /// as pieces.
  int64_t regions = -1;
  /// How many of them the layer's gather of the step before read too, and how many all layers'
  /// gathers of a step read, which come between the two.
  int64_t regions_again = 0, regions_a_step = 0;
  /// When threads look up where their next bytes lie.
  enum class Lookup : uint8_t {
    kPieces,  ///< before each round, by pieces
    kTokens,  ///< before each round, by tokens, which takes longer
    kAhead,   ///< while the bytes of the round before come
  };
  Lookup lookup = Lookup::kPieces;
  /// Blocks that have bytes to read, 1 to `blocks`.
  int64_t BusyBlocks() const {
    return std::max<int64_t>(1, std::min<int64_t>(blocks, Rounds(pieces * piece_bytes, 1)));
  }
  bool operator==(const ZeroCopyGather&) const = default;
};

/// A host thread gathers `pieces` scattered pieces into one pinned staging buffer.
struct HostGather {
  static constexpr std::string_view kName = "host_gather";
  int64_t pieces = 0;
  Bytes piece_bytes = 0;
  int32_t threads = 1;
  bool operator==(const HostGather&) const = default;
};

/// Host threads attend `kv_tokens` cached tokens for one new token a sequence, with the logarithm
/// of each softmax's sum, by which states of several parts are merged.
struct HostAttention {
  static constexpr std::string_view kName = "host_attention";
  static constexpr std::string_view kCostedAs = "host_gather";
  static constexpr bool kRun = true;
  int64_t kv_tokens = 0;  ///< summed over sequences and the heads that choose
  int32_t sequences = 0, query_heads = 0, head_dim = 0;
  int32_t queries = 1;     ///< new tokens a sequence
  Bytes kv_row_bytes = 0;  ///< a token's key, or value, of a head
  int32_t group = 1;       ///< query heads that attend each of kv_tokens
  int32_t threads = 1;
  bool operator==(const HostAttention&) const = default;
};

/// Host threads look things up: `accesses` that each find their own place in memory, and `bytes`
/// that are read or written in order.
struct HostLookup {
  static constexpr std::string_view kName = "host_lookup";
  static constexpr std::string_view kCostedAs = "host_gather";
  int64_t accesses = 0;
  Bytes bytes = 0;
  int32_t threads = 1;
  bool operator==(const HostLookup&) const = default;
};

/// Host threads cluster `tokens` vectors of `dim` elements in single precision for each of `rows`
/// rows: each of `iterations` passes reads all of them.
struct HostKMeans {
  static constexpr std::string_view kName = "host_k_means";
  static constexpr std::string_view kCostedAs = "host_gather";
  int64_t rows = 0, tokens = 0, clusters = 0;
  int32_t dim = 0, iterations = 0, threads = 1;
  bool operator==(const HostKMeans&) const = default;
};

/// Scores of `tokens` keys for each query head, each the sum of a table's entries that its
/// `subspaces` codes of `code_bytes` name (product quantisation).
struct CodeScore {
  static constexpr std::string_view kName = "code_score";
  static constexpr std::string_view kCostedAs = "score";
  int64_t tokens = 0;   ///< a (sequence, KV head)
  int64_t kv_rows = 0;  ///< sequences * KV heads: each reads its own codes once
  int32_t group = 0, subspaces = 0, codes = 0;
  Bytes code_bytes = 1;
  bool operator==(const CodeScore&) const = default;
};

/// Attention of one new token a sequence over units, each of which stands for several tokens by a
/// key, a sum of values and their number (RetroInfer's estimation zone).
struct WeightedAttention {
  static constexpr std::string_view kName = "weighted_attention";
  static constexpr std::string_view kCostedAs = "decode_attention";
  int64_t units = 0;    ///< a (sequence, KV head)
  int64_t kv_rows = 0;  ///< sequences * KV heads
  int32_t group = 0, head_dim = 0;
  bool operator==(const WeightedAttention&) const = default;
};

/// Outputs of `rows` query heads from two parts of their tokens, each with its softmax's sum, into
/// one.
struct MergeStates {
  static constexpr std::string_view kName = "merge_states";
  static constexpr std::string_view kCostedAs = "norm";
  int64_t rows = 0;
  int32_t head_dim = 0;
  bool operator==(const MergeStates&) const = default;
};

/// The host thread blocks until the ops that this one waits for are done.
struct HostSync {
  static constexpr std::string_view kName = "host_sync";
  bool device = false;  ///< for all that the GPU was given
  bool operator==(const HostSync&) const = default;
};

/// The host thread is woken by another one (task queue), then goes on.
struct HostHandoff {
  static constexpr std::string_view kName = "host_handoff";
  bool operator==(const HostHandoff&) const = default;
};

/// The host thread launches a CUDA graph of `nodes` nodes.
struct GraphLaunch {
  static constexpr std::string_view kName = "graph_launch";
  int64_t nodes = 0;
  bool operator==(const GraphLaunch&) const = default;
};

/// An operator of eager PyTorch that launches a kernel or several, all bound by memory, with the
/// views and the modules that its program calls before it.
struct Eager {
  static constexpr std::string_view kName = "eager";
  static constexpr std::string_view kCostedAs = "swiglu";
  Operator op = Operator::kLaunchAllocating;
  Bytes read = 0, written = 0;  ///< by all of its kernels
  int32_t kernels = 1;          ///< one a call
  /// Of each kernel; each reads no more than a multiprocessor's share of memory. 0: enough.
  int32_t blocks = 0;
  int16_t views = 0, slices = 0, modules = 0;
  bool operator==(const Eager&) const = default;
};

/// The thread of a PyTorch program calls an operator that launches nothing.
struct HostCalls {
  static constexpr std::string_view kName = "host_calls";
  Operator op = Operator::kView;
  int64_t count = 0;
  bool operator==(const HostCalls&) const = default;
};

using Work =
    std::variant<Gemm, Norm, RopeAppend, SwiGlu, Sample, DecodeAttention, PrefillAttention,
                 VerticalSlashAttention, GateMlp, Admit, WindowScore, Summarize, QuerySimilarity,
                 Score, TopK, Sort, AssignSlots, SelectUnits, KMeans, ObservationScore, KeyEncode,
                 CollisionTable, CollisionScore, BucketTopK, Rerank, FactorizeKeys, RebuildKeys,
                 Layout, Copy, ZeroCopyGather, HostGather, HostSync, HostHandoff, GraphLaunch,
                 GroupedGemm, Route, LatentAttention, LatentIndex, StateUpdate, AllReduce, Eager,
                 HostCalls, HostAttention, HostLookup, HostKMeans, CodeScore, WeightedAttention,
                 MergeStates>;

inline constexpr int kOpKinds = static_cast<int>(std::variant_size_v<Work>);
/// Index of the op kind, 0 .. kOpKinds-1.
inline int KindOf(const Work& work) { return static_cast<int>(work.index()); }
std::string_view KindName(int kind);
inline std::string_view KindName(const Work& work) { return KindName(KindOf(work)); }

/// Of a kind that a profile may leave out, the one by whose law it is costed there; empty: every
/// profile has a fit of it.
std::string_view CostedAs(int kind);
/// Whether the executor does not run it.
bool PredictedOnly(const Work& work);

/// True for work that occupies a host thread rather than a stream.
bool IsHostWork(const Work& work);

/// Least bytes and operations of some work: each input read once, each output written once.
struct WorkCounts {
  Bytes device_read = 0;
  Bytes device_written = 0;
  Bytes cache_read = 0;  ///< where multiprocessors read the same: what each of them reads
  Bytes link_h2d = 0;
  Bytes link_d2h = 0;
  Bytes host_memory = 0;  ///< read and written by host threads
  double flops = 0;
  /// Length of the longest chain that no parallelism shortens, in items (candidates of a row of
  /// top-k, tokens of the longest attention split, pieces of a block of a gather, rounds of a
  /// sweep).
  double serial_items = 0;
  int32_t launches = 1;  ///< kernels that the launcher of this work starts

  Bytes device() const { return device_read + device_written; }
};
WorkCounts Count(const Work& work);

/// What the time of a kernel depends on, as positive numbers: sizes that a calibration varies and
/// between whose values costs are interpolated in log space. Unused places are 1. Work that is not
/// a kernel has only ones.
using KernelShape = std::array<double, 4>;
KernelShape ShapeOf(const Work& work);

/// Bytes that the op is about, for output: what crosses the link if anything does, else what device
/// memory moves, else what host threads gather or read.
Bytes MovedBytes(const Work& work);

}  // namespace stallcast::plan
