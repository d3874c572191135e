// Factors of keys by cuSOLVER, which is no dependency: it is found when it is wanted first.
#include <cublasLt.h>
#include <cusolverDn.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/methods/key_factors.h"
#include "kernels/methods/shadowkv.h"
#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

// By its plain name first, then beside cuBLASLt, which this program is linked with, and where the
// toolkit's packages put it.
std::vector<std::string> Places() {
  std::vector<std::string> folders = {""};
  Dl_info linked{};
  if (dladdr(reinterpret_cast<void*>(&cublasLtGetVersion), &linked) != 0 &&
      linked.dli_fname != nullptr) {
    const std::string library = linked.dli_fname;
    if (const size_t end = library.rfind('/'); end != std::string::npos) {
      folders.push_back(library.substr(0, end + 1));
    }
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) folders.push_back(fmt::format("{}/lib64/", root));
  }
  folders.emplace_back("/usr/local/cuda/lib64/");
  folders.emplace_back("/usr/local/cuda/targets/x86_64-linux/lib/");
  std::vector<std::string> places;
  for (const std::string& folder : folders) {
    for (const char* name : {"libcusolver.so.12", "libcusolver.so.11", "libcusolver.so"}) {
      places.push_back(folder + name);
    }
  }
  return places;
}

void* Library() {
  static void* const library = [] {
    for (const std::string& place : Places()) {
      if (void* found = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
    }
    return static_cast<void*>(nullptr);
  }();
  return library;
}

struct Cusolver {
  decltype(&cusolverDnCreate) Create;
  decltype(&cusolverDnDestroy) Destroy;
  decltype(&cusolverDnSetStream) SetStream;
  decltype(&cusolverDnCreateGesvdjInfo) CreateGesvdjInfo;
  decltype(&cusolverDnDestroyGesvdjInfo) DestroyGesvdjInfo;
  decltype(&cusolverDnSgesvdj_bufferSize) SgesvdjBufferSize;
  decltype(&cusolverDnSgesvdj) Sgesvdj;
  decltype(&cusolverDnXgesvdjGetSweeps) GetSweeps;
};

template <class Function>
void Bind(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(Library(), name));
  if (function == nullptr) {
    throw Error(fmt::format("lacks {}", name), "cuSOLVER",
                "install the cuSOLVER of the CUDA toolkit that Stallcast was built with");
  }
}

Cusolver Load() {
  if (Library() == nullptr) {
    throw Error("libcusolver.so not found", "cuSOLVER",
                "install it (package libcusolver of the CUDA toolkit), or add its folder to "
                "LD_LIBRARY_PATH");
  }
  Cusolver cusolver;
  Bind("cusolverDnCreate", cusolver.Create);
  Bind("cusolverDnDestroy", cusolver.Destroy);
  Bind("cusolverDnSetStream", cusolver.SetStream);
  Bind("cusolverDnCreateGesvdjInfo", cusolver.CreateGesvdjInfo);
  Bind("cusolverDnDestroyGesvdjInfo", cusolver.DestroyGesvdjInfo);
  Bind("cusolverDnSgesvdj_bufferSize", cusolver.SgesvdjBufferSize);
  Bind("cusolverDnSgesvdj", cusolver.Sgesvdj);
  Bind("cusolverDnXgesvdjGetSweeps", cusolver.GetSweeps);
  return cusolver;
}

const Cusolver& LoadCusolver() {
  static const Cusolver cusolver = Load();
  return cusolver;
}

const char* Name(cusolverStatus_t status) {
  switch (status) {
    case CUSOLVER_STATUS_NOT_INITIALIZED:
      return "not initialized";
    case CUSOLVER_STATUS_ALLOC_FAILED:
      return "out of memory";
    case CUSOLVER_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUSOLVER_STATUS_ARCH_MISMATCH:
      return "architecture mismatch";
    case CUSOLVER_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case CUSOLVER_STATUS_INTERNAL_ERROR:
      return "internal error";
    default:
      return "failed";
  }
}

void CheckSolver(cusolverStatus_t status, const char* call) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw Error(fmt::format("{} (cuSOLVER status {})", Name(status), static_cast<int>(status)), call,
              "check that cuSOLVER matches the driver and that device memory is free");
}

template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cusolverStatus_t (*)(Handle)>;

// All rows lie in columns of the other side: cuSOLVER takes no matrix with more columns than rows.
struct Shape {
  Shape(int64_t of_tokens, int32_t heads, int32_t dim, int32_t of_rank)
      : tokens(of_tokens), kv_heads(heads), head_dim(dim), rank(of_rank) {
    if (dim != 64 && dim != 128) {
      throw Error(fmt::format("a head dimension of {}", dim), "KeyFactorizer", "use 64 or 128");
    }
    if (rank < 16 || rank > 256 || rank % 16 != 0) {
      throw Error(fmt::format("factors of rank {}", rank), "KeyFactorizer",
                  "use a multiple of 16, up to 256");
    }
    if (tokens < 1 || heads < 1 || tokens > INT32_MAX) {
      throw Error(fmt::format("{} tokens of {} KV heads", tokens, heads), "KeyFactorizer",
                  "use a context of at least one token, and a model with KV heads");
    }
  }
  int64_t width() const { return int64_t{kv_heads} * head_dim; }
  bool tall() const { return tokens >= width(); }
  int m() const { return static_cast<int>(std::max(tokens, width())); }
  int n() const { return static_cast<int>(std::min(tokens, width())); }

