#include "models/methods/rkv/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "models/methods/common/head_keeper.h"
#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

// Keys of some tokens of a head in panels, each as long as it is or of length 1.
class PackedKeys {
 public:
  PackedKeys(const LayerTensors& tensors, int kv_head, std::span<const uint32_t> tokens, bool unit)
      : dim_(tensors.head_dim()), count_(std::ssize(tokens)) {
    rows_.resize(static_cast<size_t>((count_ + kRowBlock) * dim_));
    for (int64_t t = 0; t < count_; ++t) {
      float* row = rows_.data() + t * dim_;
      tensors.ReadKeys(kv_head, tokens[t], 1, row);
      if (!unit) continue;
      double square = 0;
      for (int64_t i = 0; i < dim_; ++i) square += double{row[i]} * double{row[i]};
      const auto length = static_cast<float>(std::sqrt(square) + 1e-8);
      for (int64_t i = 0; i < dim_; ++i) row[i] /= length;
    }
    const int64_t panels = (count_ + kPanel - 1) / kPanel;
    panels_.resize(static_cast<size_t>(panels * dim_ * kPanel));
    for (int64_t p = 0; p < panels; ++p) {
      PackPanel(rows_.data() + p * kPanel * dim_, Columns(p), dim_,
                panels_.data() + p * dim_ * kPanel);
    }
  }

  int64_t count() const { return count_; }
  int64_t panels() const { return (count_ + kPanel - 1) / kPanel; }
  int64_t Columns(int64_t panel) const { return std::min(kPanel, count_ - panel * kPanel); }
  const float* Row(int64_t t) const { return rows_.data() + t * dim_; }
  /// dots[r * kPanel + c] for `rows` rows of any vectors and the panel's columns.
  void Dots(const float* rows, int64_t row_count, int64_t panel, float* dots) const {
    PanelDots(rows, row_count, dim_, panels_.data() + panel * dim_ * kPanel, Columns(panel), dots,
              kPanel);
  }

 private:
  int64_t dim_, count_;
  std::vector<float> rows_, panels_;
};

// The mean cosine of each key with all, softmax over keys. Of each key's cosines that with the last
// other key that is similar to it counts nothing; if none is, that with the first key.
std::vector<double> Redundancy(const PackedKeys& keys, float threshold) {
  const int64_t count = keys.count();
  std::vector<double> sums(static_cast<size_t>(count));
  // Sums over all rows are products with the sum of rows.
  const int64_t dim = keys.Row(1) - keys.Row(0);
  std::vector<double> all(static_cast<size_t>(dim));
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t i = 0; i < dim; ++i) all[i] += static_cast<double>(keys.Row(t)[i]);
  }
  for (int64_t t = 0; t < count; ++t) {
    double with_all = 0, with_itself = 0;
    for (int64_t i = 0; i < dim; ++i) {
      const auto x = static_cast<double>(keys.Row(t)[i]);
      with_all += x * all[i];
      with_itself += x * x;
    }
    sums[t] = with_all - with_itself;
  }
  // From the last panel on, until each row of a block has found its last similar key.
  std::vector<float> dots(static_cast<size_t>(kRowBlock * kPanel));
  for (int64_t row = 0; row < count; row += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, count - row);
    std::array<bool, kRowBlock> found{};
    int64_t open = rows;
    for (int64_t panel = keys.panels() - 1; panel >= 0 && open > 0; --panel) {
      keys.Dots(keys.Row(row), rows, panel, dots.data());
      for (int64_t r = 0; r < rows; ++r) {
        const float* of_row = dots.data() + r * kPanel;
        for (int64_t c = keys.Columns(panel) - 1; c >= 0 && !found[r]; --c) {
          const int64_t other = panel * kPanel + c;
          const bool last = other == 0;  // nothing was similar: the first one stands in
          if (other == row + r) {
            if (!last) continue;
            found[r] = true;  // its own is left out anyway
          } else if (of_row[c] > threshold || last) {
            sums[other] -= static_cast<double>(of_row[c]);
            found[r] = true;
          }
        }
      }
      open = rows - std::count(found.begin(), found.begin() + rows, true);
    }
  }
  double most = -INFINITY, total = 0;
  for (double& sum : sums) most = std::max(most, sum /= static_cast<double>(count));
  for (double& sum : sums) total += sum = std::exp(sum - most);
  for (double& sum : sums) sum /= total;
  return sums;
}

