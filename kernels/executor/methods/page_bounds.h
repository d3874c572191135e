// Bounds of a layer's pages as RopeAppend() goes on with them.
#pragma once

#include "kernels/executor/cache_binder.h"

namespace stallcast::kernels {

/// Anew what the bounds of each row's last page, if it is not full, had before the first step. They
/// grow from the page's first token on. summaries: [row][pages][2][head_dim].
void ResetPartialBounds(const DecodeRun& run, int layer, int64_t page_tokens, int64_t pages,
                        __nv_bfloat16* summaries);

}  // namespace stallcast::kernels
