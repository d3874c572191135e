#include "traces/access_log.h"

#include <fmt/format.h>

namespace stallcast::traces {

void IdLists::Append(std::span<const uint32_t> ids) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ends_.push_back(ids_.size());
}

std::span<const uint32_t> IdLists::operator[](int64_t cell) const {
  const auto index = static_cast<size_t>(cell);
  const uint64_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::span(ids_).subspan(begin, ends_[index] - begin);
}

std::string FirstFault(const AccessLog& log) {
  if (log.steps < 0) return "negative number of steps";
  for (size_t i = 0; i < log.layers.size(); ++i) {
    const LayerAccess& layer = log.layers[i];
    if (i > 0 && layer.layer <= log.layers[i - 1].layer) return "layers are not in ascending order";
    if (layer.heads < 0) return fmt::format("layer {}: negative number of heads", layer.layer);
    const int64_t cells = int64_t{log.steps} * layer.heads;
    const auto wrong = [](int64_t size, int64_t want) { return size != 0 && size != want; };
    if (wrong(std::ssize(layer.flags), cells) || wrong(std::ssize(layer.similarity), cells) ||
        wrong(layer.selected.size(), cells) || wrong(layer.recalled_now.size(), cells) ||
        wrong(layer.recalled_ahead.size(), cells) ||
        wrong(std::ssize(layer.attended_tokens), cells) ||
        wrong(std::ssize(layer.evicted), cells) ||
        wrong(std::ssize(layer.output_error), log.steps) ||
        wrong(std::ssize(layer.cached_tokens), cells) ||
        wrong(std::ssize(layer.attention_mass), log.steps)) {
      return fmt::format("layer {}: a column holds neither one entry a cell nor none", layer.layer);
    }
  }
  return "";
}

}  // namespace stallcast::traces
