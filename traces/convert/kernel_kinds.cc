#include "traces/convert/kernel_kinds.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <string>

namespace stallcast::traces {
namespace {

// In lower case, without what only separates: "HtoD", "H2D", "Host -> Device" look alike then.
std::string Normalised(std::string_view name) {
  std::string text;
  text.reserve(name.size());
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) text += static_cast<char>(std::tolower(byte));
    if (c == '>') text += '>';
  }
  return text;
}

constexpr std::string_view kAnonymous = "(anonymous namespace)";

// Where a function's parameters begin, at once behind its name; the end where it has none. Their
// types say nothing of what it does.
size_t ParametersAt(std::string_view name) {
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (name[i] == '<') ++depth;
    if (name[i] == '>' && depth > 0) --depth;
    const bool follows = i > 0 && name[i - 1] != ' ' && name[i - 1] != '(';
    if (name[i] == '(' && depth == 0 && follows) return i;
  }
  return name.size();
}

bool HasAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

KernelKind KindOfCopy(std::string_view text) {
  if (HasAny(text, {"htod", "h2d", "hosttodevice", "pinned>device", "pageable>device",
                    "host>device", "htoa"})) {
    return KernelKind::kCopyToGpu;
  }
  if (HasAny(text, {"dtoh", "d2h", "devicetohost", "device>pinned", "device>pageable",
                    "device>host", "atoh"})) {
    return KernelKind::kCopyToHost;
  }
  return KernelKind::kRearrange;
}

// Ahead in the list is what decides: a fused norm of an attention library is a norm.
struct Words {
  KernelKind kind;
  std::initializer_list<std::string_view> words;
};
const std::array<Words, 7> kWords = {{
    {KernelKind::kCommunication,
     {"nccl", "rccl", "allreduce", "allgather", "reducescatter", "alltoall", "sendrecv", "nvshmem",
      "crossdevicereduce", "collective", "deepep"}},
    {KernelKind::kTopK,
     {"topk", "radixsort", "sortkv", "bitonic", "argmax", "argmin", "kthvalue", "sampling",
      "multinomial", "sortpairs", "mergesort"}},
    {KernelKind::kNorm, {"layernorm", "rmsnorm", "groupnorm", "batchnorm", "instancenorm"}},
    {KernelKind::kElementwise, {"reshapeandcache", "rotary", "rope", "actandmul"}},
    {KernelKind::kAttention,
     {"flash", "fmha", "attention", "attn", "sdpa", "pagedkv", "batchdecode", "batchprefill",
      "mladecode"}},
    {KernelKind::kGemm,
     {"gemm", "gemv", "nvjet", "cutlass", "cublas", "splitkreduce", "xmma", "wgmma", "matmul",
      "cijk", "marlin", "tensorop", "convolution", "conv2d", "winograd", "dotkernel", "mmafp",
      "linearkernel", "product"}},
    {KernelKind::kRearrange,
     {"catarray", "memcpy", "memset", "directcopy", "copykernel", "indexselect", "indexkernel",
      "indexput", "gather", "scatter", "transpose", "permute", "embedding", "fillfunctor", "concat",
      "unrolledelementwisekernelatnativedirectcopy"}},
}};

}  // namespace

std::string_view Name(KernelKind kind) {
  switch (kind) {
    case KernelKind::kOther:
      return "other";
    case KernelKind::kGemm:
      return "gemm";
    case KernelKind::kAttention:
      return "attention";
    case KernelKind::kNorm:
      return "norm";
    case KernelKind::kElementwise:
      return "elementwise";
    case KernelKind::kCommunication:
      return "communication";
    case KernelKind::kTopK:
      return "top-k";
    case KernelKind::kRearrange:
      return "rearrange";
    case KernelKind::kCopyToGpu:
      return "copy to GPU";
    case KernelKind::kCopyToHost:
      return "copy to host";
  }
  return "unknown";
}

KernelKind KindOfKernel(std::string_view name) {
  std::string text = Normalised(name);
  if (text.starts_with("memcpy") || text.starts_with("memset") || text.starts_with("copy") ||
      text.starts_with("hipmemcpy")) {
    return text.starts_with("memset") ? KernelKind::kRearrange : KindOfCopy(text);
  }
  text = Normalised(name.substr(0, ParametersAt(name)));
  for (const Words& of : kWords) {
    if (HasAny(text, of.words)) return of.kind;
  }
  if (text == "norm" || (HasAny(text, {"norm"}) && !HasAny(text, {"normal"}))) {
    return KernelKind::kNorm;
  }
  if (HasAny(text, {"elementwise", "pointwise", "vectorized", "unrolled",  "tritonpoi",
                    "tritonred",   "tritonper", "reduce",     "reduction", "silu",
                    "gelu",        "swiglu",    "softmax",    "add",       "mul",
                    "cast",        "where",     "masked",     "dropout",   "fill"})) {
    return KernelKind::kElementwise;
  }
  return KernelKind::kOther;
}

std::string ShortName(std::string_view name) {
  const size_t parameters = ParametersAt(name);
  if (parameters == name.size()) return std::string(name);
  std::string kept;
  int depth = 0;
  for (size_t i = 0; i < parameters; ++i) {
    if (name.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (name[i] == '<') ++depth;
    if (depth == 0) kept += name[i];
    if (name[i] == '>' && depth > 0) --depth;
  }
  const size_t space = kept.rfind(' '), scope = kept.rfind("::");
  size_t begin = space == std::string::npos ? 0 : space + 1;
  if (scope != std::string::npos) begin = std::max(begin, scope + 2);
  return begin < kept.size() ? kept.substr(begin) : std::string(name);
}

Role RoleOf(KernelKind kind) {
  switch (kind) {
    case KernelKind::kGemm:
      return Role::kProjection;
    case KernelKind::kAttention:
      return Role::kAttention;
    case KernelKind::kCommunication:
      return Role::kSync;
    case KernelKind::kTopK:
      return Role::kSelection;
    case KernelKind::kRearrange:
      return Role::kLayout;
    case KernelKind::kCopyToGpu:
      return Role::kRecall;
    case KernelKind::kCopyToHost:
      return Role::kOffload;
    case KernelKind::kOther:
    case KernelKind::kNorm:
    case KernelKind::kElementwise:
      return Role::kOther;
  }
  return Role::kOther;
}

}  // namespace stallcast::traces
