// ParisKV's kernels against the policy's own functions: equal to the last bit up to the candidates.
#include "kernels/methods/pariskv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/selection/selection.h"
#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using methods::CodeBook;
using methods::KeyCodes;

struct Shape {
  int dim, subspaces, kv_rows, share, group, tokens;
  bool rotation;
};

class ParisKv : public OnDevice {
 protected:
  static std::vector<float> Widen(const std::vector<__nv_bfloat16>& values) {
    std::vector<float> wide;
    wide.reserve(values.size());
    for (const __nv_bfloat16 x : values) wide.push_back(__bfloat162float(x));
    return wide;
  }

  void Compare(const Shape& s) {
    SCOPED_TRACE(testing::Message() << s.dim << " " << s.subspaces << " " << s.tokens);
    const CodeBook book(s.dim, s.subspaces, s.rotation, 11);
    const CodeTables tables(book);
    const int rows = s.kv_rows * s.share, capacity = s.tokens + 37, clusters = book.clusters;
    // Keys as they lie in a cache: [token][row][key, value].
    const auto keys = RandomBf16(random_, int64_t{s.tokens} * s.kv_rows * 2 * s.dim);
    const auto queries = RandomBf16(random_, int64_t{rows} * s.group * s.dim);
    const auto device_keys = Uploaded(keys), device_queries = Uploaded(queries);
    const int64_t places = int64_t{s.kv_rows} * capacity;
    auto ids = Poisoned<uint8_t>(places * s.subspaces);
    auto codes = Poisoned<uint8_t>(places * s.dim / 2);
    auto weights = Poisoned<__nv_bfloat16>(places * s.subspaces);
    auto counts =
        Uploaded(std::vector<int32_t>(static_cast<size_t>(s.kv_rows * s.subspaces * clusters)));
    const KeyIndex index{ids.get(), codes.get(), weights.get(), counts.get(), capacity};
    const TokenView view{device_keys.get(), int64_t{2} * s.dim, int64_t{2} * s.kv_rows * s.dim,
                         s.dim};
    // In two parts, as prefill and an update do.
    const int half = s.tokens / 2 + 1;
    EncodeKeys(tables, view, s.kv_rows, half, 0, index, nullptr);
    TokenView rest = view;
    rest.data += half * view.token_stride;
    EncodeKeys(tables, rest, s.kv_rows, s.tokens - half, half, index, nullptr);

    std::vector<KeyCodes> want(static_cast<size_t>(s.kv_rows), KeyCodes(book));
    for (int row = 0; row < s.kv_rows; ++row) {
      for (int t = 0; t < s.tokens; ++t) {
        const auto from = keys.begin() + (int64_t{t} * s.kv_rows + row) * 2 * s.dim;
        want[row].Append(Widen({from, from + s.dim}).data());
      }
    }
    const auto got_ids = ToHost(ids), got_codes = ToHost(codes);
    const auto got_weights = ToHost(weights);
    const auto got_counts = ToHost(counts);
    for (int row = 0; row < s.kv_rows; ++row) {
      for (int t = 0; t < s.tokens; ++t) {
        const int64_t at = int64_t{row} * capacity + t;
        ASSERT_TRUE(std::equal(want[row].ids(t), want[row].ids(t) + s.subspaces,
                               got_ids.begin() + at * s.subspaces));
        ASSERT_TRUE(std::equal(want[row].codes(t), want[row].codes(t) + s.dim / 2,
                               got_codes.begin() + at * s.dim / 2));
        for (int b = 0; b < s.subspaces; ++b) {
          ASSERT_EQ(__bfloat162float(got_weights[at * s.subspaces + b]), want[row].weights(t)[b]);
        }
      }
      const auto all = methods::ClusterCounts(book, want[row], s.tokens);
      ASSERT_TRUE(std::equal(all.begin(), all.end(), got_counts.begin() + row * std::ssize(all)));
    }

    const double rho = 0.25;
    auto rotated = Poisoned<float>(int64_t{rows} * s.dim);
    auto table = Poisoned<uint8_t>(int64_t{rows} * s.subspaces * clusters);
    auto scores = Poisoned<uint8_t>(int64_t{rows} * ScoreStride(s.tokens));
    auto histograms = Poisoned<int32_t>(HistogramSize(rows, s.tokens));
    const int count = s.tokens / 5, k = std::min(100, count);
    auto candidates = Poisoned<int32_t>(int64_t{rows} * count);
    auto estimates = Poisoned<float>(int64_t{rows} * count);
    CollisionTable(tables, device_queries.get(), rows, s.group, s.share, index,
                   methods::TierLimits(rho, s.tokens), rotated.get(), table.get(), nullptr);
    CollisionScores(tables, table.get(), index, rows, s.share, s.tokens, scores.get(),
                    histograms.get(), nullptr);
    BucketTopK(scores.get(), histograms.get(), rows, s.tokens, count, candidates.get(), nullptr);
    Rerank(tables, rotated.get(), index, candidates.get(), rows, s.share, count, estimates.get(),
           nullptr);
    auto chosen = Poisoned<int32_t>(int64_t{rows} * k);
    const Buffer<char> workspace(TopKWorkspace(rows, count, k) + 1);
    TopK(estimates.get(), rows, count, k, chosen.get(), workspace.get(), nullptr);

    const auto got_table = ToHost(table), got_scores = ToHost(scores);
    const auto got_candidates = ToHost(candidates), got_chosen = ToHost(chosen);
    const auto got_estimates = ToHost(estimates);
    int64_t same = 0;
    for (int row = 0; row < rows; ++row) {
      std::vector<float> query(static_cast<size_t>(s.dim)), turned(query.size());
      for (int g = 0; g < s.group; ++g) {
        const auto from = queries.begin() + (int64_t{row} * s.group + g) * s.dim;
        const std::vector<float> q = Widen({from, from + s.dim});
        for (int i = 0; i < s.dim; ++i) query[i] += q[i];
      }
      for (float& x : query) x *= 1.0f / static_cast<float>(s.group);
      book.Rotate(query.data(), turned.data());
      const KeyCodes& own = want[row / s.share];
      const auto all = methods::ClusterCounts(book, own, s.tokens);
      const auto want_table = methods::CollisionTable(book, turned.data(), all, rho, s.tokens);
      ASSERT_TRUE(std::equal(want_table.begin(), want_table.end(),
                             got_table.begin() + row * std::ssize(want_table)));
      std::vector<uint8_t> want_scores(static_cast<size_t>(s.tokens));
      methods::CollisionScores(book, own, want_table, want_scores);
      ASSERT_TRUE(std::equal(want_scores.begin(), want_scores.end(),
                             got_scores.begin() + int64_t{row} * ScoreStride(s.tokens)));
      const auto best = methods::BestBuckets(want_scores, count);
      const methods::Estimator estimator(book, turned.data());
      std::vector<std::pair<float, int>> order;
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(got_candidates[int64_t{row} * count + i], static_cast<int32_t>(best[i])) << i;
        const float estimate = estimator(own, best[i]);
        ASSERT_NEAR(got_estimates[int64_t{row} * count + i], estimate, 1e-4) << i;
        order.push_back({-estimate, i});
      }
      std::sort(order.begin(), order.end());
      std::set<int> top;
      for (int i = 0; i < k; ++i) top.insert(order[i].second);
      for (int i = 0; i < k; ++i) same += top.contains(got_chosen[int64_t{row} * k + i]) ? 1 : 0;
    }
    // Estimates that tie but for rounding may change places at the cut.
    EXPECT_GE(same, int64_t{rows} * k - rows);
  }
};

