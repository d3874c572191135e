#include "models/plan/work.h"

#include <algorithm>
#include <array>
#include <utility>

namespace stallcast::plan {
namespace {

constexpr Bytes kElement = 2;  // bf16 activations, keys and values
constexpr Bytes kScore = 4;    // fp32
constexpr Bytes kId = 4;       // int32 tokens, unit ids and slots
constexpr Bytes kCacheLine = 64;

// Split KV: a tile is the least that a block takes, and a row is cut into this many at most.
constexpr int64_t kTileTokens = 128;
constexpr int64_t kMaxSplits = 128;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / std::max<int64_t>(b, 1); }

double Product(std::initializer_list<int64_t> factors) {
  double product = 1;
  for (const int64_t factor : factors) product *= static_cast<double>(factor);
  return product;
}

// No default: a new op kind does not compile until it is counted.
struct Counter {
  WorkCounts operator()(const Gemm& w) const {
    return {.device_read = w.m * w.k * kElement + w.weights.Of(w.k * w.n),
            .device_written = w.m * w.n * kElement,
            .flops = Product({2, w.m, w.n, w.k})};
  }
  WorkCounts operator()(const GroupedGemm& w) const {
    const double weights = w.matrices * static_cast<double>(w.weights.Of(w.k * w.n));
    return {.device_read = w.rows * w.k * kElement + static_cast<Bytes>(weights),
            .device_written = (w.outputs > 0 ? w.outputs : w.rows) * w.n * kElement,
            .flops = Product({2, w.rows, w.n, w.k})};
  }
  WorkCounts operator()(const Route& w) const {
    return {.device_read = w.rows * w.experts * kElement,
            .device_written = w.rows * w.active * (kScore + kId),
            .flops = Product({5, w.rows, w.experts})};
  }
  WorkCounts operator()(const Norm& w) const {
    return {.device_read = (2 * w.rows + 1) * w.width * kElement,
            .device_written = 2 * w.rows * w.width * kElement,
            .flops = Product({5, w.rows, w.width})};
  }
  WorkCounts operator()(const RopeAppend& w) const {
    const Bytes bytes =
        w.tokens * (w.query_heads + int64_t{2} * w.kv_heads) * w.head_dim * kElement;
    return {.device_read = bytes,
            .device_written = bytes,
            .flops = Product({3, w.tokens, w.query_heads + w.kv_heads, w.head_dim})};
  }
  WorkCounts operator()(const SwiGlu& w) const {
    return {.device_read = 2 * w.rows * w.width * kElement,
            .device_written = w.rows * w.width * kElement,
            .flops = Product({5, w.rows, w.width})};
  }
  WorkCounts operator()(const Sample& w) const {
    return {.device_read = w.rows * w.vocabulary * kElement,
            .device_written = w.rows * kId,
            .flops = Product({w.rows, w.vocabulary})};
  }
  WorkCounts operator()(const DecodeAttention& w) const {
    const Bytes queries =
        int64_t{w.sequences} * w.queries * w.kv_heads * w.group * w.head_dim * kElement;
    const int64_t split = std::max(kTileTokens, CeilDivide(w.kv_tokens_max, kMaxSplits));
    const int64_t read = w.distinct_tokens > 0 ? w.distinct_tokens : w.kv_tokens;
    const bool shared = w.distinct_tokens > 0;
    return {.device_read = 2 * read * w.KvRowBytes() + queries,
            .device_written = queries,
            .cache_read = shared ? 2 * w.kv_tokens * w.KvRowBytes() : 0,
            .flops = Product({4, w.kv_tokens, w.queries, w.group, w.head_dim}),
            .serial_items = static_cast<double>(std::min(w.kv_tokens_max, split))};
  }
  WorkCounts operator()(const LatentAttention& w) const {
    const int64_t queries = int64_t{w.sequences} * w.queries * w.heads;
    const int64_t split = std::max(kTileTokens, CeilDivide(w.kv_tokens_max, kMaxSplits));
    return {.device_read = w.kv_tokens * w.kv_row_bytes + queries * w.width * kElement,
            .device_written = queries * w.value_width * kElement,
            .flops = Product({2, w.kv_tokens, w.queries, w.heads, w.width + w.value_width}),
            .serial_items = static_cast<double>(std::min(w.kv_tokens_max, split))};
  }
  WorkCounts operator()(const LatentIndex& w) const {
    return {.device_read = w.keys * w.key_bytes,
            .device_written = w.pairs * kScore,
            .flops = Product({2, w.pairs, w.heads, w.dim}),
            .serial_items = static_cast<double>(w.keys_max)};
  }
  WorkCounts operator()(const StateUpdate& w) const {
    const Bytes states = w.sequences * w.heads * w.key_dim * w.value_dim * kScore;
    const Bytes tokens = w.tokens * w.heads * (int64_t{2} * w.key_dim + w.value_dim) * kElement;
    return {.device_read = states + tokens,
            .device_written = states + w.tokens * w.heads * w.value_dim * kElement,
            .flops = Product({8, w.tokens, w.heads, w.key_dim, w.value_dim})};
  }
  // What a ring sends and receives.
  WorkCounts operator()(const AllReduce& w) const {
    return {.device_read = 2 * w.bytes * (w.gpus - 1) / std::max(w.gpus, 1)};
  }
  WorkCounts operator()(const PrefillAttention& w) const {
    const Bytes queries = w.sequences * w.tokens * w.query_heads * w.head_dim * kElement;
    const Bytes kv = 2 * w.sequences * (w.past + w.tokens) * w.kv_heads * w.head_dim * kElement;
    const double pairs = Product({w.tokens, w.past}) + Product({w.tokens, w.tokens + 1}) / 2;
    return {.device_read = queries + kv,
            .device_written = queries,
            .flops = Product({4, w.sequences, w.query_heads, w.head_dim}) * pairs};
  }
  WorkCounts operator()(const VerticalSlashAttention& w) const {
    const Bytes queries = w.sequences * w.tokens * w.query_heads * w.head_dim * kElement;
    const Bytes kv = 2 * w.sequences * w.tokens * w.kv_heads * w.head_dim * kElement;
    const int64_t window = std::min(w.window, w.tokens);
    const double slash = Product({w.sequences, w.query_heads}) *
                         (Product({window, window + 1}) / 2 + Product({w.tokens - window, window}));
    const double vertical = Product({w.query_heads / std::max(w.kv_heads, 1), w.vertical}) *
                            static_cast<double>(w.tokens - window + 1) / 2;
    return {.device_read = queries + kv,
            .device_written = queries,
            .flops = Product({4, w.head_dim}) * (slash + vertical)};
  }
  WorkCounts operator()(const GateMlp& w) const {
    const int64_t weights = int64_t{2} * w.head_dim * w.hidden + int64_t{2} * w.hidden + 1;
    return {.device_read = (2 * w.tokens * w.head_dim + weights) * w.kv_heads * kElement,
            .device_written = w.tokens * w.kv_heads * kScore,
            .flops = Product(
                {w.tokens, w.kv_heads, int64_t{2} * w.hidden, int64_t{2} * w.head_dim + 1})};
  }
  WorkCounts operator()(const Admit& w) const {
    const Bytes moved = 2 * w.admitted * w.head_dim * kElement;
    return {.device_read = w.tokens * kScore + moved, .device_written = moved + w.rows * kId};
  }
  WorkCounts operator()(const WindowScore& w) const {
    return {.device_read = (w.tokens + w.rows * w.queries * w.group) * w.head_dim * kElement,
            .device_written = w.tokens * kScore,
            .flops = Product({2, w.tokens, w.queries, w.group, w.head_dim})};
  }
  WorkCounts operator()(const Summarize& w) const {
    return {.device_read = w.units * w.unit_tokens * w.head_dim * kElement,
            .device_written = w.units * w.vectors * w.head_dim * kElement,
            .flops = Product({w.units, w.unit_tokens, w.vectors, w.head_dim})};
  }
  WorkCounts operator()(const QuerySimilarity& w) const {
    return {.device_read = 2 * w.rows * w.head_dim * kElement,
            .device_written = w.rows,
            .flops = Product({6, w.rows, w.head_dim})};
  }
  WorkCounts operator()(const Score& w) const {
    const Bytes summaries = w.kv_rows * w.units * w.vectors * w.head_dim * kElement;
    const bool apart = w.pool == Score::Pool::kNone;
    return {.device_read = summaries + w.kv_rows * w.group * w.head_dim * kElement,
            .device_written = w.kv_rows * (apart ? w.group : 1) * w.units * kScore,
            .flops = Product({2, w.kv_rows, w.units, w.group, w.vectors, w.head_dim}),
            .launches = apart || w.pool == Score::Pool::kGroup ? 1 : 2};
  }
  WorkCounts operator()(const TopK& w) const {
    return {.device_read = w.rows * w.candidates * kScore,
            .device_written = w.rows * w.k * kId,
            .flops = Product({w.rows, w.candidates}),
            .serial_items = static_cast<double>(w.candidates)};
  }
  WorkCounts operator()(const Sort& w) const {
    const Bytes bytes = w.rows * w.candidates * (kScore + kId);
    return {.device_read = bytes, .device_written = bytes};
  }
  WorkCounts operator()(const AssignSlots& w) const {
    return {.device_read = w.rows * (w.k + w.slots) * kId,
            .device_written = w.rows * (2 * w.k + w.slots) * kId,
            .serial_items = static_cast<double>(w.k + w.slots)};
  }
  WorkCounts operator()(const SelectUnits& w) const {
    return {.device_read = w.rows * (w.units * (w.group * kScore + kId) + w.tokens * kId),
            .device_written = w.rows * w.tokens * kId,
            .flops = Product({4, w.rows, w.units, w.group}),
            .serial_items = static_cast<double>(w.units)};
  }
  WorkCounts operator()(const KMeans& w) const {
    return {
        .device_read = w.rows * w.tokens * w.head_dim * kElement,
        .device_written = w.rows * (w.clusters * (w.head_dim * kElement + kId) + w.tokens * kId),
        .flops = Product({2, w.rows, w.iterations, w.tokens, w.clusters, w.head_dim}),
        .serial_items = static_cast<double>(w.iterations)};
  }
  WorkCounts operator()(const ObservationScore& w) const {
    const int64_t queries = w.rows * w.group * w.queries;
    // The products are made twice: once for the sums of the softmax, once for the weights.
    return {.device_read = (queries + w.rows * w.tokens) * w.head_dim * kElement,
            .device_written = w.rows * w.tokens * kScore,
            .flops = Product({4, queries, w.tokens, w.head_dim})};
  }
  WorkCounts operator()(const KeyEncode& w) const {
    const Bytes codes = w.subspaces + w.head_dim / 2 + w.subspaces * kElement;
    return {.device_read = w.keys * w.head_dim * kElement,
            .device_written = w.keys * codes,
            .flops = Product({w.keys, w.head_dim, 16})};
  }
  WorkCounts operator()(const CollisionTable& w) const {
    const int64_t patterns = int64_t{1} << (w.head_dim / std::max(w.subspaces, 1));
    return {.device_read =
                w.rows * (int64_t{w.group} * w.head_dim * kElement + w.subspaces * patterns * kId),
            .device_written = w.rows * (w.subspaces * patterns + w.head_dim * kScore),
            .flops = Product({w.rows, w.subspaces, patterns, patterns}),
            .serial_items = static_cast<double>(patterns)};
  }
  WorkCounts operator()(const CollisionScore& w) const {
    return {.device_read = w.kv_rows * w.tokens * w.subspaces,
            .device_written = w.rows * w.tokens,
            .flops = Product({w.rows, w.tokens, w.subspaces})};
  }
  WorkCounts operator()(const BucketTopK& w) const {
    return {.device_read = w.rows * w.candidates,
            .device_written = w.rows * w.k * kId,
            .flops = Product({w.rows, w.candidates})};
  }
  WorkCounts operator()(const Rerank& w) const {
    const Bytes codes = w.head_dim / 2 + w.subspaces * kElement;
    return {.device_read = w.rows * w.candidates * (codes + kId),
            .device_written = w.rows * w.candidates * kScore,
            .flops = Product({2, w.rows, w.candidates, w.head_dim})};
  }
  WorkCounts operator()(const FactorizeKeys& w) const {
    const int64_t width = int64_t{w.kv_heads} * w.head_dim;
    // Any way to the factors multiplies the keys with themselves, and with what comes of it. A
    // sweep turns each channel against all others, one round of pairs after the other.
    return {.device_read = w.sequences * w.tokens * width * kElement,
            .device_written = w.sequences * (w.tokens + width) * w.rank * kElement,
            .flops = Product({2, w.sequences, w.tokens, width, width + w.rank}),
            .serial_items = static_cast<double>(w.sequences * width)};
  }
  WorkCounts operator()(const RebuildKeys& w) const {
    return {.device_read = (w.tokens + w.rows * w.head_dim) * w.rank * kElement,
            .device_written = w.tokens * w.head_dim * kElement,
            .flops = Product({2, w.tokens, w.rank, w.head_dim})};
  }
  WorkCounts operator()(const Layout& w) const {
    const Bytes bytes = w.pieces * w.piece_bytes;
    return {.device_read = bytes, .device_written = bytes};
  }
  WorkCounts operator()(const Copy& w) const {
    const Bytes bytes = w.pieces * w.piece_bytes;
    if (w.direction == Direction::kHostToDevice) {
      return {.device_written = bytes, .link_h2d = bytes};
    }
    return {.device_read = bytes, .link_d2h = bytes};
  }
  WorkCounts operator()(const ZeroCopyGather& w) const {
    const Bytes bytes = w.pieces * w.piece_bytes;
    return {.device_written = bytes,
            .link_h2d = bytes,
            .serial_items = static_cast<double>(CeilDivide(w.pieces, w.blocks))};
  }
  WorkCounts operator()(const HostGather& w) const {
    return {.host_memory = 2 * w.pieces * w.piece_bytes,
            .serial_items = static_cast<double>(CeilDivide(w.pieces, w.threads))};
  }
  WorkCounts operator()(const HostAttention& w) const {
    const int64_t rows = int64_t{w.sequences} * w.queries * w.query_heads;
    return {.host_memory =
                2 * w.kv_tokens * w.kv_row_bytes + 2 * rows * w.head_dim * kElement + rows * kScore,
            .flops = Product({4, w.kv_tokens, w.queries, w.group, w.head_dim})};
  }
  WorkCounts operator()(const HostLookup& w) const {
    return {.host_memory = w.accesses * kCacheLine + w.bytes,
            .serial_items = static_cast<double>(CeilDivide(w.accesses, w.threads))};
  }
  WorkCounts operator()(const HostKMeans& w) const {
    return {.host_memory = w.rows * w.iterations * w.tokens * w.dim * Bytes{sizeof(float)},
            .flops = Product({2, w.rows, w.iterations, w.tokens, w.clusters, w.dim}),
            .serial_items = static_cast<double>(w.iterations)};
  }
  WorkCounts operator()(const CodeScore& w) const {
    const Bytes table = int64_t{w.group} * w.subspaces * w.codes * kScore;
    return {.device_read = w.kv_rows * (w.tokens * w.subspaces * w.code_bytes + table),
            .device_written = w.kv_rows * w.group * w.tokens * kScore,
            .flops = Product({w.kv_rows, w.tokens, w.group, w.subspaces})};
  }
  WorkCounts operator()(const WeightedAttention& w) const {
    const Bytes queries = w.kv_rows * w.group * w.head_dim * kElement;
    return {.device_read = w.kv_rows * w.units * (2 * w.head_dim * kElement + kScore) + queries,
            .device_written = queries,
            .flops = Product({4, w.kv_rows, w.units, w.group, w.head_dim})};
  }
  WorkCounts operator()(const MergeStates& w) const {
    const Bytes state = w.rows * (w.head_dim * kElement + kScore);
    return {.device_read = 2 * state,
            .device_written = w.rows * w.head_dim * kElement,
            .flops = Product({4, w.rows, w.head_dim})};
  }
  WorkCounts operator()(const HostSync&) const { return {}; }
  WorkCounts operator()(const HostHandoff&) const { return {}; }
  WorkCounts operator()(const GraphLaunch&) const { return {}; }
  WorkCounts operator()(const Eager& w) const {
    return {.device_read = w.read, .device_written = w.written, .launches = w.kernels};
  }
  WorkCounts operator()(const HostCalls&) const { return {}; }
};

// No default: a new op kind does not compile until its shape is known.
struct Shaper {
  template <class... T>
  static KernelShape Of(T... sizes) {
    KernelShape shape;
    shape.fill(1);
    size_t i = 0;
    ((shape[i++] = std::max(1.0, static_cast<double>(sizes))), ...);
    return shape;
  }
  KernelShape operator()(const Gemm& w) const { return Of(w.m, w.n, w.k); }
  KernelShape operator()(const GroupedGemm& w) const { return Of(w.rows, w.n, w.k, w.matrices); }
  KernelShape operator()(const Route& w) const { return Of(w.rows, w.experts, w.active); }
  KernelShape operator()(const LatentAttention& w) const {
    return Of(w.kv_tokens_max, w.sequences, w.heads, w.width);
  }
  KernelShape operator()(const LatentIndex& w) const {
    return Of(w.keys_max, w.keys, w.heads, w.dim);
  }
  KernelShape operator()(const StateUpdate& w) const {
    return Of(w.sequences, w.heads, w.key_dim, w.value_dim);
  }
  KernelShape operator()(const AllReduce& w) const { return Of(w.bytes, w.gpus); }
  KernelShape operator()(const Norm& w) const { return Of(w.rows, w.width); }
  KernelShape operator()(const RopeAppend& w) const {
    return Of(w.tokens, (w.query_heads + 2 * w.kv_heads) * w.head_dim, w.bounds ? 2 : 1);
  }
  KernelShape operator()(const SwiGlu& w) const { return Of(w.rows, w.width); }
  KernelShape operator()(const Sample& w) const { return Of(w.rows, w.vocabulary); }
  KernelShape operator()(const DecodeAttention& w) const {
    // The more a cache holds beside them, the farther apart the attended pages lie.
    const double spread = static_cast<double>(std::max(w.cache_tokens, w.kv_tokens_max)) /
                          static_cast<double>(std::max<int64_t>(w.kv_tokens_max, 1));
    return Of(w.kv_tokens_max, int64_t{w.sequences} * w.kv_heads, w.group, spread);
  }
  KernelShape operator()(const PrefillAttention& w) const {
    return Of(w.tokens, w.past + w.tokens, w.sequences * w.query_heads, w.head_dim);
  }
  KernelShape operator()(const VerticalSlashAttention& w) const {
    return Of(w.tokens, w.window, w.vertical, w.sequences * w.query_heads);
  }
  KernelShape operator()(const GateMlp& w) const {
    return Of(w.tokens, w.kv_heads, w.head_dim, w.hidden);
  }
  KernelShape operator()(const Admit& w) const { return Of(w.rows, w.tokens, w.admitted); }
  KernelShape operator()(const WindowScore& w) const {
    return Of(w.rows, w.tokens, w.queries, w.group);
  }
  KernelShape operator()(const Summarize& w) const { return Of(w.units, w.unit_tokens, w.vectors); }
  KernelShape operator()(const QuerySimilarity& w) const { return Of(w.rows, w.head_dim); }
  KernelShape operator()(const Score& w) const {
    // Where nothing is pooled, calibrations have one vector a unit. With two it is the kernel that
    // pools over the group, which takes as long when it does not.
    const bool two_apart = w.pool == Score::Pool::kNone && w.vectors == 2;
    const Score::Pool pool = two_apart ? Score::Pool::kGroup : w.pool;
    return Of(w.units * w.vectors, w.kv_rows, w.group, 1 << static_cast<int>(pool));
  }
  KernelShape operator()(const TopK& w) const { return Of(w.rows, w.candidates, w.k); }
  KernelShape operator()(const Sort& w) const { return Of(w.rows, w.candidates); }
  KernelShape operator()(const AssignSlots& w) const { return Of(w.rows, w.k, w.slots); }
  KernelShape operator()(const SelectUnits& w) const {
    return Of(w.rows, w.group, w.units, w.tokens);
  }
  KernelShape operator()(const KMeans& w) const {
    return Of(w.rows, w.tokens, w.clusters, w.iterations);
  }
  KernelShape operator()(const ObservationScore& w) const {
    return Of(w.rows, w.group, w.queries, w.tokens);
  }
  KernelShape operator()(const KeyEncode& w) const { return Of(w.keys, w.head_dim, w.subspaces); }
  KernelShape operator()(const CollisionTable& w) const {
    return Of(w.rows, w.group, w.head_dim, w.subspaces);
  }
  KernelShape operator()(const CollisionScore& w) const {
    return Of(w.rows, w.tokens, w.rows / std::max<int64_t>(w.kv_rows, 1), w.subspaces);
  }
  KernelShape operator()(const BucketTopK& w) const { return Of(w.rows, w.candidates, w.k); }
  KernelShape operator()(const Rerank& w) const {
    return Of(w.rows, w.candidates, w.head_dim, w.subspaces);
  }
  KernelShape operator()(const FactorizeKeys& w) const {
    return Of(w.tokens, w.kv_heads * w.head_dim, w.sequences, w.rank);
  }
  KernelShape operator()(const RebuildKeys& w) const {
    return Of(w.rows, w.TokensAsLongest(), w.rank, w.head_dim);
  }
  KernelShape operator()(const Layout& w) const { return Of(w.pieces, w.piece_bytes); }
  KernelShape operator()(const Copy&) const { return Of(); }
  KernelShape operator()(const ZeroCopyGather&) const { return Of(); }
  KernelShape operator()(const HostGather&) const { return Of(); }
  KernelShape operator()(const HostAttention&) const { return Of(); }
  KernelShape operator()(const HostLookup&) const { return Of(); }
  KernelShape operator()(const HostKMeans&) const { return Of(); }
  KernelShape operator()(const CodeScore& w) const {
    return Of(w.tokens, w.kv_rows, w.group, w.subspaces);
  }
  KernelShape operator()(const WeightedAttention& w) const {
    return Of(w.units, w.kv_rows, w.group, w.head_dim);
  }
  KernelShape operator()(const MergeStates& w) const { return Of(w.rows, w.head_dim); }
  KernelShape operator()(const HostSync&) const { return Of(); }
  KernelShape operator()(const HostHandoff&) const { return Of(); }
  KernelShape operator()(const GraphLaunch&) const { return Of(); }
  KernelShape operator()(const Eager&) const { return Of(); }
  KernelShape operator()(const HostCalls&) const { return Of(); }
};

template <size_t... kIndex>
constexpr std::array<std::string_view, kOpKinds> Names(std::index_sequence<kIndex...>) {
  return {std::variant_alternative_t<kIndex, Work>::kName...};
}
constexpr auto kNames = Names(std::make_index_sequence<kOpKinds>{});

template <class T>
constexpr std::string_view CostedAsOf() {
  if constexpr (requires { T::kCostedAs; }) return T::kCostedAs;
  return {};
}
template <size_t... kIndex>
constexpr std::array<std::string_view, kOpKinds> AllCostedAs(std::index_sequence<kIndex...>) {
  return {CostedAsOf<std::variant_alternative_t<kIndex, Work>>()...};
}
constexpr auto kCostedAs = AllCostedAs(std::make_index_sequence<kOpKinds>{});

// A kind that is costed as another one is predicted only, unless it says that it is run.
template <class T>
constexpr bool RunOf() {
  if constexpr (requires { T::kRun; }) return T::kRun;
  return CostedAsOf<T>().empty();
}

template <class... Kind>
bool IsAny(const Work& work) {
  return (std::holds_alternative<Kind>(work) || ...);
}

}  // namespace