class RkvHead final : public HeadKeeper {
 public:
  RkvHead(const LayerTensors& tensors, const RkvParams& params, int head)
      : tensors_(tensors), params_(params), head_(head) {}

  std::vector<uint32_t> AfterPrefill() override {
    const int64_t prompt = tensors_.prompt_tokens();
    std::vector<uint32_t> kept(static_cast<size_t>(prompt));
    std::iota(kept.begin(), kept.end(), 0u);
    if (prompt >= params_.budget) Compress(kept, prompt);
    return kept;
  }

  void MakeRoom(int step, std::vector<uint32_t>& kept) override {
    if (std::ssize(kept) < params_.budget + params_.buffer) return;
    Compress(kept, tensors_.prompt_tokens() + step);
  }

 private:
  // To the budget; the last queries are those before `token`.
  void Compress(std::vector<uint32_t>& kept, int64_t token) const {
    const int64_t before = std::ssize(kept) - params_.window;
    if (before <= params_.budget - params_.window) return;
    const std::vector<double> attention = Attention(std::span(kept).first(before), token);
    const std::vector<double> redundancy = Redundancy(
        PackedKeys(tensors_, head_, kept, /*unit=*/true), static_cast<float>(params_.threshold));
    std::vector<float> worth(static_cast<size_t>(before));
    const int64_t half = params_.kernel / 2;
    for (int64_t t = 0; t < before; ++t) {
      const auto first = attention.begin() + std::max<int64_t>(0, t - half);
      const auto end = attention.begin() + std::min(before, t + half + 1);
      worth[t] = static_cast<float>(params_.lambda * *std::max_element(first, end) -
                                    (1 - params_.lambda) * redundancy[t]);
    }
    std::vector<uint32_t> best = Best(worth, 0, params_.budget - params_.window);
    for (uint32_t& at : best) at = kept[at];
    best.insert(best.end(), kept.begin() + before, kept.end());
    kept = std::move(best);
  }

  std::vector<double> Attention(std::span<const uint32_t> tokens, int64_t token) const {
    const PackedKeys keys(tensors_, head_, tokens, /*unit=*/false);
    const int group = tensors_.group();
    const int64_t first = std::max(tensors_.first_query_token(), token - params_.window);
    const int64_t end = std::max(first + 1, token);
    std::vector<double> weights(tokens.size());
    std::vector<float> logits(tokens.size()), dots(static_cast<size_t>(kRowBlock * kPanel));
    for (int64_t query = first; query < end; ++query) {
      std::ranges::fill(logits, -INFINITY);
      for (int g = 0; g < group; ++g) {
        const auto row = tensors_.Query(head_ * group + g, query);
        for (int64_t panel = 0; panel < keys.panels(); ++panel) {
          keys.Dots(row.data(), 1, panel, dots.data());
          for (int64_t c = 0; c < keys.Columns(panel); ++c) {
            float& logit = logits[panel * kPanel + c];
            logit = std::max(logit, dots[c]);
          }
        }
      }
      const float most = *std::ranges::max_element(logits), scale = tensors_.softmax_scale();
      double total = 0;
      for (const float logit : logits)
        total += static_cast<double>(std::exp(scale * (logit - most)));
      for (size_t t = 0; t < weights.size(); ++t) {
        weights[t] += static_cast<double>(std::exp(scale * (logits[t] - most))) /
                      (total * static_cast<double>(end - first));
      }
    }
    return weights;
  }

  const LayerTensors& tensors_;
  const RkvParams& params_;
  int head_;
};

}  // namespace

void RkvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                       AttendedRanges& attended) const {
  std::vector<std::unique_ptr<HeadKeeper>> heads;
  for (int head = 0; head < tensors.kv_heads(); ++head) {
    heads.push_back(std::make_unique<RkvHead>(tensors, params_, head));
  }
  ReplayKeepers(tensors, heads, {}, access, attended);
}

}  // namespace stallcast::methods