TEST_F(ParisKv, StagesEqualThePolicys) {
  Compare({128, 16, 2, 1, 4, 5'000, true});
  Compare({128, 16, 2, 4, 1, 3'001, true});  // query heads select alone
  Compare({128, 16, 1, 1, 4, 70'003, true});
  Compare({128, 32, 2, 1, 2, 2'000, true});
  Compare({64, 8, 3, 1, 3, 4'096, true});
  Compare({64, 16, 2, 1, 2, 777, true});
  Compare({128, 16, 1, 1, 2, 500, false});
}

TEST_F(ParisKv, LongRowsAreCutIntoParts) {
  // Scores made here, so that ties run over many parts of a row.
  constexpr int kTokens = 600'001, kRows = 2;
  const CodeBook book(128, 16, true, 1);
  const CodeTables tables(book);
  std::vector<uint8_t> ids(static_cast<size_t>(kRows) * kTokens * 16);
  for (uint8_t& id : ids) id = static_cast<uint8_t>(random_() % 256);
  std::vector<uint8_t> table(kRows * 16 * 256);
  for (uint8_t& bonus : table) bonus = static_cast<uint8_t>(random_() % 8 == 0 ? 1 : 0);
  const auto device_ids = Uploaded(ids), device_table = Uploaded(table);
  const KeyIndex index{device_ids.get(), nullptr, nullptr, nullptr, kTokens};
  auto scores = Poisoned<uint8_t>(int64_t{kRows} * ScoreStride(kTokens));
  auto histograms = Poisoned<int32_t>(HistogramSize(kRows, kTokens));
  CollisionScores(tables, device_table.get(), index, kRows, 1, kTokens, scores.get(),
                  histograms.get(), nullptr);
  for (const int k : {1, 77, 60'001, 300'000, 600'000, 600'001}) {
    auto candidates = Poisoned<int32_t>(int64_t{kRows} * k);
    BucketTopK(scores.get(), histograms.get(), kRows, kTokens, k, candidates.get(), nullptr);
    const auto got = ToHost(candidates);
    const auto got_scores = ToHost(scores);
    for (int row = 0; row < kRows; ++row) {
      const std::span<const uint8_t> own(got_scores.data() + int64_t{row} * ScoreStride(kTokens),
                                         kTokens);
      const auto want = methods::BestBuckets(own, k);
      ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin() + int64_t{row} * k,
                             [](uint32_t a, int32_t b) { return static_cast<int32_t>(a) == b; }))
          << k;
    }
  }
}

TEST_F(ParisKv, FetchBringsKeysAndValuesFromTheHost) {
  for (const int dim : {64, 128}) {
    for (const bool joined : {false, true}) {
      constexpr int kTokens = 3'000, kRows = 4, kShare = 2, kTopK = 101, kCandidates = 500;
      Buffer<__nv_bfloat16> pool(int64_t{kRows} / kShare * kTokens * 2 * dim, Memory::kPinned);
      const auto values = RandomBf16(random_, pool.size());
      std::copy(values.begin(), values.end(), pool.get());
      const TokenView from =
          joined ? TokenView{pool.get(), int64_t{kTokens} * 2 * dim, int64_t{2} * dim, dim}
                 : TokenView{pool.get(), int64_t{kTokens} * dim, dim, pool.size() / 2};
      std::vector<int32_t> candidates, places;
      for (int i = 0; i < kRows * kCandidates; ++i) {
        candidates.push_back(static_cast<int32_t>(random_() % (kTokens - 7)));
      }
      for (int i = 0; i < kRows * kTopK; ++i) {
        places.push_back(static_cast<int32_t>(random_() % kCandidates));
      }
      constexpr int kCapacity = kTopK + 20;
      auto out = Poisoned<__nv_bfloat16>(int64_t{kRows} * 2 * kCapacity * dim);
      const TokenView to{out.get(), int64_t{2} * kCapacity * dim, dim, int64_t{kCapacity} * dim};
      const auto device_candidates = Uploaded(candidates), device_places = Uploaded(places);
      FetchTokens(from, device_places.get(), device_candidates.get(), kRows, kShare, kTopK,
                  kCandidates, 7, to, 13, dim, 5, nullptr);
      const auto got = ToHost(out);
      for (int row = 0; row < kRows; ++row) {
        for (int i = 0; i < kCapacity; ++i) {
          for (int d = 0; d < 2 * dim; d += 17) {
            const int64_t at = row * to.row_stride + (i + 0) * to.token_stride +
                               d / dim * to.value_offset + d % dim;
            if (i < 13 || i >= 13 + kTopK) {
              ASSERT_EQ(Bits(got[at]), 0xffff);
              continue;
            }
            const int token = candidates[row * kCandidates + places[row * kTopK + i - 13]] + 7;
            const int64_t source = row / kShare * from.row_stride + token * from.token_stride +
                                   d / dim * from.value_offset + d % dim;
            ASSERT_EQ(Bits(got[at]), Bits(values[source])) << row << " " << i << " " << d;
          }
        }
      }
    }
  }
}

TEST_F(ParisKv, RefusesWhatItCannotDo) {
  EXPECT_THROW(CodeTables(CodeBook(96, 12, true, 1)), Error);
  const CodeTables tables(CodeBook(128, 16, true, 1));
  EXPECT_THROW(EncodeKeys(tables, {}, 1, 10, 5, {.capacity = 14}, nullptr), Error);
  EXPECT_THROW(BucketTopK(nullptr, nullptr, 1, 10, 11, nullptr, nullptr), Error);
}

}  // namespace
}  // namespace stallcast::kernels