std::string_view Name(CopyPath path) {
  switch (path) {
    case CopyPath::kPerPiece:
      return "per_piece";
    case CopyPath::kBatched:
      return "batched";
    case CopyPath::k2D:
      return "2d";
    case CopyPath::kBulk:
      return "bulk";
  }
  return "unknown";
}

std::string_view KindName(int kind) {
  return kind >= 0 && kind < kOpKinds ? kNames[static_cast<size_t>(kind)] : "unknown";
}

std::string_view CostedAs(int kind) {
  return kind >= 0 && kind < kOpKinds ? kCostedAs[static_cast<size_t>(kind)] : std::string_view{};
}

bool PredictedOnly(const Work& work) {
  return std::visit([]<class T>(const T&) { return !RunOf<T>(); }, work);
}

bool IsHostWork(const Work& work) {
  return IsAny<HostGather, HostAttention, HostLookup, HostKMeans, HostSync, HostHandoff,
               GraphLaunch, HostCalls>(work);
}

WorkCounts Count(const Work& work) { return std::visit(Counter{}, work); }

KernelShape ShapeOf(const Work& work) { return std::visit(Shaper{}, work); }

Bytes MovedBytes(const Work& work) {
  const WorkCounts counts = Count(work);
  if (const Bytes link = counts.link_h2d + counts.link_d2h; link > 0) return link;
  if (counts.device() > 0) return counts.device();
  const bool copies = std::holds_alternative<HostGather>(work);  // reads and writes as much
  return copies ? counts.host_memory / 2 : counts.host_memory;
}

}  // namespace stallcast::plan
