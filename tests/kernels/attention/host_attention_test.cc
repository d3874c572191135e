// Attention by host threads beside the definition in double precision.
#include "kernels/attention/host_attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

double FromBits(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

class HostAttentionTest : public testing::Test {
 protected:
  std::vector<uint16_t> Random(size_t count, float scale) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<uint16_t> bits(count);
    for (uint16_t& value : bits) {
      value = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random_)) >> 16);
    }
    return bits;
  }

  // Rows of these lengths; logits spread by `scale`.
  void Check(const std::vector<int64_t>& tokens, int32_t group, int32_t dim, float scale,
             int threads) {
    const auto channels = static_cast<size_t>(dim), heads = static_cast<size_t>(group);
    std::vector<std::vector<uint16_t>> keys, values;
    std::vector<const uint16_t*> key_rows, value_rows;
    for (const int64_t count : tokens) {
      keys.push_back(Random(static_cast<size_t>(count) * channels, 1));
      values.push_back(Random(static_cast<size_t>(count) * channels, 1));
      key_rows.push_back(keys.back().data());
      value_rows.push_back(values.back().data());
    }
    const std::vector<uint16_t> query = Random(tokens.size() * heads * channels, 1);
    std::vector<uint16_t> output(query.size());
    std::vector<float> sums(tokens.size() * heads);
    HostAttention({.query = query.data(),
                   .keys = key_rows,
                   .values = value_rows,
                   .tokens = tokens,
                   .group = group,
                   .head_dim = dim,
                   .scale = scale,
                   .output = output.data(),
                   .log_sums = sums.data()},
                  threads);
    for (size_t row = 0; row < tokens.size(); ++row) {
      for (size_t head = 0; head < heads; ++head) {
        const size_t at = row * heads + head;
        std::vector<double> logits, expected(channels);
        double most = -INFINITY, sum = 0;
        for (size_t t = 0; t < static_cast<size_t>(tokens[row]); ++t) {
          double dot = 0;
          for (size_t i = 0; i < channels; ++i) {
            dot += FromBits(query[at * channels + i]) * FromBits(keys[row][t * channels + i]);
          }
          logits.push_back(dot * scale);
          most = std::max(most, logits.back());
        }
        for (size_t t = 0; t < logits.size(); ++t) {
          const double weight = std::exp(logits[t] - most);
          sum += weight;
          for (size_t i = 0; i < channels; ++i) {
            expected[i] += weight * FromBits(values[row][t * channels + i]);
          }
        }
        EXPECT_NEAR(sums[at], most + std::log(sum), 1e-4 * (1 + std::abs(most)));
        for (size_t i = 0; i < channels; ++i) {
          // bf16 has eight bits.
          const double value = expected[i] / sum;
          ASSERT_NEAR(FromBits(output[at * channels + i]), value, std::abs(value) / 200 + 1e-4)
              << "row " << row << " head " << head << " channel " << i;
        }
      }
    }
  }

  std::mt19937 random_{7};
};

TEST_F(HostAttentionTest, IsTheDefinition) { Check({1, 63, 64, 65, 700}, 4, 128, 0.088F, 1); }

TEST_F(HostAttentionTest, OfAnyGroupAndWidth) {
  Check({100}, 1, 64, 0.125F, 1);
  Check({90, 80}, 7, 80, 0.11F, 2);
  Check({130}, 8, 256, 0.0625F, 2);
}

TEST_F(HostAttentionTest, ByThreadsThatShareARow) { Check({5'000, 3}, 6, 128, 0.088F, 4); }

TEST_F(HostAttentionTest, OfLogitsFarApart) { Check({600}, 4, 128, 3, 2); }

TEST_F(HostAttentionTest, RefusesHeadsThatItCannotRead) {
  EXPECT_THROW(Check({4}, 1, 24, 1, 1), Error);
}

}  // namespace
}  // namespace stallcast::kernels
