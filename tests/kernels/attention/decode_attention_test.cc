#include "kernels/attention/decode_attention.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/upload.h"
#include "tests/kernels/has_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Bf16s = std::vector<__nv_bfloat16>;

struct Shape {
  int head_dim = 128;
  int kv_heads = 2;
  int group = 4;
  int page_tokens = 16;
  bool hnd = false;
  float scale = 0;           ///< 0: 1/sqrt(head_dim)
  std::vector<int> lengths;  ///< one a row, cycled over the sequences' heads
  int sequences = 1;
  int rows_a_head = 1;
  int slack = 0;  ///< of the bound on tokens, over the longest row
};

std::string Describe(const Shape& s) {
  return "d " + std::to_string(s.head_dim) + ", " + std::to_string(s.kv_heads) + " heads x " +
         std::to_string(s.group) + ", pages of " + std::to_string(s.page_tokens) +
         (s.hnd ? " HND" : " NHD") + ", " + std::to_string(s.sequences) + " sequences, length " +
         std::to_string(s.lengths[0]) + ", " + std::to_string(s.rows_a_head) + " rows a head";
}

/// A cache whose pages lie in random slots, and the attention of it in double precision. Whatever
/// no row attends is NaN.
class Problem {
 public:
  Problem(const Shape& shape, unsigned seed) : shape_(shape), random_(seed) {
    const int rows = shape.sequences * shape.kv_heads * shape.rows_a_head;
    for (int row = 0; row < rows; ++row) {
      tokens_.push_back(shape.lengths[row % shape.lengths.size()]);
    }
    const int longest = *std::max_element(tokens_.begin(), tokens_.end());
    max_pages_ = (longest + shape.page_tokens - 1) / shape.page_tokens + 1;
    const int slots = shape.sequences * shape.rows_a_head * max_pages_ + 3;
    layout_ = (shape.hnd ? HndPages : NhdPages)(nullptr, shape.page_tokens, shape.kv_heads,
                                                shape.head_dim);
    std::vector<int32_t> order(slots);
    std::iota(order.begin(), order.end(), 0);
    table_.assign(int64_t{rows} * max_pages_, -1);       // never followed past a row's last page
    for (int head = 0; head < shape.kv_heads; ++head) {  // each head has its own order of slots
      std::shuffle(order.begin(), order.end(), random_);
      int next = 0;
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; HeadOf(row) == head && i * shape.page_tokens < tokens_[row]; ++i) {
          table_[int64_t{row} * max_pages_ + i] = order[next++];
        }
      }
    }
    std::normal_distribution<float> normal;
    pool_.assign(slots * layout_.slot_stride, __float2bfloat16(NAN));
    for (int row = 0; row < rows; ++row) {
      for (int token = 0; token < tokens_[row]; ++token) {
        for (int kv = 0; kv < 2; ++kv) {
          for (int i = 0; i < shape.head_dim; ++i) {
            pool_[At(row, token, kv) + i] = __float2bfloat16(normal(random_));
          }
        }
      }
    }
    query_.resize(int64_t{rows} * shape.group * shape.head_dim);
    for (auto& value : query_) value = __float2bfloat16(normal(random_));
  }

  int64_t At(int row, int token, int kv) const {
    const int64_t slot = table_[int64_t{row} * max_pages_ + token / shape_.page_tokens];
    return slot * layout_.slot_stride + kv * layout_.kv_stride +
           token % shape_.page_tokens * layout_.token_stride + HeadOf(row) * layout_.head_stride;
  }

  int HeadOf(int row) const { return row / shape_.rows_a_head % shape_.kv_heads; }

  float Scale() const {
    return shape_.scale > 0 ? shape_.scale : 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  }

  /// Launches twice over one workspace; both results must be the same bytes.
  Bf16s Run(cudaStream_t stream = nullptr) const {
    auto pool = Uploaded(pool_);
    auto query = Uploaded(query_);
    auto table = Uploaded(table_);
    auto tokens = Uploaded(tokens_);
    Buffer<__nv_bfloat16> output(query.size());
    DecodeAttentionArgs args{
        .query = query.get(),
        .cache = layout_,
        .pages = {table.get(), tokens.get(), max_pages_,
                  *std::max_element(tokens_.begin(), tokens_.end()) + shape_.slack},
        .output = output.get(),
        .workspace = nullptr,
        .sequences = shape_.sequences,
        .rows_a_head = shape_.rows_a_head,
        .group = shape_.group,
        .scale = Scale()};
    args.cache.data = pool.get();
    Buffer<float> workspace(DecodeAttentionWorkspace(args));
    Check(cudaMemset(workspace.get(), 0, workspace.bytes()), "memset");
    args.workspace = workspace.get();
    Bf16s results[2];
    for (Bf16s& result : results) {
      Check(cudaMemset(output.get(), 0xFF, output.bytes()), "poison");
      DecodeAttention(args, stream);
      Check(cudaStreamSynchronize(stream), "DecodeAttention");
      result.resize(query_.size());
      Check(cudaMemcpy(result.data(), output.get(), output.bytes(), cudaMemcpyDeviceToHost),
            "download");
    }
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), output.bytes()), 0)
        << "two launches over one workspace differ";
    return results[0];
  }

  /// The weights are rounded to bf16 (2^-8 of each) and so is the result: the error is at most 2^-7
  /// of the weighted sum of |v|, and a little for float sums.
  void ExpectRight(const Bf16s& result) const {
    const int d = shape_.head_dim;
    const int rows = static_cast<int>(tokens_.size());
    for (int row = 0; row < rows; ++row) {
      for (int head = 0; head < shape_.group; ++head) {
        const int64_t out = (int64_t{row} * shape_.group + head) * d;
        std::vector<double> weight(tokens_[row]);
        double largest = -INFINITY, sum = 0;
        for (int t = 0; t < tokens_[row]; ++t) {
          double dot = 0;
          for (int i = 0; i < d; ++i) {
            dot += double{__bfloat162float(query_[out + i])} *
                   double{__bfloat162float(pool_[At(row, t, 0) + i])};
          }
          weight[t] = dot * Scale();
          largest = std::max(largest, weight[t]);
        }
        for (double& w : weight) sum += w = std::exp(w - largest);
        std::vector<double> value(d), size(d);
        for (int t = 0; t < tokens_[row]; ++t) {
          for (int i = 0; i < d; ++i) {
            const double v = __bfloat162float(pool_[At(row, t, 1) + i]);
            value[i] += weight[t] / sum * v;
            size[i] += weight[t] / sum * std::abs(v);
          }
        }
        for (int i = 0; i < d; ++i) {
          const double got = __bfloat162float(result[out + i]);
          const double error = std::abs(got - value[i]) / (size[i] / 128 + 1e-30);
          ASSERT_LE(error, 1.02) << Describe(shape_) << ": row " << row << " of " << tokens_[row]
                                 << " tokens, head " << head << ", channel " << i << ": " << got
                                 << " for " << value[i];
        }
      }
    }
  }

 private:
  Shape shape_;
  std::mt19937 random_;
  PagedKv layout_;
  int max_pages_ = 0;
  std::vector<int32_t> tokens_, table_;
  Bf16s pool_, query_;
};

class DecodeAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
  static void Expect(const Shape& shape) {
    static unsigned seed = 1;
    const Problem problem(shape, seed++);
    problem.ExpectRight(problem.Run());
  }
};

TEST_F(DecodeAttentionTest, MatchesDoublePrecisionForEveryGroupAndHeadSize) {
  for (const int head_dim : {64, 128}) {
    for (const int group : {1, 2, 4, 5, 7, 8, 9, 16}) {
      Expect({.head_dim = head_dim, .kv_heads = 2, .group = group, .lengths = {517, 1300}});
    }
  }
}

TEST_F(DecodeAttentionTest, MatchesForEveryPageSizeAndLayout) {
  for (const bool hnd : {false, true}) {
    for (const int page : {1, 8, 16, 24, 32, 64}) {
      Expect({.kv_heads = 3, .page_tokens = page, .hnd = hnd, .lengths = {700, 31, 1021}});
    }
  }
}

TEST_F(DecodeAttentionTest, RowsMayEndAnywhereAndBeEmpty) {
  for (const int page : {16, 32}) {
    Expect({.kv_heads = 4,
            .page_tokens = page,
            .lengths = {0, 1, page - 1, page, page + 1, 2 * page + 7, 127, 128, 129, 1000, 3, 0},
            .sequences = 6});
  }
  Expect({.kv_heads = 1, .group = 1, .lengths = {1}});
  Expect({.kv_heads = 1, .group = 8, .lengths = {16}});
}

