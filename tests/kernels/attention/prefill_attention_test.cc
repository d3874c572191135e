#include "kernels/attention/prefill_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

struct Shape {
  int head_dim = 128, kv_heads = 2, group = 4;
  int page_tokens = 16;
  int sequences = 1, tokens = 0, past = 0;
  float scale = 0;  ///< 0: 1/sqrt(head_dim)
};

std::string Describe(const Shape& s) {
  return "d " + std::to_string(s.head_dim) + ", " + std::to_string(s.kv_heads) + " heads x " +
         std::to_string(s.group) + ", pages of " + std::to_string(s.page_tokens) + ", " +
         std::to_string(s.sequences) + " x " + std::to_string(s.tokens) + " tokens after " +
         std::to_string(s.past);
}

enum class Layout { kNhdPages, kHndPages, kContiguous, kFused };

class PrefillAttentionTest : public OnDevice {
 protected:
  void Expect(const Shape& s, Layout layout) {
    SCOPED_TRACE(Describe(s) + ", layout " + std::to_string(static_cast<int>(layout)));
    const int context = s.past + s.tokens, heads = s.kv_heads * s.group;
    const bool paged = layout == Layout::kNhdPages || layout == Layout::kHndPages;
    PagedKv cache;
    int max_pages = 1;
    int64_t elements = 0;
    if (paged) {
      cache = (layout == Layout::kHndPages ? HndPages : NhdPages)(nullptr, s.page_tokens,
                                                                  s.kv_heads, s.head_dim);
      max_pages = (context + s.page_tokens - 1) / s.page_tokens + 1;
      elements = s.sequences * max_pages * cache.slot_stride;
    } else {
      // [sequence][token][head][d] of keys, then of values; or each token's both together, behind
      // room for its queries.
      const int64_t row = int64_t{s.kv_heads} * s.head_dim;
      const bool fused = layout == Layout::kFused;
      const int64_t token = fused ? (heads + 2 * s.kv_heads) * s.head_dim : row;
      const int64_t kv = fused ? row : s.sequences * context * row;
      cache = {nullptr, context * token, kv, token, s.head_dim, context, s.kv_heads, s.head_dim};
      elements = fused ? s.sequences * context * token : 2 * kv;
    }
    std::vector<int32_t> slots(static_cast<size_t>(s.sequences * max_pages));
    std::iota(slots.begin(), slots.end(), 0);
    if (paged) std::shuffle(slots.begin(), slots.end(), random_);

    // Whatever no query attends is NaN.
    std::vector<__nv_bfloat16> kv(static_cast<size_t>(elements), __float2bfloat16(NAN));
    std::normal_distribution<float> normal;
    const auto at = [&](int sequence, int token, int head, int which) {
      const int page = token / cache.page_tokens;
      return slots[sequence * max_pages + page] * cache.slot_stride + which * cache.kv_stride +
             token % cache.page_tokens * cache.token_stride + head * cache.head_stride;
    };
    for (int sequence = 0; sequence < s.sequences; ++sequence) {
      for (int token = 0; token < context; ++token) {
        for (int head = 0; head < s.kv_heads; ++head) {
          for (int i = 0; i < s.head_dim; ++i) {
            for (int which : {0, 1}) {
              kv[at(sequence, token, head, which) + i] = __float2bfloat16(normal(random_));
            }
          }
        }
      }
    }
    const auto query = RandomBf16(random_, int64_t{s.sequences} * s.tokens * heads * s.head_dim);
    const auto d_kv = Uploaded(kv), d_query = Uploaded(query);
    const auto d_slots = Uploaded(slots);
    const float scale = s.scale > 0 ? s.scale : 1 / std::sqrt(static_cast<float>(s.head_dim));
    cache.data = d_kv.get();
    std::vector<__nv_bfloat16> outputs[2];
    for (const bool portable : {false, true}) {
      const auto d_output = Poisoned<__nv_bfloat16>(static_cast<int64_t>(query.size()));
      PrefillAttention({.query = d_query.get(),
                        .cache = cache,
                        .slots = paged ? d_slots.get() : nullptr,
                        .max_pages = max_pages,
                        .output = d_output.get(),
                        .sequences = s.sequences,
                        .tokens = s.tokens,
                        .past = s.past,
                        .group = s.group,
                        .scale = scale,
                        .portable = portable},
                       nullptr);
      outputs[portable] = ToHost(d_output);
    }

    // The weights are rounded to bf16 (2^-8 of each) and so is the result: the error is at most
    // 2^-7 of the weighted sum of |v|, and a little for float sums.
    std::vector<double> weight(static_cast<size_t>(context)), value(s.head_dim), size(s.head_dim);
    for (int64_t row = 0; row < int64_t{s.sequences} * s.tokens * heads; ++row) {
      const auto head = static_cast<int>(row % heads);
      const auto token = static_cast<int>(row / heads % s.tokens);
      const auto sequence = static_cast<int>(row / heads / s.tokens);
      const int attended = s.past + token + 1;
      double largest = -INFINITY, sum = 0;
      for (int t = 0; t < attended; ++t) {
        const int64_t key = at(sequence, t, head / s.group, 0);
        double dot = 0;
        for (int i = 0; i < s.head_dim; ++i) {
          dot += double{__bfloat162float(query[row * s.head_dim + i])} *
                 double{__bfloat162float(kv[key + i])};
        }
        weight[t] = dot * scale;
        largest = std::max(largest, weight[t]);
      }
      std::fill(value.begin(), value.end(), 0);
      std::fill(size.begin(), size.end(), 0);
      for (int t = 0; t < attended; ++t) {
        const double w = std::exp(weight[t] - largest);
        sum += w;
        const int64_t from = at(sequence, t, head / s.group, 1);
        for (int i = 0; i < s.head_dim; ++i) {
          const double v = __bfloat162float(kv[from + i]);
          value[i] += w * v;
          size[i] += w * std::abs(v);
        }
      }
      for (int i = 0; i < s.head_dim; ++i) {
        for (const bool portable : {false, true}) {
          const double got = __bfloat162float(outputs[portable][row * s.head_dim + i]);
          const double error = std::abs(got - value[i] / sum) / (size[i] / sum / 128 + 1e-30);
          ASSERT_LE(error, 1.02) << "sequence " << sequence << ", token " << token << ", head "
                                 << head << ", channel " << i << (portable ? ", portable" : "")
                                 << ": " << got << " for " << value[i] / sum;
        }
      }
    }
  }
};

