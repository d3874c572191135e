#include "kernels/executor/methods/page_bounds.h"

#include <vector>

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

void ResetPartialBounds(const DecodeRun& run, int layer, int64_t page_tokens, int64_t pages,
                        __nv_bfloat16* summaries) {
  const auto d = static_cast<size_t>(run.head_dim());
  for (int row = 0; row < run.rows(); ++row) {
    const int64_t context = run.Context(-1, row / run.kv_heads());
    const int64_t first = context / page_tokens * page_tokens;
    if (first == context) continue;
    std::vector<__nv_bfloat16> bounds(2 * d);
    for (int64_t token = first; token < context; ++token) {
      const __nv_bfloat16* key =
          run.trace->Key(run.source_of[static_cast<size_t>(layer)],
                         row % run.kv_heads() % run.trace->kv_heads(), token);
      for (size_t i = 0; i < d; ++i) {
        const bool lower = token == first || __bfloat162float(key[i]) < __bfloat162float(bounds[i]);
        const bool upper =
            token == first || __bfloat162float(key[i]) > __bfloat162float(bounds[d + i]);
        if (lower) bounds[i] = key[i];
        if (upper) bounds[d + i] = key[i];
      }
    }
    __nv_bfloat16* to =
        summaries + (int64_t{row} * pages + first / page_tokens) * 2 * static_cast<int64_t>(d);
    Check(cudaMemcpy(to, bounds.data(), bounds.size() * sizeof(bounds[0]), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
}

}  // namespace stallcast::kernels