  int64_t tokens;
  int32_t kv_heads, head_dim, rank;
};

}  // namespace

struct KeyFactorizer::Impl {
  explicit Impl(const Shape& of)
      : shape(of),
        cusolver(LoadCusolver()),
        handle(nullptr, cusolver.Destroy),
        parameters(nullptr, cusolver.DestroyGesvdjInfo),
        matrix(int64_t{shape.m()} * shape.n()),
        left(matrix.size()),
        right(int64_t{shape.n()} * shape.n()),
        values(shape.n()) {
    cusolverDnHandle_t new_handle = nullptr;
    CheckSolver(cusolver.Create(&new_handle), "cusolverDnCreate");
    handle.reset(new_handle);
    gesvdjInfo_t new_parameters = nullptr;
    CheckSolver(cusolver.CreateGesvdjInfo(&new_parameters), "cusolverDnCreateGesvdjInfo");
    parameters.reset(new_parameters);
    int size = 0;
    CheckSolver(
        cusolver.SgesvdjBufferSize(handle.get(), CUSOLVER_EIG_MODE_VECTOR, /*econ=*/1, shape.m(),
                                   shape.n(), matrix.get(), shape.m(), values.get(), left.get(),
                                   shape.m(), right.get(), shape.n(), &size, parameters.get()),
        "cusolverDnSgesvdj_bufferSize");
    workspace = Buffer<float>(size);
  }

  void Decompose(cudaStream_t stream) {
    CheckSolver(cusolver.SetStream(handle.get(), stream), "cusolverDnSetStream");
    CheckSolver(
        cusolver.Sgesvdj(handle.get(), CUSOLVER_EIG_MODE_VECTOR, /*econ=*/1, shape.m(), shape.n(),
                         matrix.get(), shape.m(), values.get(), left.get(), shape.m(), right.get(),
                         shape.n(), workspace.get(), static_cast<int>(workspace.size()),
                         outcome.get(), parameters.get()),
        "cusolverDnSgesvdj");
  }

  // n + 1 says that the last sweep was not enough for the tolerance: torch then takes a slower
  // method, here the factors are taken as they are, far finer than bf16.
  void CheckOutcome(cudaStream_t stream) {
    Check(cudaMemcpyAsync(outcome_on_host.get(), outcome.get(), sizeof(int), cudaMemcpyDeviceToHost,
                          stream),
          "cudaMemcpyAsync");
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const int got = *outcome_on_host.get();
    if (got == 0 || got == shape.n() + 1) return;
    throw Error(
        fmt::format("no factors of {} x {} keys (info {})", shape.tokens, shape.width(), got),
        "cusolverDnSgesvdj", "check that the keys are finite");
  }

  Shape shape;
  const Cusolver& cusolver;
  Owned<cusolverDnHandle_t> handle;
  Owned<gesvdjInfo_t> parameters;
  Buffer<float> matrix, left, right, values, workspace;  ///< by columns
  Buffer<int> outcome{1}, outcome_on_host{1, Memory::kPinned};
};

KeyFactorizer::KeyFactorizer(int64_t tokens, int32_t kv_heads, int32_t head_dim, int32_t rank)
    : impl_(std::make_unique<Impl>(Shape(tokens, kv_heads, head_dim, rank))) {}

KeyFactorizer::~KeyFactorizer() = default;

int32_t KeyFactorizer::Sweeps() const {
  int sweeps = 0;
  CheckSolver(impl_->cusolver.GetSweeps(impl_->handle.get(), impl_->parameters.get(), &sweeps),
              "cusolverDnXgesvdjGetSweeps");
  return sweeps;
}

bool KeyFactorizer::Available() { return Library() != nullptr; }

void KeyFactorizer::Run(const TokenView& keys, __nv_bfloat16* u, __nv_bfloat16* basis,
                        cudaStream_t stream) {
  const Shape& shape = impl_->shape;
  // Of the transposed matrix the right vectors are those of tokens.
  WidenKeys(keys, shape.tokens, shape.kv_heads, shape.head_dim, /*by_channel=*/shape.tall(),
            impl_->matrix.get(), stream);
  impl_->Decompose(stream);
  const Buffer<float>& of_tokens = shape.tall() ? impl_->left : impl_->right;
  const Buffer<float>& of_channels = shape.tall() ? impl_->right : impl_->left;
  RoundFactor(of_tokens.get(), shape.tokens, shape.n(), impl_->values.get(), /*scaled=*/false,
              shape.rank, u, stream);
  RoundFactor(of_channels.get(), shape.width(), shape.n(), impl_->values.get(), /*scaled=*/true,
              shape.rank, basis, stream);
  impl_->CheckOutcome(stream);
}

}  // namespace stallcast::kernels
