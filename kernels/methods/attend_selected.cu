// WG-KV with selection: the page table of what each row attends, from the ids that it selected.
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    AttendKernel(const int32_t* __restrict__ ids, int k, const int32_t* __restrict__ table,
                 int max_pages, int lead, int page_tokens, const int32_t* __restrict__ lengths,
                 const int32_t* __restrict__ begun, int32_t* __restrict__ attended,
                 int32_t* __restrict__ tokens) {
  const int row = static_cast<int>(blockIdx.x);
  const int pages = begun[row];
  ids += int64_t{row} * k;
  table += int64_t{row} * max_pages;
  attended += int64_t{row} * (lead + k);
  for (int i = static_cast<int>(threadIdx.x); i < lead + k; i += kThreads) {
    const int id = i < lead ? i - lead : ids[i - lead];
    attended[i] = table[id < pages ? lead + id : 0];
  }
  if (threadIdx.x != 0) return;
  // Ids ascend: those of pages that the row does not have come last, before them the partial one.
  const int present = min(k, pages);
  const int end = lengths[row] - lead * page_tokens;
  const bool partial = present > 0 && ids[present - 1] == pages - 1;
  const int missing = partial ? pages * page_tokens - end : 0;
  tokens[row] = (lead + present) * page_tokens - missing;
}

}  // namespace

void AttendSelected(const int32_t* ids, int32_t rows, int32_t k, const int32_t* table,
                    int32_t max_pages, int32_t lead, int32_t page_tokens, const int32_t* lengths,
                    const int32_t* begun, int32_t* attended, int32_t* tokens, cudaStream_t stream) {
  if (rows <= 0) return;
  AttendKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      ids, k, table, max_pages, lead, page_tokens, lengths, begun, attended, tokens);
  CheckLaunch("AttendSelected");
}

}  // namespace stallcast::kernels
