// What the host's pool costs by how the GPU maps it: huge pages that are registered, as runs have
// it, which the GPU translates 4 KiB at a time, and memory that the driver makes in its own pages.
#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/executor/host_pool.h"
#include "kernels/held_train.h"
#include "kernels/movement.h"
#include "kernels/pariskv.h"
#include "tests/kernels/measure.h"
#include "traces/common/error.h"
#include "traces/common/median.h"

namespace stallcast::kernels {
namespace {

constexpr int kLayers = 32, kHeads = 8, kDim = 128;
constexpr int64_t kPool = int64_t{16} << 30, kLayer = kPool / kLayers, kPage = 16384;

/// A function of the driver, which the program is not linked to.
template <class Function>
Function* OfDriver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  Check(
      cudaGetDriverEntryPointByVersion(name, &function, CUDART_VERSION, cudaEnableDefault, &found),
      name);
  return reinterpret_cast<Function*>(function);
}

/// Pinned memory of the host that cuMemCreate() makes.
class DriverPages {
 public:
  explicit DriverPages(size_t bytes) : bytes_(bytes) {
    int device = 0;
    Check(cudaGetDevice(&device), "cudaGetDevice");
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    Require(OfDriver<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
                &page_, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            "cuMemGetAllocationGranularity");
    bytes_ = (bytes + page_ - 1) / page_ * page_;
    CUmemGenericAllocationHandle handle{};
    Require(OfDriver<decltype(cuMemCreate)>("cuMemCreate")(&handle, bytes_, &properties, 0),
            "cuMemCreate");
    Require(OfDriver<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&data_, bytes_, 0, 0, 0),
            "cuMemAddressReserve");
    Require(OfDriver<decltype(cuMemMap)>("cuMemMap")(data_, bytes_, 0, handle, 0), "cuMemMap");
    CUmemAccessDesc access[2]{};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    access[1].location = properties.location;
    for (CUmemAccessDesc& of : access) of.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    Require(OfDriver<decltype(cuMemSetAccess)>("cuMemSetAccess")(data_, bytes_, access, 2),
            "cuMemSetAccess");
    // It lasts as long as it is mapped.
    Require(OfDriver<decltype(cuMemRelease)>("cuMemRelease")(handle), "cuMemRelease");
  }
  DriverPages(const DriverPages&) = delete;
  DriverPages& operator=(const DriverPages&) = delete;
  ~DriverPages() {
    OfDriver<decltype(cuMemUnmap)>("cuMemUnmap")(data_, bytes_);
    OfDriver<decltype(cuMemAddressFree)>("cuMemAddressFree")(data_, bytes_);
  }
  std::byte* get() const { return reinterpret_cast<std::byte*>(data_); }
  size_t page() const { return page_; }

 private:
  static void Require(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    throw Error(fmt::format("the driver answered {}", static_cast<int>(result)), call,
                "this machine has no such memory");
  }
  size_t bytes_ = 0, page_ = 0;
  CUdeviceptr data_ = 0;
};

