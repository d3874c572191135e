#include "models/methods/pariskv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/pariskv/codes.h"

namespace stallcast::methods {

ParisKvShares SharesOf(const ParisKvParams& params, int64_t tokens) {
  if (params.ratios == ParisKvParams::Ratios::kFixed) return {params.rho, params.beta};
  // As the public code has it: shorter regions need larger shares to cover the best tokens.
  if (tokens < 5'000) return {0.5, 0.5};
  if (tokens < 10'000) return {0.3, 0.25};
  if (tokens < 30'000) return {0.25, 0.2};
  return {0.2, 0.1};
}

int64_t Candidates(const ParisKvParams& params, int64_t tokens) {
  const double share = std::ceil(SharesOf(params, tokens).beta * static_cast<double>(tokens));
  return std::min(tokens, std::max(params.topk, static_cast<int64_t>(share)));
}

namespace {

class Retrieval {
 public:
  Retrieval(const LayerTensors& tensors, const ParisKvParams& params)
      : tensors_(tensors),
        params_(params),
        book_(tensors.head_dim(), static_cast<int>(params.subspaces), params.rotation,
              static_cast<uint64_t>(params.seed)),
        codes_(static_cast<size_t>(tensors.kv_heads()), KeyCodes(book_)),
        counts_(static_cast<size_t>(tensors.kv_heads())) {
    const int64_t end = params.RetrievalEnd(tensors.prompt_tokens(), tensors.steps() - 1);
    tbb::parallel_for(0, tensors.kv_heads(), [&](int head) {
      std::vector<float> key(static_cast<size_t>(tensors.head_dim()));
      codes_[head].Reserve(std::max<int64_t>(0, end - params.sink));
      for (int64_t token = params.sink; token < end; ++token) {
        tensors.ReadKeys(head, token, 1, key.data());
        codes_[head].Append(key.data());
      }
    });
  }

  /// The index grows to the first `tokens` tokens after the sink.
  void Slide(int64_t tokens) {
    tokens_ = tokens;
    for (int head = 0; head < tensors_.kv_heads(); ++head) {
      counts_[head] = ClusterCounts(book_, codes_[head], tokens);
    }
  }

  /// The tokens that selection head `head` of `heads` retrieves, ascending.
  std::vector<uint32_t> Select(int head, int heads, int64_t token) const {
    const int queries = tensors_.query_heads() / heads;
    const int kv_head = head * queries / tensors_.group();
    std::vector<float> query(static_cast<size_t>(book_.dim)), rotated(query.size());
    for (int g = 0; g < queries; ++g) {
      const std::span<const float> q = tensors_.Query(head * queries + g, token);
      for (int i = 0; i < book_.dim; ++i) query[i] += q[i];
    }
    for (float& x : query) x *= 1.0f / static_cast<float>(queries);
    book_.Rotate(query.data(), rotated.data());
    const KeyCodes& codes = codes_[kv_head];
    const std::vector<uint8_t> table = CollisionTable(book_, rotated.data(), counts_[kv_head],
                                                      SharesOf(params_, tokens_).rho, tokens_);
    std::vector<uint8_t> scores(static_cast<size_t>(tokens_));
    CollisionScores(book_, codes, table, scores);
    const std::vector<uint32_t> candidates = BestBuckets(scores, Candidates(params_, tokens_));
    const Estimator estimate(book_, rotated.data());
    std::vector<float> estimates(candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) {
      estimates[i] = estimate(codes, candidates[i]);
    }
    std::vector<uint32_t> best = Best(estimates, 0, params_.topk);
    for (uint32_t& at : best) at = candidates[at] + static_cast<uint32_t>(params_.sink);
    return best;
  }

 private:
  const LayerTensors& tensors_;
  const ParisKvParams& params_;
  CodeBook book_;
  std::vector<KeyCodes> codes_;
  std::vector<std::vector<int32_t>> counts_;
  int64_t tokens_ = 0;
};

}  // namespace

void ParisKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                           AttendedRanges& attended) const {
  const bool alone = params_.query == ParisKvParams::Query::kQueryHead;
  const int heads = alone ? tensors.query_heads() : tensors.kv_heads();
  Retrieval retrieval(tensors, params_);
  LogCells cells(access, attended, heads);
  std::vector<std::vector<uint32_t>> chosen;
  // Between two slides of the window steps do not depend on each other.
  for (int begin = 0, next; begin < tensors.steps(); begin = next) {
    next = static_cast<int>(std::min<int64_t>(tensors.steps(), begin + params_.update));
    const int64_t end = params_.RetrievalEnd(tensors.prompt_tokens(), begin);
    const auto sparse = [&](int step) {
      return tensors.prompt_tokens() + step + 1 >= params_.first_sparse() && end > params_.sink;
    };
    retrieval.Slide(end - params_.sink);
    chosen.assign(static_cast<size_t>(next - begin) * heads, {});
    tbb::parallel_for(begin * heads, next * heads, [&](int cell) {
      const int step = cell / heads;
      if (!sparse(step)) return;
      chosen[static_cast<size_t>(cell - begin * heads)] =
          retrieval.Select(cell % heads, heads, tensors.prompt_tokens() + step);
    });
    for (int step = begin; step < next; ++step) {
      const int64_t context = tensors.prompt_tokens() + step + 1;
      for (int head = 0; head < heads; ++head) {
        const std::vector<uint32_t>& tokens =
            chosen[static_cast<size_t>(step - begin) * heads + head];
        if (sparse(step)) {
          attended.Add(0, params_.sink);
          for (const uint32_t token : tokens) attended.Add(token, token + 1);
          attended.Add(end, context);
        } else {
          attended.Add(0, context);
        }
        cells.End({.flags = sparse(step) ? uint8_t{traces::kSelectedNow} : uint8_t{0},
                   .selected = tokens,
                   .recalled_now = tokens});
      }
    }
  }
}

}  // namespace stallcast::methods
