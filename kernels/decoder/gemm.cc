#include <cublasLt.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <compare>
#include <map>
#include <utility>
#include <vector>

#include "kernels/decoder/decoder.h"
#include "kernels/decoder/skinny_gemm.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/cuda_handles.h"
#include "kernels/runtime/probe.h"
#include "traces/common/error.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
constexpr int kCandidates = 24;
constexpr int kTrials = 11;
// GEMMs that take this long need fewer trials, and one that is clearly slower than the best no
// second one.
constexpr float kLongMilliseconds = 1;
constexpr int kLongTrials = 3;
constexpr float kClearlySlower = 1.2F;
// A later candidate must be this much faster than the best before it, or noise would make one
// process choose what another does not.
constexpr float kClearlyFaster = 0.98F;
// One of cuBLASLt's must be faster than SkinnyGemm() by more than what it costs others: its call
// takes the host up to 12 us, a launch 3, and behind a large one the small kernels of a layer begin
// later and run longer (norms by a tenth, SwiGLU by a quarter).
constexpr float kFasterThanSkinny = 0.9F;

void CheckCublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(cublasLtGetStatusString(status), call,
              "check that cuBLASLt matches the driver and that device memory is free");
}

/// A cuBLASLt descriptor that is destroyed with its owner.
template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) kDestroy(handle_);
  }
  Handle* Out() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// One shape: cuBLASLt is column-major, so it computes C^T[n, m] = B[n, k] A^T[k, m].
struct Matmul {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  bool skinny = false;  // SkinnyGemm() is faster
};

}  // namespace

struct Gemm::Impl {
  struct Shape {
    int64_t m, n, k;
    auto operator<=>(const Shape&) const = default;
  };
  Library library;
  Buffer<char> workspace{kWorkspaceBytes};
  std::map<Shape, Matmul> matmuls;

  void Launch(const Matmul& matmul, const cublasLtMatmulAlgo_t& algorithm, const void* a,
              const void* b, void* c, cudaStream_t stream) {
    const float one = 1, zero = 0;
    CheckCublas(cublasLtMatmul(library, matmul.operation, &one, b, matmul.b, a, matmul.a, &zero, c,
                               matmul.c, c, matmul.c, &algorithm, workspace.get(),
                               static_cast<size_t>(kWorkspaceBytes), stream),
                "cublasLtMatmul");
  }

  void Describe(Matmul& matmul, const Shape& shape) {
    CheckCublas(cublasLtMatmulDescCreate(matmul.operation.Out(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "cublasLtMatmulDescCreate");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    CheckCublas(cublasLtMatmulDescSetAttribute(matmul.operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                               &transpose, sizeof(transpose)),
                "cublasLtMatmulDescSetAttribute");
    const auto layout = [](Layout& of, int64_t rows, int64_t columns) {
      CheckCublas(cublasLtMatrixLayoutCreate(of.Out(), CUDA_R_16BF, static_cast<uint64_t>(rows),
                                             static_cast<uint64_t>(columns), rows),
                  "cublasLtMatrixLayoutCreate");
    };
    layout(matmul.b, shape.k, shape.n);
    layout(matmul.a, shape.k, shape.m);
    layout(matmul.c, shape.n, shape.m);
  }

  std::vector<cublasLtMatmulAlgo_t> Candidates(const Matmul& matmul) {
    Preference preference;
    CheckCublas(cublasLtMatmulPreferenceCreate(preference.Out()), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      CheckCublas(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)),
                  "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
    // Splits of k are summed in float, never in bf16.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(operand, uint32_t{16});
    }
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found;
    int count = 0;
    CheckCublas(
        cublasLtMatmulAlgoGetHeuristic(library, matmul.operation, matmul.b, matmul.a, matmul.c,
                                       matmul.c, preference, kCandidates, found.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(found[i].algo);
    }
    return algorithms;
  }

  /// The fastest way as it stands in a layer, between other kernels.
  void Choose(Matmul& matmul, const Shape& shape, const __nv_bfloat16* a, const __nv_bfloat16* b,
              __nv_bfloat16* c, cudaStream_t stream) {
    const std::vector<cublasLtMatmulAlgo_t> candidates = Candidates(matmul);
    if (candidates.empty()) {
      throw Error("cuBLASLt has no algorithm for this shape", "Gemm",
                  "use multiples of 8 for n and k");
    }
    const CacheFlush flush;
    const Event start(cudaEventDefault), stop(cudaEventDefault);
    float best = INFINITY;
    // Milliseconds of what is launched, or infinity where that is clearly not the best.
    const auto time = [&](const auto& launch) {
      const auto trial = [&] {
        flush.Run(stream);
        Check(cudaEventRecord(start, stream), "cudaEventRecord");
        launch();
        Check(cudaEventRecord(stop, stream), "cudaEventRecord");
        Check(cudaEventSynchronize(stop), "cudaEventSynchronize");
        float milliseconds = 0;
        Check(cudaEventElapsedTime(&milliseconds, start, stop), "cudaEventElapsedTime");
        return milliseconds;
      };
      std::vector<float> trials{trial()};
      const bool is_long = trials[0] > kLongMilliseconds;
      if (is_long && trials[0] > best * kClearlySlower) return INFINITY;
      while (std::ssize(trials) < (is_long ? kLongTrials : kTrials)) trials.push_back(trial());
      return Median(std::move(trials));
    };
    for (const cublasLtMatmulAlgo_t& candidate : candidates) {
      const float taken = time([&] { Launch(matmul, candidate, a, b, c, stream); });
      if (taken >= best * kClearlyFaster) continue;
      best = taken;
      matmul.algorithm = candidate;
    }
    // The last to be timed: for some milliseconds behind an allocation the GPU may still clear what
    // was freed, which takes up to a seventh of the memory's rate.
    if (HasSkinnyGemm(shape.m, shape.n, shape.k)) {
      const auto skinny = [&] { SkinnyGemm(a, b, c, shape.m, shape.n, shape.k, stream); };
      matmul.skinny = time(skinny) * kFasterThanSkinny <= best;
    }
  }
};

Gemm::Gemm() : impl_(std::make_unique<Impl>()) {
  CheckCublas(cublasLtCreate(impl_->library.Out()), "cublasLtCreate");
}

Gemm::~Gemm() = default;

void Gemm::Run(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int64_t m,
               int64_t n, int64_t k, cudaStream_t stream) {
  if (m < 0 || n < 1 || k < 1) {
    throw Error(fmt::format("a GEMM of m {}, n {}, k {}", m, n, k), "Gemm",
                "use sizes of at least 1");
  }
  if (m == 0) return;
  const Impl::Shape shape{m, n, k};
  auto found = impl_->matmuls.find(shape);
  if (found == impl_->matmuls.end()) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    Check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone) {
      throw Error(
          fmt::format("a GEMM of m {}, n {}, k {} is new while a graph is captured", m, n, k),
          "Gemm", "run each shape once before the capture");
    }
    found = impl_->matmuls.try_emplace(shape).first;
    try {
      impl_->Describe(found->second, shape);
      impl_->Choose(found->second, shape, a, b, c, stream);
    } catch (...) {
      impl_->matmuls.erase(found);
      throw;
    }
  }
  if (found->second.skinny) {
    SkinnyGemm(a, b, c, m, n, k, stream);
  } else {
    impl_->Launch(found->second, found->second.algorithm, a, b, c, stream);
  }
}

}  // namespace stallcast::kernels