class Bench {
 public:
  void Run(const std::string& what, std::byte* pool) {
    fmt::print("\n{}\n", what);
    const auto begin = std::chrono::steady_clock::now();
    std::memset(pool, 1, int64_t{1} << 30);
    Line("a GiB written by one thread, ms", Since(begin) * 1e3);
    for (const int tokens : {100, 1000}) {
      Line(fmt::format("fetch of 8 x {} tokens, keys and values apart, us", tokens),
           Fetch(pool, tokens) * 1e6);
    }
    Line("zero-copy gather of 8 x 40 pages, us", Gather(pool) * 1e6);
    constexpr int64_t kLarge = int64_t{64} << 20;
    Line("one copy of 64 MiB, GB/s", kLarge / watch_.Once([&] { Copy(0, pool, kLarge); }) * 1e-9);
    Line("a page by a copy of its own, us", Pages(pool) * 1e6);
    const auto called = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) Copy(i * kPage, Page(pool, i), kPage);
    Line("its call, us", Since(called) / 100 * 1e6);
    Check(cudaStreamSynchronize(watch_.stream()), "cudaStreamSynchronize");
    Line("one copy of 64 MiB back, GB/s",
         kLarge / watch_.Once([&] { CopyBack(pool, kLarge); }) * 1e-9);
    Line("host gather of 7 MiB of pages by four threads, GB/s", HostGathered(pool) * 1e-9);
  }

 private:
  static double Since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  static void Line(const std::string& what, double value) {
    fmt::print("  {:<58} {:>9.2f}\n", what, value);
  }
  int64_t Random(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  std::byte* Page(std::byte* pool, int layer) {
    return pool + layer % kLayers * kLayer + Random(kLayer / kPage) * kPage;
  }
  void Copy(int64_t to, const std::byte* from, int64_t bytes) {
    Check(cudaMemcpyAsync(device_.get() + to, from, static_cast<size_t>(bytes),
                          cudaMemcpyHostToDevice, watch_.stream()),
          "cudaMemcpyAsync");
  }
  void CopyBack(std::byte* to, int64_t bytes) {
    Check(cudaMemcpyAsync(to, device_.get(), static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                          watch_.stream()),
          "cudaMemcpyAsync");
  }

  /// Seconds of a layer's work among all layers', of others in each turn.
  template <class Work>
  double InTurn(const Work& work) {
    work(0, 0);  // loads it
    std::vector<double> seconds;
    for (int turn = 0; turn < kTurns; ++turn) {
      seconds.push_back(train_.Seconds(watch_.stream(), kLayers, [&](int layer) {
        work(turn, layer);
      }) / kLayers);
    }
    return Median(std::move(seconds));
  }

  double Fetch(const std::byte* pool, int tokens) {
    constexpr int64_t kTokens = kLayer / (2 * kHeads * kDim * 2);
    std::vector<int32_t> numbers(int64_t{kTurns} * kLayers * kHeads * tokens);
    for (auto row = numbers.begin(); row != numbers.end(); row += tokens) {
      for (int i = 0; i < tokens; ++i) row[i] = static_cast<int32_t>(Random(kTokens));
      std::sort(row, row + tokens);
    }
    const Buffer<int32_t> places = Uploaded(numbers);
    const Buffer<__nv_bfloat16> out(int64_t{kHeads} * tokens * 2 * kDim);
    return InTurn([&](int turn, int layer) {
      const TokenView from{
          reinterpret_cast<__nv_bfloat16*>(const_cast<std::byte*>(pool + layer * kLayer)),
          kTokens * kDim, kDim, kHeads * kTokens * kDim};
      FetchTokens(from, places.get() + (int64_t{turn} * kLayers + layer) * kHeads * tokens, nullptr,
                  kHeads, 1, tokens, 0, 0, {out.get(), int64_t{tokens} * 2 * kDim, 2 * kDim, kDim},
                  0, kDim, 64, watch_.stream());
    });
  }

  double Gather(const std::byte* pool) {
    constexpr int32_t kPieces = kHeads * 40, kBlocks = 16;
    std::vector<int64_t> source(int64_t{kTurns} * kLayers * kPieces);
    for (int64_t& of : source) of = Random(kLayer / kPage);
    std::vector<int32_t> slot, head;
    for (int32_t i = 0; i < kPieces; ++i) slot.push_back(i / kHeads), head.push_back(i % kHeads);
    const Buffer<int64_t> sources = Uploaded(source);
    const Buffer<int32_t> slots = Uploaded(slot), heads = Uploaded(head);
    const PagedKv cache =
        NhdPages(reinterpret_cast<__nv_bfloat16*>(device_.get()), 32, kHeads, kDim);
    return InTurn([&](int turn, int layer) {
      ZeroCopyGather(reinterpret_cast<const __nv_bfloat16*>(pool + layer * kLayer),
                     sources.get() + (int64_t{turn} * kLayers + layer) * kPieces, slots.get(),
                     heads.get(), kPieces, nullptr, cache, false, kBlocks, watch_.stream());
    });
  }

  double Pages(std::byte* pool) {
    constexpr int kCopies = 320;
    std::vector<double> seconds;
    for (int layer = 0; layer < kLayers; ++layer) {
      seconds.push_back(train_.Seconds(watch_.stream(), kCopies, [&](int i) {
        Copy(i * kPage, Page(pool, layer), kPage);
      }) / kCopies);
    }
    return Median(std::move(seconds));
  }

  double HostGathered(const std::byte* pool) {
    constexpr int64_t kPieces = 448;
    const Buffer<char> out(kPieces * kPage, Memory::kPinned);
    std::memset(out.get(), 1, static_cast<size_t>(out.bytes()));
    std::vector<double> seconds;
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<int64_t> places(kPieces);
      for (int64_t& place : places) place = Random(kLayer / kPage);
      const auto begin = std::chrono::steady_clock::now();
      HostGather(pool + layer * kLayer, places.data(), kPieces, {kPage}, out.get(), 4);
      seconds.push_back(Since(begin));
    }
    return static_cast<double>(out.bytes()) / Median(std::move(seconds));
  }

  static constexpr int kTurns = 5;
  Stopwatch watch_;
  HeldTrain train_;
  std::mt19937_64 random_{7};
  const Buffer<std::byte> device_{int64_t{64} << 20};
};

void RunAll() {
  Bench bench;
  {
    HostPool registered;
    bench.Run("huge pages, registered", registered.Get(kPool));
  }
  const DriverPages made(kPool);
  bench.Run(fmt::format("made by the driver, {} KiB at a time", made.page() >> 10), made.get());
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_host_pages", stallcast::kernels::RunAll); }
