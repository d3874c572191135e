#include "models/plan/operators.h"

#include <algorithm>

namespace stallcast::plan {
namespace {

// A number that a program reads by item(), or a few.
constexpr Bytes kScalar = 64;

// As PyTorch 2.11 records a decode step of transformers 5.17's LlamaForCausalLM: linear() calls t,
// transpose, as_strided, matmul, reshape, view, mm and _unsafe_view; to() calls _to_copy,
// empty_strided and copy_; attention calls six.
constexpr std::array<int, kOperators> kProfiled = {
    1,  // view
    2,  // slice
    0,  // a module is no operator
    1,  // of the host
    1,  // launch
    1,  // with a result
    1,  // allocation
    3,  // zeros: empty, zero_, fill_
    4,  // cast
    1,  // reduce
    9,  // linear
    1,  // cat
    1,  // top-k
    3,  // argsort: sort, empty
    3,  // index_select: empty, resize_
    7,  // attention
    0,  // its plan is compiled inside
    2,  // item: _local_scalar_dense
    5,  // index by a GPU scalar: item, select, as_strided
    1,  // copy_
    3,  // a strided one: empty_like, copy_ to it, copy_
    1,  // a pageable one
    1, 1, 1,
    0,  // synchronize
    0,  // a stream is no operator
};

OperatorCalls Of(Operator op, int64_t count = 1) {
  OperatorCalls calls;
  calls[op] = count;
  return calls;
}

// A kernel of one's own called as an operator of PyTorch, which allocates its results.
OperatorCalls Custom(int results, int views = 0, int modules = 0) {
  OperatorCalls calls;
  calls[Operator::kLaunch] = 1;
  calls[Operator::kAllocation] = results;
  calls[Operator::kView] = views;
  calls[Operator::kModule] = modules;
  return calls;
}

Operator CopyOperator(const Copy& copy) {
  const bool to_gpu = copy.direction == Direction::kHostToDevice;
  switch (copy.host_memory) {
    case Copy::HostMemory::kPinned:
      break;
    case Copy::HostMemory::kStrided:
      return to_gpu ? Operator::kCopyStrided : Operator::kCopyBackStrided;
    case Copy::HostMemory::kPageable:
      return to_gpu ? Operator::kCopyPageable : Operator::kCopyBackPageable;
  }
  if (copy.path == CopyPath::k2D) {
    return to_gpu ? Operator::kCopyStrided : Operator::kCopyBackStrided;
  }
  return to_gpu ? Operator::kCopy : Operator::kCopyBack;
}

// No default: a new op kind does not compile until its calls are counted. Where a kernel does in
// one launch what PyTorch has in many operators, it is called as one operator: the operators of
// public programs are Eager ops.
struct Caller {
  OperatorCalls operator()(const Gemm&) const {
    OperatorCalls calls = Of(Operator::kLinear);
    calls[Operator::kModule] = 1;
    return calls;
  }
  OperatorCalls operator()(const GroupedGemm&) const { return Custom(1); }
  OperatorCalls operator()(const Route&) const { return Custom(2, 0, 1); }
  OperatorCalls operator()(const Norm&) const { return Custom(1, 0, 1); }
  // Queries, keys and values are three views of one projection.
  OperatorCalls operator()(const RopeAppend&) const { return Custom(1, 3); }
  OperatorCalls operator()(const SwiGlu&) const { return Custom(1, 0, 1); }
  OperatorCalls operator()(const Sample&) const { return Of(Operator::kReduce); }
  OperatorCalls operator()(const DecodeAttention&) const { return Of(Operator::kSdpa); }
  OperatorCalls operator()(const PrefillAttention&) const { return Of(Operator::kSdpa); }
  OperatorCalls operator()(const VerticalSlashAttention&) const { return Custom(1, 3); }
  OperatorCalls operator()(const LatentAttention&) const { return Custom(1, 2); }
  OperatorCalls operator()(const LatentIndex&) const { return Custom(1, 2); }
  OperatorCalls operator()(const StateUpdate&) const { return Custom(1, 3); }
  OperatorCalls operator()(const GateMlp&) const { return Custom(1, 0, 1); }
  OperatorCalls operator()(const TopK&) const { return Custom(2); }
  OperatorCalls operator()(const Sort&) const { return Of(Operator::kSort); }
  OperatorCalls operator()(const Layout&) const { return Of(Operator::kLaunchAllocating); }
  OperatorCalls operator()(const Eager& eager) const {
    OperatorCalls calls = Of(eager.op, eager.kernels);
    calls[Operator::kView] += eager.views;
    calls[Operator::kSlice] += eager.slices;
    calls[Operator::kModule] += eager.modules;
    calls.bytes = eager.read;
    return calls;
  }
  OperatorCalls operator()(const HostCalls& host) const { return Of(host.op, host.count); }
  OperatorCalls operator()(const Copy& copy) const {
    const bool read_back = copy.direction == Direction::kDeviceToHost &&
                           copy.path == CopyPath::kBulk && copy.piece_bytes <= kScalar;
    if (read_back) return Of(Operator::kItem);
    // One operator of an extension moves a batch.
    if (copy.path == CopyPath::kBatched) return Custom(0);
    const int64_t calls_made = copy.path == CopyPath::kPerPiece ? copy.pieces : 1;
    OperatorCalls calls = Of(CopyOperator(copy), calls_made);
    calls[Operator::kSlice] = 2 * calls_made;  // its source and its destination
    calls.bytes = copy.path == CopyPath::kBulk || copy.path == CopyPath::k2D
                      ? copy.pieces * copy.piece_bytes
                      : copy.piece_bytes;
    return calls;
  }
  OperatorCalls operator()(const HostSync& sync) const {
    // What item() waits for is part of it.
    return sync.device ? Of(Operator::kSynchronize) : OperatorCalls{};
  }
  OperatorCalls operator()(const HostGather&) const { return Of(Operator::kCpu); }
  OperatorCalls operator()(const HostAttention&) const { return Of(Operator::kCpu); }
  OperatorCalls operator()(const HostLookup&) const { return Of(Operator::kCpu); }
  OperatorCalls operator()(const HostKMeans&) const { return Of(Operator::kCpu); }
  OperatorCalls operator()(const HostHandoff&) const { return {}; }
  OperatorCalls operator()(const GraphLaunch&) const { return {}; }
  // A kernel of one's own with a result.
  template <class T>
  requires(std::is_same_v<T, Admit> || std::is_same_v<T, WindowScore> ||
           std::is_same_v<T, Summarize> || std::is_same_v<T, QuerySimilarity> ||
           std::is_same_v<T, Score> || std::is_same_v<T, AssignSlots> ||
           std::is_same_v<T, SelectUnits> || std::is_same_v<T, KMeans> ||
           std::is_same_v<T, ObservationScore> || std::is_same_v<T, KeyEncode> ||
           std::is_same_v<T, CollisionTable> || std::is_same_v<T, CollisionScore> ||
           std::is_same_v<T, BucketTopK> || std::is_same_v<T, Rerank> ||
           std::is_same_v<T, FactorizeKeys> || std::is_same_v<T, RebuildKeys> ||
           std::is_same_v<T, ZeroCopyGather> || std::is_same_v<T, AllReduce> ||
           std::is_same_v<T, CodeScore> || std::is_same_v<T, WeightedAttention> ||
           std::is_same_v<T, MergeStates>) OperatorCalls
  operator()(const T&) const {
    return Custom(1);
  }
};

}  // namespace

OperatorCalls CallsOf(const Work& work) { return std::visit(Caller{}, work); }

int ProfiledOperators(Operator op) { return kProfiled[static_cast<size_t>(op)]; }

int64_t ProfiledOperators(const OperatorCalls& calls) {
  int64_t all = 0;
  for (int op = 0; op < kOperators; ++op) {
    all += calls.count[static_cast<size_t>(op)] * kProfiled[static_cast<size_t>(op)];
  }
  return all;
}

}  // namespace stallcast::plan
