// The small kernels of a decoder layer and its matrix products, at the shapes of Llama-3.1-8B, and
// mixtures of experts.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/decoder/decoder.h"
#include "kernels/decoder/experts.h"
#include "kernels/executor/expert_choices.h"
#include "kernels/runtime/fill.h"
#include "models/llm/model.h"
#include "models/llm/model_options.h"
#include "tests/kernels/measure.h"

namespace stallcast::kernels {
namespace {

constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr int32_t kHidden = 4096, kMlp = 14336, kQueryHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr int32_t kVocabulary = 128256, kPageTokens = 16;
constexpr int64_t kLongest = 18944;  // columns of Qwen2.5-7B's down projection
constexpr int kLaunches = 64;

void Print(const char* name, int64_t rows, double bytes, double seconds, double read_rate) {
  const double rate = bytes / seconds;
  fmt::print("{:<12} {:>5} {:>12.0f} {:>9.2f} {:>8.0f} {:>7.1f} %\n", name, rows, bytes,
             seconds * 1e6, rate * 1e-9, 100 * rate / read_rate);
}

void Small(Stopwatch& watch, double read_rate) {
  for (const int64_t rows : {1, 4, 64}) {
    const int32_t heads = kQueryHeads + 2 * kKvHeads;
    const Buffer<__nv_bfloat16> input(rows * 2 * kMlp), output(rows * kMlp), weight(kHidden);
    const Buffer<__nv_bfloat16> logits(rows * kVocabulary);
    const Buffer<__nv_bfloat16> pages(rows * 2 * kPageTokens * kKvHeads * kHeadDim);
    const Buffer<int32_t> index(rows), position(rows);
    const Buffer<float> frequencies(kHeadDim / 2);
    for (const auto& buffer : {&input, &output, &weight, &logits}) {
      Check(cudaMemset(buffer->get(), 0, static_cast<size_t>(buffer->bytes())), "cudaMemset");
    }
    Check(cudaMemset(index.get(), 0, static_cast<size_t>(index.bytes())), "cudaMemset");
    Check(cudaMemset(position.get(), 1, static_cast<size_t>(position.bytes())), "cudaMemset");
    Check(cudaMemset(frequencies.get(), 0, static_cast<size_t>(frequencies.bytes())), "cudaMemset");
    const PagedKv cache = NhdPages(pages.get(), kPageTokens, kKvHeads, kHeadDim);
    Print("AddRmsNorm", rows, 2.0 * (4 * rows + 1) * kHidden,
          watch.InGraph(
              [&](int) {
                AddRmsNorm(input.get(), output.get(), weight.get(), 1e-5F, rows, kHidden,
                           output.get() + rows * kHidden, watch.stream());
              },
              kLaunches),
          read_rate);
    Print("RopeAppend", rows, 4.0 * rows * heads * kHeadDim,
          watch.InGraph(
              [&](int) {
                RopeAppend(input.get(), rows, kQueryHeads, cache, index.get(), index.get(),
                           position.get(), frequencies.get(), 1, output.get(), {}, watch.stream());
              },
              kLaunches),
          read_rate);
    Print("SwiGlu", rows, 6.0 * rows * kMlp,
          watch.InGraph([&](int) { SwiGlu(input.get(), rows, kMlp, output.get(), watch.stream()); },
                        kLaunches),
          read_rate);
    Print("ArgMax", rows, 2.0 * rows * kVocabulary,
          watch.InGraph(
              [&](int) { ArgMax(logits.get(), rows, kVocabulary, index.get(), watch.stream()); },
              kLaunches),
          read_rate);
  }
}

void Products(Stopwatch& watch, double read_rate) {
  struct Weight {
    const char* name;
    int64_t n, k;
  };
  Gemm gemm;
  const Buffer<__nv_bfloat16> weights(kGibibyte);
  const Buffer<__nv_bfloat16> a(int64_t{64} * kLongest), c(int64_t{64} * kVocabulary);
  Check(cudaMemset(weights.get(), 0x3C, static_cast<size_t>(weights.bytes())), "cudaMemset");
  Check(cudaMemset(a.get(), 0x3C, static_cast<size_t>(a.bytes())), "cudaMemset");
  for (const Weight& of :
       {Weight{"qkv", 6144, 4096}, Weight{"o", 4096, 4096}, Weight{"gate+up", 28672, 4096},
        Weight{"down", kHidden, kMlp}, Weight{"down, Qwen", 3584, kLongest},
        Weight{"head", kVocabulary, kHidden}}) {
    const int64_t copies = weights.size() / (of.n * of.k);
    for (const int64_t m : {1, 2, 4, 8, 16, 32, 64}) {
      const double seconds = watch.InGraph(
          [&](int i) {
            gemm.Run(a.get(), weights.get() + i % copies * of.n * of.k, c.get(), m, of.n, of.k,
                     watch.stream());
          },
          static_cast<int>(std::min<int64_t>(copies, 32)), 11);
      Print(of.name, m, 2.0 * (of.n * of.k + m * (of.n + of.k)), seconds, read_rate);
    }
  }
}

// The experts of a step's tokens as one kernel, and as a GEMM an expert: cuBLASLt's or
// SkinnyGemm(), whichever is faster.
void Experts(Stopwatch& watch, double read_rate) {
  constexpr int kRoutings = 16;
  for (const char* name : {"qwen3-30b-a3b", "gpt-oss-20b"}) {
    const llm::Model model = llm::WithOptions(llm::FindModel(name), {{"weight-dtype", "bf16"}});
    const llm::Experts& e = *model.experts;
    const llm::LayerWeights layer = llm::WeightsOf(model, {.experts = true});
    for (const int32_t tokens : {1, 8, 32}) {
      const int64_t pairs = int64_t{tokens} * e.active;
      const double distinct = model.DistinctExperts(tokens);
      const ExpertChoices choices(tokens, e.active, e.count, distinct);
      const Buffer<__nv_bfloat16> logits(int64_t{tokens} * e.count);
      FillRandom(logits.get(), logits.size(), 1, 1, watch.stream());
      std::vector<RoutingMemory> routings;
      for (int i = 0; i < kRoutings; ++i) {
        routings.emplace_back(tokens, e.count, e.active);
        Route(logits.get(), choices.At(0, i), routings.back().routing(), watch.stream());
      }
      const double route = watch.InGraph(
          [&](int i) {
            Route(logits.get(), choices.At(0, i), routings[i % kRoutings].routing(),
                  watch.stream());
          },
          kLaunches);
      Print("route", tokens, 2.0 * tokens * e.count, route, read_rate);
      for (const bool sums : {false, true}) {
        const llm::Matrix& of = sums ? layer.expert_down : layer.expert_gate_up;
        const int64_t expert = of.n * of.k;
        const Buffer<__nv_bfloat16> weights(of.count * expert), a(pairs * of.k), c(pairs * of.n);
        FillRandom(weights.get(), weights.size(), 1, 2, watch.stream());
        FillRandom(a.get(), a.size(), 1, 3, watch.stream());
        const double bytes = 2.0 * (distinct * static_cast<double>(expert) +
                                    static_cast<double>(pairs * of.k + pairs * of.n));
        const auto grouped = [&](int i) {
          const Routing& routing = routings[i % kRoutings].routing();
          if (sums) {
            GroupedGemmSum(a.get(), weights.get(), c.get(), routing, of.n, of.k, /*adds=*/false,
                           watch.stream());
          } else {
            GroupedGemm(a.get(), weights.get(), c.get(), routing, of.n, of.k, watch.stream());
          }
        };
        Print(sums ? "down" : "gate+up", tokens, bytes, watch.InGraph(grouped, kRoutings, 11),
              read_rate);
        Gemm gemm;
        std::vector<std::vector<ExpertGroup>> groups;
        for (const RoutingMemory& memory : routings) {
          const Routing& routing = memory.routing();
          Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
          const int32_t count = Downloaded(static_cast<const int32_t*>(routing.groups), 1).front();
          groups.push_back(Downloaded(static_cast<const ExpertGroup*>(routing.group), count));
        }
        const auto run = [&](const ExpertGroup& group) {
          gemm.Run(a.get() + group.first * of.k, weights.get() + group.expert * expert,
                   c.get() + group.first * of.n, group.rows, of.n, of.k, watch.stream());
        };
        for (const auto& step : groups) {
          for (const ExpertGroup& group : step) run(group);  // chooses their algorithms
        }
        const double looped = watch.InGraph(
            [&](int i) {
              for (const ExpertGroup& group : groups[static_cast<size_t>(i)]) run(group);
            },
            kRoutings, 11);
        Print("... looped", tokens, bytes, looped, read_rate);
      }
    }
  }
}

// When products begin behind an idle GPU, ms: those before each.
constexpr std::array kUntil = {5, 10, 20, 50, 100, 200, 400, 800, 1600};

// A prompt's products from an idle GPU on: until the power limit sets the clock, which random
// numbers reach and zeros do not. `paused`: with the host amid them, as where it waits for copies.
void FromIdle(Stopwatch& watch, bool paused) {
  constexpr int64_t kRows = 8192, kWide = int64_t{2} * kMlp;
  constexpr size_t kProducts = 600, kTogether = 3;
  constexpr std::chrono::milliseconds kIdle{1500}, kPause{1};
  Gemm gemm;
  const Buffer<__nv_bfloat16> a(kRows * kHidden), b(kWide * kHidden), c(kRows * kWide);
  FillRandom(a.get(), a.size(), 1, 2, watch.stream());
  FillRandom(b.get(), b.size(), 1, 3, watch.stream());
  const auto product = [&] {
    gemm.Run(a.get(), b.get(), c.get(), kRows, kWide, kHidden, watch.stream());
  };
  const auto finish = [&] {
    Check(cudaStreamSynchronize(watch.stream()), "cudaStreamSynchronize");
  };
  product();
  std::vector<Event> begins, ends;
  for (size_t i = 0; i < kProducts; ++i) {
    begins.emplace_back(cudaEventDefault);
    ends.emplace_back(cudaEventDefault);
  }
  finish();
  std::this_thread::sleep_for(kIdle);
  for (size_t i = 0; i < kProducts; ++i) {
    if (paused && i > 0 && i % kTogether == 0) {
      finish();
      std::this_thread::sleep_for(kPause);
    }
    Check(cudaEventRecord(begins[i], watch.stream()), "cudaEventRecord");
    product();
    Check(cudaEventRecord(ends[i], watch.stream()), "cudaEventRecord");
  }
  finish();
  fmt::print("{:<9}", paused ? "paused" : "in a row");
  size_t i = 0;
  for (const int until : kUntil) {
    double sum = 0;
    int count = 0;
    for (; i < kProducts && ElapsedSeconds(begins[0], begins[i]) * 1e3 < until; ++i, ++count) {
      sum += ElapsedSeconds(begins[i], ends[i]) * 1e3;
    }
    fmt::print(" {:>7}", count == 0 ? "-" : fmt::format("{:.3f}", sum / count));
  }
  fmt::print("\n");
}

void Run() {
  Stopwatch watch;
  double read_rate = 0;
  {
    const Buffer<char> span(4 * kGibibyte);
    Check(cudaMemset(span.get(), 0, static_cast<size_t>(span.bytes())), "cudaMemset");
    read_rate = watch.ReadRate(span);
  }
  fmt::print("Launches in a graph, weights beyond L2; reading 4 GiB: {:.0f} GB/s\n",
             read_rate * 1e-9);
  fmt::print("{:<12} {:>5} {:>12} {:>9} {:>8}   share of reads\n", "kernel", "rows", "bytes", "us",
             "GB/s");
  Small(watch, read_rate);
  Products(watch, read_rate);
  fmt::print("Experts of Qwen3-30B-A3B, then of gpt-oss-20b as bf16, by tokens of a step\n");
  Experts(watch, read_rate);
  fmt::print(
      "\nA product of 8192 x 28672 x 4096, ms, by when it begins behind an idle GPU, ms\n{:<9}",
      "");
  for (const int until : kUntil) fmt::print(" {:>7}", fmt::format("< {}", until));
  fmt::print("\n");
  for (const bool paused : {false, true}) FromIdle(watch, paused);
}

}  // namespace
}  // namespace stallcast::kernels

int main() { return stallcast::kernels::Benchmark("bench_decoder", stallcast::kernels::Run); }
