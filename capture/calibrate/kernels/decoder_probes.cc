// Probes of the decoder's own kernels, and of attention.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <set>

#include "capture/calibrate/kernels/cold_memory.h"
#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/attention/decode_attention.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/decoder/decoder.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"
#include "kernels/runtime/probe.h"
#include "models/llm/model.h"
#include "models/llm/model_options.h"

namespace stallcast::capture {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

KernelProbe GemmProbe(const plan::Gemm& w) {
  return {w, [w] {
            auto gemm = std::make_shared<kernels::Gemm>();
            // What it takes to stream a weight depends on where it lies, by a hundredth: the layers
            // of a step on an H200 take 54.9 and 56.0 us by turns for the same product.
            constexpr int64_t kPlaces = int64_t{2} << 30;
            auto weights = std::make_shared<ColdMemory>(w.n * w.k, 1.0F, kPlaces);
            auto a = std::make_shared<Buffer<Bf16>>(w.m * w.k);
            auto c = std::make_shared<Buffer<Bf16>>(w.m * w.n);
            const Launch written = [=](int, cudaStream_t stream) {
              kernels::FillRandom(a->get(), a->size(), 1, 2, stream);
            };
            const Launch product = [=](int i, cudaStream_t stream) {
              gemm->Run(a->get(), weights->At(i), c->get(), w.m, w.n, w.k, stream);
            };
            written(0, nullptr);
            product(0, nullptr);
            return Prepared(product, written);
          }};
}

KernelProbe NormProbe(int64_t rows, int64_t width) {
  // All of it is in the cache: the product has just written the input, the residual is rewritten
  // from norm to norm, and the products' weights pass by it, so that the norm's own stay.
  return {plan::Norm{rows, width}, [=] {
            auto data = std::make_shared<Buffer<Bf16>>((3 * rows + 1) * width);
            const Launch written = [=](int, cudaStream_t stream) {
              kernels::FillRandom(data->get(), rows * width, 1, 6, stream);
            };
            const Launch norm = [=](int, cudaStream_t stream) {
              Bf16* input = data->get();
              kernels::AddRmsNorm(input, input + rows * width, input + 3 * rows * width, 1e-5F,
                                  rows, static_cast<int32_t>(width), input + 2 * rows * width,
                                  stream);
            };
            kernels::FillRandom(data->get(), data->size(), 1, 6, nullptr);
            return Prepared(norm, written);
          }};
}

KernelProbe RopeProbe(int64_t tokens, int32_t query_heads, int32_t kv_heads, int32_t dim,
                      bool bounds) {
  return {plan::RopeAppend{tokens, query_heads, kv_heads, dim, bounds}, [=] {
            const int64_t width = tokens * (query_heads + 2 * kv_heads) * dim;
            auto qkv = std::make_shared<Buffer<Bf16>>(width);
            auto query = Zeroed<Bf16>(tokens * query_heads * dim);
            auto cache = std::make_shared<ColdMemory>(tokens * 4 * kv_heads * dim);
            auto pages = std::make_shared<ColdMemory>(tokens * 2 * kv_heads * dim);
            auto page = Zeroed<int32_t>(tokens);
            // Not a page's first token, whose bounds would not be read.
            auto places = Shared(std::vector<int32_t>(static_cast<size_t>(tokens), 1));
            auto slots = Shared(Numbers(tokens));
            // As a model has them: the sine of zero takes a shorter way than that of a large angle.
            std::vector<float> each;
            for (int32_t i = 0; i < dim / 2; ++i) {
              each.push_back(static_cast<float>(std::pow(5e5, -2.0 * i / dim)));
            }
            auto frequencies = Shared(each);
            auto positions = Shared(std::vector<int32_t>(static_cast<size_t>(tokens), 32768));
            const Launch written = [=](int, cudaStream_t stream) {
              kernels::FillRandom(qkv->get(), width, 1, 6, stream);
            };
            const Launch rope = [=](int i, cudaStream_t stream) {
              kernels::PageBounds kept;
              if (bounds) kept = {pages->At(i), page->get(), 1};
              kernels::RopeAppend(qkv->get(), tokens, query_heads,
                                  kernels::NhdPages(cache->At(i), 2, kv_heads, dim), slots->get(),
                                  places->get(), positions->get(), frequencies->get(), 1,
                                  query->get(), kept, stream);
            };
            written(0, nullptr);
            return Prepared(rope, written);
          }};
}

KernelProbe SwiGluProbe(int64_t rows, int64_t width) {
  return {plan::SwiGlu{rows, width}, [=] {
            // Random: a division of zero takes the long way.
            auto data = std::make_shared<Buffer<Bf16>>(3 * rows * width);
            const Launch written = [=](int, cudaStream_t stream) {
              kernels::FillRandom(data->get(), 2 * rows * width, 1, 7, stream);
            };
            const Launch swiglu = [=](int, cudaStream_t stream) {
              kernels::SwiGlu(data->get(), rows, static_cast<int32_t>(width),
                              data->get() + 2 * rows * width, stream);
            };
            written(0, nullptr);
            return Prepared(swiglu, written);
          }};
}

KernelProbe SampleProbe(int64_t rows, int64_t vocabulary) {
  return {plan::Sample{rows, vocabulary}, [=] {
            auto logits = std::make_shared<Buffer<Bf16>>(rows * vocabulary);
            kernels::FillRandom(logits->get(), logits->size(), 1, 8, nullptr);
            auto token = Zeroed<int32_t>(rows);
            return [=](int, cudaStream_t stream) {
              kernels::ArgMax(logits->get(), rows, static_cast<int32_t>(vocabulary), token->get(),
                              stream);
            };
          }};
}

// One sequence with `rows` KV heads reads as many bytes from as many places as several do.
KernelProbe DecodeAttentionProbe(int64_t tokens, int32_t rows, int32_t group, int32_t dim,
                                 int64_t cached, double alike) {
  // Whole steps of the kernel either way; the smaller ones lie the farther apart.
  const int32_t page = cached > tokens ? 16 : 32;
  const int64_t pages = (tokens + page - 1) / page;
  const int64_t of = std::max(pages, cached / page);
  // Rows of a KV head, and of their pages those that they have in common and of their own.
  const int32_t share = of > pages && group == 1 ? 4 : 1;
  const int64_t common = share > 1 ? std::llround(static_cast<double>(pages) * alike) : 0;
  const int64_t own = pages - common;
  const int32_t heads = rows / share, sequences = std::max(1, heads / 8);
  const plan::DecodeAttention work{
      .kv_tokens = tokens * rows,
      .kv_tokens_max = tokens,
      .sequences = sequences,
      .kv_heads = rows / sequences,
      .group = group,
      .head_dim = dim,
      .distinct_tokens = share > 1 ? (common + share * own) * page * heads : 0,
      .cache_tokens = cached};
  return {work, [=]() -> Prepared {
            // Where pages are picked, of several layers: each reads few of many addresses.
            constexpr int64_t kLayers = int64_t{4} << 30;
            auto cache = std::make_shared<ColdMemory>(of * page * 2 * heads * dim, 1.0F,
                                                      of > pages ? kLayers : ColdMemory::kBytes);
            std::vector<int32_t> table, all = Numbers(of);
            const std::vector<int32_t> lengths(static_cast<size_t>(rows),
                                               static_cast<int32_t>(tokens));
            std::mt19937 random(6);
            for (int32_t head = 0; head < heads; ++head) {
              if (of > pages) std::shuffle(all.begin(), all.end(), random);
              for (int32_t i = 0; i < share; ++i) {
                // Top-k gives the pages in order.
                std::vector<int32_t> chosen(all.begin(), all.begin() + common);
                const auto first = all.begin() + common + i * own;
                chosen.insert(chosen.end(), first, first + own);
                std::ranges::sort(chosen);
                const auto sequence = static_cast<int32_t>(head / (heads / sequences) * of);
                for (const int32_t number : chosen) table.push_back(sequence + number);
              }
            }
            auto device_table = Shared(table), device_lengths = Shared(lengths);
            auto query = Zeroed<Bf16>(int64_t{2} * rows * group * dim);
            kernels::DecodeAttentionArgs args;
            args.query = query->get();
            args.output = query->get() + int64_t{rows} * group * dim;
            args.cache = kernels::NhdPages(cache->At(0), page, heads / sequences, dim);
            args.rows_a_head = share;
            args.pages = {device_table->get(), device_lengths->get(), static_cast<int32_t>(pages),
                          static_cast<int32_t>(tokens)};
            args.sequences = sequences;
            args.group = group;
            args.scale = 0.1F;
            auto workspace = Zeroed<float>(kernels::DecodeAttentionWorkspace(args));
            args.workspace = workspace->get();
            Launch attend = [=](int i, cudaStream_t stream) {
              static_cast<void>(query);
              static_cast<void>(device_table);
              static_cast<void>(device_lengths);
              static_cast<void>(workspace);
              kernels::DecodeAttentionArgs now = args;
              now.cache.data = cache->At(i);
              kernels::DecodeAttention(now, stream);
            };
            if (of == pages) return {std::move(attend)};
            // As in a step, behind the scores that picked the pages: what these leave in the cache
            // takes the place of what query heads read in common.
            constexpr int32_t kVectors = 2;
            const KernelProbe scores = ScoreProbe(static_cast<int32_t>(of), heads, share * group,
                                                  kVectors, dim, plan::Score::Pool::kNone);
            return {std::move(attend), scores.prepare().launch};
          }};
}

KernelProbe PrefillAttentionProbe(int64_t tokens, int32_t kv_heads, int32_t group, int32_t dim) {
  const plan::PrefillAttention work{1, tokens, 0, kv_heads * group, kv_heads, dim};
  return {work,
          [=] {
            // Random, as zeros toggle little and take less power.
            auto query = std::make_shared<Buffer<Bf16>>(2 * tokens * kv_heads * group * dim);
            auto cache = std::make_shared<Buffer<Bf16>>(tokens * 2 * kv_heads * dim);
            kernels::FillRandom(query->get(), query->size(), 1, 4, nullptr);
            kernels::FillRandom(cache->get(), cache->size(), 1, 3, nullptr);
            kernels::PrefillAttentionArgs args;
            args.query = query->get();
            args.output = query->get() + tokens * kv_heads * group * dim;
            args.cache =
                kernels::NhdPages(cache->get(), static_cast<int32_t>(tokens), kv_heads, dim);
            args.max_pages = 1;
            args.sequences = 1;
            args.tokens = static_cast<int32_t>(tokens);
            args.group = group;
            // Logits that differ by as much as real ones: a flat softmax takes more power, which
            // sets the clock.
            args.scale = 0.8F;
            return [=](int, cudaStream_t stream) {
              static_cast<void>(query);
              static_cast<void>(cache);
              kernels::PrefillAttention(args, stream);
            };
          },
          /*after_stream=*/false,
          /*sustained=*/true};
}

std::vector<llm::Model> ModelsToRun() {
  size_t free = 0, all = 0;
  kernels::Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  std::vector<llm::Model> models;
  for (const std::string& name : llm::ModelNames()) {
    llm::Model model = llm::WithOptions(llm::FindModel(name), {{"weight-dtype", "bf16"}});
    if (!llm::WhyNotExecutable(model).empty()) continue;
    if (model.experts && model.WeightBytes() > static_cast<Bytes>(all)) continue;
    models.push_back(std::move(model));
  }
  return models;
}

std::vector<KernelProbe> GemmProbes() {
  std::set<std::pair<int64_t, int64_t>> products;
  for (const llm::Model& m : ModelsToRun()) {
    for (int layer = 0; layer < m.layers; ++layer) {
      const llm::LayerWeights w = llm::WeightsOf(m, m.KindOf(layer));
      for (const llm::Matrix* matrix : {&w.input, &w.output, &w.router, &w.gate_up, &w.down}) {
        if (matrix->n > 0) products.insert({matrix->n, matrix->k});
      }
    }
    products.insert({m.vocabulary, m.hidden});
  }
  std::vector<KernelProbe> probes;
  for (const auto& [n, k] : products) {
    for (const int64_t m : {1, 2, 4, 8, 16, 32}) probes.push_back(GemmProbe({m, n, k}));
  }
  for (const int64_t m : {512, 2048, 8192, 32768}) {
    for (const auto& [n, k] :
         {std::pair{int64_t{6144}, int64_t{4096}}, {28672, 4096}, {4096, 14336}}) {
      probes.push_back(GemmProbe({m, n, k}));
      probes.back().sustained = true;
    }
  }
  return probes;
}

std::vector<KernelProbe> DecoderProbes() {
  std::vector<KernelProbe> probes;
  for (const int64_t rows : {1, 2, 4, 8, 16, 64, 1024, 8192}) {
    for (const int64_t width : {1024, 2048, 3584, 4096, 5120, 8192}) {
      probes.push_back(NormProbe(rows, width));
    }
  }
  for (const int64_t tokens : {1, 2, 4, 8, 16, 64, 1024, 8192}) {
    for (const bool bounds : {false, true}) {
      if (bounds && tokens > 64) continue;  // prefill summarizes whole pages
      probes.push_back(RopeProbe(tokens, 8, 2, 128, bounds));
      probes.push_back(RopeProbe(tokens, 28, 4, 128, bounds));
      probes.push_back(RopeProbe(tokens, 32, 8, 128, bounds));
      probes.push_back(RopeProbe(tokens, 64, 8, 128, bounds));
    }
  }
  for (const int64_t rows : {1, 2, 4, 8, 16, 64, 1024, 8192}) {
    for (const int64_t width : {768, 3072, 9728, 14336, 18944, 28672}) {
      probes.push_back(SwiGluProbe(rows, width));
    }
  }
  for (const int64_t rows : {1, 2, 4, 8, 16, 64}) {
    for (const int64_t vocabulary : {32000, 128256, 152064}) {
      probes.push_back(SampleProbe(rows, vocabulary));
    }
  }
  for (KernelProbe& probe : probes) probe.after_stream = true;
  return probes;
}

std::vector<KernelProbe> AttentionProbes() {
  // Of 28 and 32, one sequence's and four's: how they divide over the multiprocessors counts.
  constexpr std::array kQueryHeads = {28, 32, 64, 112, 128};
  std::vector<KernelProbe> probes;
  for (int64_t tokens = 128; tokens <= 262144; tokens *= 2) {
    for (const int32_t rows : {2, 4, 8, 16, 32, 64, 128}) {
      for (const int32_t group : {1, 4, 7, 8}) {
        const bool usual = rows == 8 || rows == 32;
        if (!usual && group != 4) continue;
        if (tokens * rows > int64_t{1} << 21) continue;
        probes.push_back(DecodeAttentionProbe(tokens, rows, group, 128));
      }
    }
  }
  // Pages picked from a long context that stays on the GPU, a choice a query head or KV head.
  for (const int64_t tokens : {512, 1024, 2048, 4096}) {
    for (const int64_t spread : {4, 16, 32}) {
      probes.push_back(DecodeAttentionProbe(tokens, 8, 4, 128, spread * tokens));
      for (const int32_t rows : kQueryHeads) {
        if (tokens * spread * rows > int64_t{1} << 23) continue;
        probes.push_back(DecodeAttentionProbe(tokens, rows, 1, 128, spread * tokens));
      }
    }
  }
  // So alike that what they read is in the cache.
  for (const int64_t tokens : {1024, 2048, 4096}) {
    for (const int32_t rows : kQueryHeads) {
      probes.push_back(DecodeAttentionProbe(tokens, rows, 1, 128, 16 * tokens, /*alike=*/0.9));
    }
  }
  for (int64_t tokens = 1024; tokens <= 65536; tokens *= 2) {
    probes.push_back(PrefillAttentionProbe(tokens, 8, 4, 128));
    probes.push_back(PrefillAttentionProbe(tokens, 4, 7, 128));
  }
  // Long prompts, so that their rates need not be extrapolated far.
  for (const int64_t tokens : {131072, 262144}) {
    probes.push_back(PrefillAttentionProbe(tokens, 8, 4, 128));
  }
  return probes;
}

}  // namespace stallcast::capture
