// Cutting a prompt's cache down to what a method keeps on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

// Page i of sequence s of the prompt lies in slot s * prompt_pages + i. Prompt and cache have the
// same heads; head dimensions are multiples of 8, anything else is an Error.

/// Of a sequence the cache has sink + chosen + window slots. The first hold the prompt's first
/// `sink` pages; the next, in order, the pages sink + units[set][i]; page p of the window, which
/// goes from first_window to the prompt's last of `pages`, lies in slot sink + chosen + p % window.
struct KeptPages {
  const int32_t* units = nullptr;  ///< [sequences * sets][chosen]
  int32_t sets = 1;                ///< a sequence: 1, or the KV heads
  int32_t sink = 0, chosen = 0, window = 0;
  int32_t first_window = 0, pages = 0;
};
void KeepPages(const PagedKv& prompt, int32_t prompt_pages, const KeptPages& kept,
               const PagedKv& cache, int32_t sequences, cudaStream_t stream);

/// The first `sink` tokens of `tokens` stay in their places, and of the last `window` ones token t
/// goes to place sink + (t - sink) % window. Place p is in page p / page_tokens of the sequence's
/// cache_pages.
struct KeptRing {
  int64_t sink = 0, window = 0, tokens = 0;
};
void KeepRing(const PagedKv& prompt, int32_t prompt_pages, const KeptRing& kept,
              const PagedKv& cache, int32_t cache_pages, int32_t sequences, cudaStream_t stream);

}  // namespace stallcast::kernels
