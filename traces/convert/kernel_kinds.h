// What work on a GPU does, as far as its name tells.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "traces/timeline.h"

namespace stallcast::traces {

enum class KernelKind : uint8_t {
  kOther = 0,
  kGemm,           ///< products of matrices, convolutions as such
  kAttention,      ///< of any implementation
  kNorm,           ///< RMSNorm, LayerNorm and the like
  kElementwise,    ///< elementwise, reductions, RoPE, softmax
  kCommunication,  ///< collectives between GPUs
  kTopK,           ///< top-k, sort, argmax, sampling
  kRearrange,      ///< copies, gathers, concatenations within a GPU, memory sets
  kCopyToGpu,
  kCopyToHost,
};
inline constexpr int kKernelKinds = 10;
std::string_view Name(KernelKind kind);

/// By the names that CUDA libraries, PyTorch, Triton, vLLM, FlashInfer, ROCm and XLA give kernels,
/// that profilers give copies, and that op kinds of plans have (plan::KindName).
KernelKind KindOfKernel(std::string_view name);

/// A function's name alone: without what it returns, namespaces, template arguments and parameters.
/// What has no parameters, as "Memcpy HtoD (Pinned -> Device)", stays as it is.
std::string ShortName(std::string_view name);

/// The role in which such work counts: products as projection, top-k as selection, communication as
/// sync, rearrangement as layout, copies to the GPU as recall, those to the host as offload.
Role RoleOf(KernelKind kind);

}  // namespace stallcast::traces
