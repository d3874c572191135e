#include "models/methods/common/footprint.h"

#include <algorithm>

namespace stallcast::methods {

Footprint PagedFootprint(const llm::Model& model, int64_t context, int32_t batch,
                         int64_t dense_layers, int64_t page, int64_t budget, int selection_heads) {
  const int64_t dense = std::min<int64_t>(dense_layers, model.layers);
  const int64_t sparse = model.layers - dense;
  const int64_t pages = Pages(context, page);
  const int64_t cached = std::min(pages, budget / page);
  const int64_t page_bytes = page * model.KvBytesPerTokenLayer();
  // An upper and a lower vector a page are as large as one token's key and value.
  const int64_t summary_bytes = model.KvBytesPerTokenLayer();
  const int64_t map_bytes = selection_heads * int64_t{sizeof(int32_t)};
  return {.gpu_kv = batch * (dense * pages + sparse * cached) * page_bytes,
          .gpu_index = batch * sparse * (pages * summary_bytes + (pages + cached) * map_bytes),
          .host = batch * sparse * pages * page_bytes};
}

}  // namespace stallcast::methods