TEST_F(DecodeAttentionTest, QueryHeadsMayChooseTheirPagesApart) {
  for (const int rows_a_head : {2, 4, 7}) {
    Expect({.kv_heads = 2,
            .group = 1,
            .lengths = {300, 16, 0, 1025, 64},
            .sequences = 3,
            .rows_a_head = rows_a_head});
  }
  Expect(
      {.head_dim = 64, .kv_heads = 3, .group = 2, .hnd = true, .lengths = {90}, .rows_a_head = 2});
}

TEST_F(DecodeAttentionTest, RowsWithoutTokensGiveZeros) {
  const Problem problem({.kv_heads = 2, .group = 16, .lengths = {0}, .sequences = 3}, 77);
  for (const __nv_bfloat16 value : problem.Run()) EXPECT_EQ(__bfloat162float(value), 0);
}

TEST_F(DecodeAttentionTest, PeakedAndSpreadWeightsMatch) {
  for (const float scale : {1e-4f, 1.0f, 20.0f}) {
    Expect({.kv_heads = 2, .group = 7, .scale = scale, .lengths = {2111, 4000}});
  }
}

TEST_F(DecodeAttentionTest, LongRowsBesideShortOnes) {
  Expect({.kv_heads = 2, .group = 2, .page_tokens = 64, .lengths = {20011, 5}});
}

TEST_F(DecodeAttentionTest, TheBoundOnTokensMayBeLooseEvenPastTheTable) {
  for (const int slack : {1, 40, 100000}) {
    Expect({.kv_heads = 2, .lengths = {517, 1300, 0, 16}, .sequences = 2, .slack = slack});
    Expect({.kv_heads = 1, .page_tokens = 24, .lengths = {700}, .slack = slack});
  }
}

TEST_F(DecodeAttentionTest, MoreRowsThanTheDeviceHoldsAtOnce) {
  Expect({.head_dim = 64, .kv_heads = 8, .group = 1, .lengths = {65, 1, 300}, .sequences = 600});
  Expect({.head_dim = 64, .kv_heads = 8, .group = 2, .lengths = {400, 33, 900}, .sequences = 40});
}

TEST_F(DecodeAttentionTest, ShapesThatAreNotSupportedAreRefused) {
  DecodeAttentionArgs args;
  args.cache = NhdPages(nullptr, 16, 8, 96);
  args.sequences = 1;
  args.group = 4;
  EXPECT_THROW(DecodeAttention(args, nullptr), Error);
  EXPECT_THROW(DecodeAttentionWorkspace(args), Error);
  args.cache = NhdPages(nullptr, 16, 8, 128);
  args.group = 17;
  EXPECT_THROW(DecodeAttention(args, nullptr), Error);
  args.group = 0;
  EXPECT_THROW(DecodeAttention(args, nullptr), Error);
  args.group = 4;
  args.cache.token_stride += 1;
  EXPECT_THROW(DecodeAttention(args, nullptr), Error);
  args.cache = NhdPages(nullptr, 16, 8, 128);
  args.rows_a_head = 0;
  EXPECT_THROW(DecodeAttention(args, nullptr), Error);
  args.rows_a_head = 1;
  args.sequences = 0;
  EXPECT_NO_THROW(DecodeAttention(args, nullptr));
}

}  // namespace
}  // namespace stallcast::kernels
