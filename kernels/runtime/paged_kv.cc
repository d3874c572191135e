#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

PagedKv NhdPages(__nv_bfloat16* data, int32_t page_tokens, int32_t kv_heads, int32_t head_dim) {
  const int64_t token = int64_t{kv_heads} * head_dim;
  const int64_t plane = page_tokens * token;
  return {data, 2 * plane, plane, token, head_dim, page_tokens, kv_heads, head_dim};
}

PagedKv HndPages(__nv_bfloat16* data, int32_t page_tokens, int32_t kv_heads, int32_t head_dim) {
  const int64_t plane = int64_t{page_tokens} * head_dim;
  return {data,    int64_t{2} * kv_heads * plane, plane, head_dim, 2 * plane, page_tokens, kv_heads,
          head_dim};
}

}  // namespace stallcast::kernels