TEST_F(PrefillAttentionTest, MatchesDoublePrecisionForEveryGroupAndHeadSize) {
  for (const int head_dim : {64, 128}) {
    for (const int group : {1, 4, 7}) {
      Expect({.head_dim = head_dim, .group = group, .tokens = 200}, Layout::kNhdPages);
    }
  }
}

TEST_F(PrefillAttentionTest, PromptsMayEndAnywhereAndFollowOthers) {
  for (const int past : {0, 1, 63, 64, 100, 517}) {
    for (const int tokens : {1, 31, 64, 65, 127, 128, 129, 300}) {
      Expect({.kv_heads = 1, .group = 2, .page_tokens = 8, .tokens = tokens, .past = past},
             Layout::kNhdPages);
    }
  }
}

TEST_F(PrefillAttentionTest, MatchesForEveryLayoutAndPageSize) {
  for (const int head_dim : {64, 128}) {
    for (const int page : {1, 7, 16, 64, 200}) {
      for (const Layout layout : {Layout::kNhdPages, Layout::kHndPages}) {
        Expect({.head_dim = head_dim,
                .group = 2,
                .page_tokens = page,
                .sequences = 3,
                .tokens = 150,
                .past = 40},
               layout);
      }
    }
    for (const Layout layout : {Layout::kContiguous, Layout::kFused}) {
      Expect({.head_dim = head_dim, .kv_heads = 3, .sequences = 2, .tokens = 190, .past = 3},
             layout);
    }
  }
}

TEST_F(PrefillAttentionTest, LongContextsAndPeakedWeightsMatch) {
  for (const float scale : {1e-4f, 0.0f, 20.0f}) {
    Expect({.kv_heads = 1, .tokens = 257, .past = 3000, .scale = scale}, Layout::kHndPages);
  }
}

TEST_F(PrefillAttentionTest, ShapesThatAreNotSupportedAreRefused) {
  PrefillAttentionArgs args;
  const auto refused = [&] { EXPECT_THROW(PrefillAttention(args, nullptr), Error); };
  args.cache = NhdPages(nullptr, 16, 8, 128);
  args.sequences = 1;
  args.tokens = 100;
  args.group = 4;
  args.scale = 0.1f;
  args.max_pages = 6;  // 96 tokens
  refused();
  args.max_pages = 7;
  args.cache.head_dim = 96;
  refused();
  args.cache.head_dim = 128;
  args.cache.token_stride += 1;
  refused();
  args.cache = NhdPages(nullptr, 16, 8, 128);
  args.scale = 0;
  refused();
  args.scale = 0.1f;
  args.group = 0;
  refused();
  args.group = 4;
  args.past = -1;
  refused();
  args.past = 0;
  args.tokens = 0;
  EXPECT_NO_THROW(PrefillAttention(args, nullptr));
}

}  // namespace
}  // namespace stallcast::kernels
