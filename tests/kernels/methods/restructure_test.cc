#include "kernels/methods/restructure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

class Restructuring : public OnDevice {};

struct Shape {
  int sequences, heads, tokens, dim, page;
  bool hnd;
};

PageRuns Runs(Bf16* data, const Shape& s, bool hnd) {
  return {hnd ? HndPages(data, s.page, s.heads, s.dim) : NhdPages(data, s.page, s.heads, s.dim),
          (s.tokens + s.page - 1) / s.page};
}
int64_t Elements(const Shape& s) {
  return int64_t{s.sequences} * ((s.tokens + s.page - 1) / s.page) * 2 * s.page * s.heads * s.dim;
}
// Element of a row's token, key (0) or value (1).
int64_t At(const PageRuns& runs, int row, int token, int kv) {
  const PagedKv& c = runs.cache;
  return (row / c.kv_heads * int64_t{runs.sequence_pages} + token / c.page_tokens) * c.slot_stride +
         kv * c.kv_stride + token % c.page_tokens * c.token_stride +
         row % c.kv_heads * c.head_stride;
}

TEST_F(Restructuring, MovesTheChosenToTheFrontAndKeepsAllElseInOrder) {
  for (const auto& [s, count] :
       {std::pair{Shape{1, 2, 300, 128, 16, true}, 32},
        std::pair{Shape{2, 3, 97, 64, 8, false}, 40}, std::pair{Shape{1, 1, 64, 128, 32, true}, 64},
        std::pair{Shape{1, 2, 50, 128, 16, false}, 0}, std::pair{Shape{1, 1, 1, 64, 4, true}, 1}}) {
    SCOPED_TRACE(testing::Message() << s.tokens << " tokens, " << count << " chosen");
    const int rows = s.sequences * s.heads;
    const std::vector<Bf16> data = RandomBf16(random_, Elements(s));
    const auto from = Uploaded(data), to = Poisoned<Bf16>(Elements(s));
    std::vector<int32_t> chosen;
    std::vector<std::vector<int>> order;
    for (int r = 0; r < rows; ++r) {
      std::vector<int> places(static_cast<size_t>(s.tokens));
      std::iota(places.begin(), places.end(), 0);
      std::shuffle(places.begin(), places.end(), random_);
      std::sort(places.begin(), places.begin() + count);
      std::sort(places.begin() + count, places.end());
      chosen.insert(chosen.end(), places.begin(), places.begin() + count);
      order.push_back(places);
    }
    chosen.push_back(0);  // never empty
    const auto d_chosen = Uploaded(chosen);
    const PageRuns source = Runs(from.get(), s, s.hnd), target = Runs(to.get(), s, !s.hnd);
    Restructure(source, target, d_chosen.get(), count, rows, s.tokens, nullptr);
    const std::vector<Bf16> moved = ToHost(to);
    std::vector<bool> written(moved.size());
    for (int r = 0; r < rows; ++r) {
      for (int t = 0; t < s.tokens; ++t) {
        for (int kv = 0; kv < 2; ++kv) {
          for (int i = 0; i < s.dim; ++i) {
            ASSERT_EQ(Bits(moved[At(target, r, t, kv) + i]),
                      Bits(data[At(source, r, order[r][t], kv) + i]));
            written[At(target, r, t, kv) + i] = true;
          }
        }
      }
    }
    for (size_t i = 0; i < moved.size(); ++i) {
      ASSERT_TRUE(written[i] || Bits(moved[i]) == 0xffff) << "past the tokens";
    }
  }
}

TEST_F(Restructuring, RefusesMoreThanThereAre) {
  const PageRuns runs = Runs(nullptr, {1, 1, 8, 128, 8, true}, true);
  EXPECT_THROW(Restructure(runs, runs, nullptr, 9, 1, 8, nullptr), Error);
}

TEST_F(Restructuring, ObservationIsTheMeanOfTheWindowsWeights) {
  for (const auto& [s, queries, group] : {std::tuple{Shape{1, 2, 700, 128, 32, true}, 64, 4},
                                          std::tuple{Shape{2, 2, 513, 64, 16, false}, 17, 7},
                                          std::tuple{Shape{1, 1, 1025, 128, 8, false}, 40, 8},
                                          std::tuple{Shape{1, 3, 5, 128, 8, true}, 1, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << s.tokens << " tokens, " << queries << " queries, group " << group);
    const int rows = s.sequences * s.heads;
    const std::vector<Bf16> data = RandomBf16(random_, Elements(s), 1.5f);
    const std::vector<Bf16> query =
        RandomBf16(random_, int64_t{s.sequences} * queries * s.heads * group * s.dim, 1.5f);
    const auto d_data = Uploaded(data), d_query = Uploaded(query);
    const auto scores = Poisoned<float>(int64_t{rows} * s.tokens);
    const PageRuns runs = Runs(d_data.get(), s, s.hnd);
    const float scale = 1 / std::sqrt(static_cast<float>(s.dim));
    const ObservationScoreArgs args{.keys = runs,
                                    .rows = rows,
                                    .tokens = s.tokens,
                                    .query = d_query.get(),
                                    .queries = queries,
                                    .group = group,
                                    .scale = scale,
                                    .scores = scores.get()};
    const auto workspace = Poisoned<char>(ObservationScoreWorkspace(args));
    ObservationScore(args, workspace.get(), nullptr);
    const std::vector<float> got = ToHost(scores);
    for (int r = 0; r < rows; ++r) {
      std::vector<double> want(static_cast<size_t>(s.tokens));
      for (int q = 0; q < queries * group; ++q) {
        const int64_t at =
            (((r / s.heads) * int64_t{queries} + q / group) * s.heads + r % s.heads) * group +
            q % group;
        std::vector<double> weight;
        double most = -1e300, sum = 0;
        for (int t = 0; t < s.tokens; ++t) {
          double dot = 0;
          for (int i = 0; i < s.dim; ++i) {
            dot += static_cast<double>(__bfloat162float(query[at * s.dim + i])) *
                   __bfloat162float(data[At(runs, r, t, 0) + i]);
          }
          weight.push_back(dot * static_cast<double>(scale));
          most = std::max(most, weight.back());
        }
        for (double& w : weight) sum += w = std::exp(w - most);
        for (int t = 0; t < s.tokens; ++t) want[t] += weight[t] / sum / (queries * group);
      }
      for (int t = 0; t < s.tokens; ++t) {
        ASSERT_NEAR(got[int64_t{r} * s.tokens + t], want[t], want[t] * 2e-5 + 1e-12)
            << "token " << t;
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::kernels
