#include "kernels/decoder/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/decoder/skinny_gemm.h"
#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

class Decoder : public OnDevice {};

double Value(__nv_bfloat16 value) { return __bfloat162float(value); }
__nv_bfloat16 Rounded(double value) { return __double2bfloat16(value); }

TEST_F(Decoder, AddRmsNormAddsRoundsAndScales) {
  for (const int32_t width : {8, 256, 3584, 4096, 5120, 8192, 16384}) {
    for (const int64_t rows : {1, 5}) {
      for (const bool with_input : {true, false}) {
        const auto input = RandomBf16(random_, rows * width);
        const auto residual = RandomBf16(random_, rows * width, 3);
        const auto weight = RandomBf16(random_, width);
        const auto d_input = Uploaded(input), d_residual = Uploaded(residual);
        const auto d_weight = Uploaded(weight);
        const auto d_output = Poisoned<__nv_bfloat16>(rows * width);
        AddRmsNorm(with_input ? d_input.get() : nullptr, d_residual.get(), d_weight.get(), 1e-5F,
                   rows, width, d_output.get(), nullptr);
        const auto sum = ToHost(d_residual), output = ToHost(d_output);
        for (int64_t row = 0; row < rows; ++row) {
          double squares = 0;
          for (int64_t i = row * width; i < (row + 1) * width; ++i) {
            const double exact = Value(residual[i]) + (with_input ? Value(input[i]) : 0);
            ExpectRounded(exact, sum[i], 1, i);
            squares += Value(sum[i]) * Value(sum[i]);
          }
          const double rms = std::sqrt(squares / width + 1e-5);
          for (int64_t i = row * width; i < (row + 1) * width; ++i) {
            ExpectRounded(Value(sum[i]) / rms * Value(weight[i - row * width]), output[i], 1, i);
          }
        }
      }
    }
  }
}

TEST_F(Decoder, AddRmsNormOfZerosIsZero) {
  const auto zeros = Uploaded(std::vector<__nv_bfloat16>(64, Rounded(0)));
  const auto output = Poisoned<__nv_bfloat16>(64);
  AddRmsNorm(nullptr, zeros.get(), zeros.get(), 1e-5F, 1, 64, output.get(), nullptr);
  for (const auto value : ToHost(output)) EXPECT_EQ(Value(value), 0);
}

TEST_F(Decoder, RopeTurnsQueriesAndAppendsKeysAndValues) {
  struct Shape {
    int32_t query_heads, kv_heads, head_dim, page_tokens;
    int64_t tokens;
    bool nhd;
  };
  for (const Shape& s : {Shape{32, 8, 128, 16, 1, true}, Shape{28, 4, 128, 32, 3, false},
                         Shape{4, 4, 64, 1, 5, true}, Shape{7, 1, 72, 5, 2, false}}) {
    const int32_t heads = s.query_heads + 2 * s.kv_heads, half = s.head_dim / 2;
    const float scaling = s.nhd ? 1.0F : 1.1386F;
    const auto qkv = RandomBf16(random_, s.tokens * heads * s.head_dim);
    std::vector<float> frequencies;
    for (int i = 0; i < half; ++i) frequencies.push_back(std::pow(5e5F, -2.0F * i / s.head_dim));
    std::vector<int32_t> slot, place, position;
    for (int64_t t = 0; t < s.tokens; ++t) {
      slot.push_back(static_cast<int32_t>((t * 3 + 2) % s.tokens));
      place.push_back(static_cast<int32_t>(random_() % s.page_tokens));
      position.push_back(t == 0 ? 131071 : static_cast<int32_t>(random_() % 40000));
    }
    const auto d_qkv = Uploaded(qkv);
    const auto d_frequencies = Uploaded(frequencies);
    const auto d_slot = Uploaded(slot), d_place = Uploaded(place), d_position = Uploaded(position);
    const auto d_cache =
        Poisoned<__nv_bfloat16>(s.tokens * 2 * s.page_tokens * s.kv_heads * s.head_dim);
    const PagedKv cache = s.nhd ? NhdPages(d_cache.get(), s.page_tokens, s.kv_heads, s.head_dim)
                                : HndPages(d_cache.get(), s.page_tokens, s.kv_heads, s.head_dim);
    const auto d_query = Poisoned<__nv_bfloat16>(s.tokens * s.query_heads * s.head_dim);
    RopeAppend(d_qkv.get(), s.tokens, s.query_heads, cache, d_slot.get(), d_place.get(),
               d_position.get(), d_frequencies.get(), scaling, d_query.get(), {}, nullptr);
    const auto turned = ToHost(d_query);
    const auto pages = ToHost(d_cache);
    int64_t written = 0;
    for (const auto value : pages) written += std::isnan(Value(value)) ? 0 : 1;
    // Tokens of one slot and place would overwrite each other: slots differ, so all are there.
    EXPECT_EQ(written, s.tokens * 2 * s.kv_heads * s.head_dim);
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int32_t head = 0; head < heads; ++head) {
        const int64_t at = (t * heads + head) * s.head_dim;
        const bool value = head >= s.query_heads + s.kv_heads;
        const int32_t kv_head = value ? head - s.query_heads - s.kv_heads : head - s.query_heads;
        const __nv_bfloat16* result = turned.data() + (t * s.query_heads + head) * s.head_dim;
        if (head >= s.query_heads) {
          result = pages.data() + slot[t] * cache.slot_stride + (value ? cache.kv_stride : 0) +
                   place[t] * cache.token_stride + kv_head * cache.head_stride;
        }
        for (int32_t i = 0; i < half; ++i) {
          const double low = Value(qkv[at + i]), high = Value(qkv[at + half + i]);
          if (value) {
            ASSERT_EQ(Bits(qkv[at + i]), Bits(result[i]));
            ASSERT_EQ(Bits(qkv[at + half + i]), Bits(result[half + i]));
            continue;
          }
          // The angle is a float product, as models define it; the rest is in double.
          const double angle = static_cast<float>(position[t]) * frequencies[i];
          ExpectRounded(scaling * (low * std::cos(angle) - high * std::sin(angle)), result[i], 4,
                        i);
          ExpectRounded(scaling * (high * std::cos(angle) + low * std::sin(angle)),
                        result[half + i], 4, i);
        }
      }
    }
  }
}

TEST_F(Decoder, AppendedKeysWidenTheBoundsOfTheirPages) {
  struct Shape {
    int32_t sequences, kv_heads, head_dim, page_tokens, pages;
    bool nhd;
  };
  for (const Shape& s :
       {Shape{1, 8, 128, 16, 3, true}, Shape{3, 2, 64, 4, 5, false}, Shape{2, 3, 72, 1, 4, true}}) {
    constexpr int32_t kQueryHeads = 4;
    const int32_t heads = kQueryHeads + 2 * s.kv_heads, rows = s.sequences * s.kv_heads;
    const int32_t summary_pages = s.pages + 2;
    const auto d_cache = Poisoned<__nv_bfloat16>(int64_t{s.sequences} * s.pages * 2 *
                                                 s.page_tokens * s.kv_heads * s.head_dim);
    const auto d_bounds = Poisoned<__nv_bfloat16>(int64_t{rows} * summary_pages * 2 * s.head_dim);
    const auto d_query = Poisoned<__nv_bfloat16>(s.sequences * kQueryHeads * s.head_dim);
    const PagedKv cache = s.nhd ? NhdPages(d_cache.get(), s.page_tokens, s.kv_heads, s.head_dim)
                                : HndPages(d_cache.get(), s.page_tokens, s.kv_heads, s.head_dim);
    std::vector<float> frequencies;
    for (int i = 0; i < s.head_dim / 2; ++i) frequencies.push_back(std::pow(1e4F, -0.02F * i));
    const auto d_frequencies = Uploaded(frequencies);
    // Sequence t begins at step t, so that in the end pages are full, partly full and not begun.
    std::vector<int32_t> length(s.sequences, 0);
    const int32_t steps = (s.pages - 1) * s.page_tokens - 1;
    for (int32_t step = 0; step < steps; ++step) {
      std::vector<int32_t> slot, place, page, position;
      for (int32_t t = 0; t < s.sequences; ++t) {
        const bool waits = step < t;  // a waiting sequence repeats its first token's place
        const int32_t at = waits ? 0 : length[t]++;
        page.push_back(at / s.page_tokens);
        place.push_back(at % s.page_tokens);
        slot.push_back(t * s.pages + page.back());
        position.push_back(1000 * t + at);
      }
      const auto qkv = RandomBf16(random_, s.sequences * heads * s.head_dim);
      const auto d_qkv = Uploaded(qkv);
      const auto d_slot = Uploaded(slot), d_place = Uploaded(place), d_page = Uploaded(page);
      const auto d_position = Uploaded(position);
      RopeAppend(d_qkv.get(), s.sequences, kQueryHeads, cache, d_slot.get(), d_place.get(),
                 d_position.get(), d_frequencies.get(), 1, d_query.get(),
                 {d_bounds.get(), d_page.get(), summary_pages}, nullptr);
      const auto unread = ToHost(d_qkv);
      for (size_t i = 0; i < qkv.size(); ++i) ASSERT_EQ(Bits(unread[i]), Bits(qkv[i]));
    }
    const auto keys = ToHost(d_cache), bounds = ToHost(d_bounds);
    for (int32_t row = 0; row < rows; ++row) {
      const int32_t sequence = row / s.kv_heads;
      for (int32_t page = 0; page < summary_pages; ++page) {
        for (int32_t i = 0; i < s.head_dim; ++i) {
          const int64_t at = (int64_t{row} * summary_pages + page) * 2 * s.head_dim + i;
          const double low = Value(bounds[at]), high = Value(bounds[at + s.head_dim]);
          const int32_t tokens = std::min(length[sequence] - page * s.page_tokens, s.page_tokens);
          if (tokens <= 0) {
            ASSERT_TRUE(std::isnan(low) && std::isnan(high)) << "page " << page;
            continue;
          }
          double least = std::numeric_limits<double>::infinity(), most = -least;
          for (int32_t token = 0; token < tokens; ++token) {
            const double key =
                Value(keys[(sequence * s.pages + page) * cache.slot_stride +
                           token * cache.token_stride + row % s.kv_heads * cache.head_stride + i]);
            least = std::min(least, key);
            most = std::max(most, key);
          }
          ASSERT_EQ(low, least) << "row " << row << " page " << page << " channel " << i;
          ASSERT_EQ(high, most) << "row " << row << " page " << page << " channel " << i;
        }
      }
    }
  }
}

TEST_F(Decoder, SwiGluMatchesItsDefinition) {
  for (const int32_t width : {8, 1000, 14336}) {
    for (const int64_t rows : {1, 3}) {
      auto gate_up = RandomBf16(random_, rows * 2 * width, 4);
      gate_up[0] = Rounded(-200);  // exp(200) overflows a float: silu must still be 0
      gate_up[1] = Rounded(200);
      const auto d_gate_up = Uploaded(gate_up);
      const auto d_output = Poisoned<__nv_bfloat16>(rows * width);
      SwiGlu(d_gate_up.get(), rows, width, d_output.get(), nullptr);
      const auto output = ToHost(d_output);
      for (int64_t i = 0; i < rows * width; ++i) {
        const int64_t at = i / width * 2 * width + i % width;
        const double gate = Value(gate_up[at]), up = Value(gate_up[at + width]);
        ExpectRounded(gate / (1 + std::exp(-gate)) * up, output[i], 4, i);
      }
    }
  }
}

TEST_F(Decoder, ArgMaxTakesTheLargestAndTheFirstOfTies) {
  const double kInfinity = std::numeric_limits<double>::infinity();
  struct Shape {
    int32_t vocabulary;
    int64_t rows;
  };
  for (const auto& [vocabulary, rows] :
       {Shape{1, 6}, Shape{7, 6}, Shape{1000, 6}, Shape{32000, 6}, Shape{32000, 200},
        Shape{33001, 4}, Shape{128256, 6}, Shape{151936, 5}}) {
    // Few distinct values: most rows have many ties.
    auto logits = RandomBf16(random_, rows * vocabulary, 0.02F);
    for (int64_t i = 0; i < vocabulary; ++i) {
      logits[i] = Rounded(-kInfinity);
      logits[vocabulary + i] = Rounded(-5);
      logits[2 * vocabulary + i] = Rounded(i == vocabulary - 1 ? -1 : -2);
      logits[3 * vocabulary + i] =
          Rounded(std::round(3 * Value(logits[3 * vocabulary + i]) / 0.02));
    }
    const auto d_logits = Uploaded(logits);
    const auto d_token = Poisoned<int32_t>(rows);
    ArgMax(d_logits.get(), rows, vocabulary, d_token.get(), nullptr);
    const auto token = ToHost(d_token);
    for (int64_t row = 0; row < rows; ++row) {
      int32_t best = 0;
      for (int32_t i = 1; i < vocabulary; ++i) {
        if (Value(logits[row * vocabulary + i]) > Value(logits[row * vocabulary + best])) best = i;
      }
      EXPECT_EQ(token[row], best) << "row " << row << " of " << vocabulary;
    }
  }
}

struct ProductShape {
  int64_t m, n, k;
};

void ExpectProduct(const ProductShape& s, const std::vector<__nv_bfloat16>& a,
                   const std::vector<__nv_bfloat16>& b, const std::vector<__nv_bfloat16>& c) {
  SCOPED_TRACE(testing::Message() << "m " << s.m << ", n " << s.n << ", k " << s.k);
  for (int64_t row = 0; row < s.m; ++row) {
    for (int64_t column = 0; column < s.n; ++column) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < s.k; ++i) {
        const double product = Value(a[row * s.k + i]) * Value(b[column * s.k + i]);
        sum += product;
        magnitude += std::abs(product);
      }
      ExpectRounded(sum, c[row * s.n + column], magnitude, row * s.n + column);
    }
  }
}

// Fewer chunks of columns than warps and more, fewer tiles of rows than multiprocessors and more.
TEST_F(Decoder, SkinnyGemmMatchesDoubleAndWritesNothingElse) {
  for (const ProductShape& s :
       {ProductShape{1, 8, 128}, ProductShape{2, 24, 384}, ProductShape{3, 2200, 128},
        ProductShape{4, 1064, 2176}, ProductShape{5, 16, 3584}, ProductShape{8, 2128, 256},
        ProductShape{7, 1072, 2048}, ProductShape{1, 72, 14336}, ProductShape{6, 8, 4096},
        ProductShape{4, 2120, 18944}, ProductShape{3, 1072, 18944}}) {
    if (!HasSkinnyGemm(s.m, s.n, s.k)) continue;  // a smaller device
    const auto a = RandomBf16(random_, s.m * s.k);
    const auto b = RandomBf16(random_, s.n * s.k);
    const auto d_a = Uploaded(a), d_b = Uploaded(b);
    constexpr int64_t kBeyond = 64;
    const auto d_c = Poisoned<__nv_bfloat16>(s.m * s.n + kBeyond);
    SkinnyGemm(d_a.get(), d_b.get(), d_c.get(), s.m, s.n, s.k, nullptr);
    const auto c = ToHost(d_c);
    ExpectProduct(s, a, b, c);
    for (int64_t i = 0; i < kBeyond; ++i) ASSERT_EQ(Bits(c[s.m * s.n + i]), 0xFFFF);
  }
}

TEST_F(Decoder, SkinnyGemmSaysWhatItHas) {
  const auto data = Poisoned<__nv_bfloat16>(64);
  for (const ProductShape& s :
       {ProductShape{0, 64, 128}, ProductShape{9, 64, 128}, ProductShape{1, 12, 128},
        ProductShape{1, 64, 192}, ProductShape{8, 64, 128 * 1024}}) {
    EXPECT_FALSE(HasSkinnyGemm(s.m, s.n, s.k)) << s.m << ' ' << s.n << ' ' << s.k;
    EXPECT_THROW(SkinnyGemm(data.get(), data.get(), data.get(), s.m, s.n, s.k, nullptr), Error);
  }
  EXPECT_TRUE(HasSkinnyGemm(1, 4096, 4096));
}

TEST_F(Decoder, GemmMatchesDoubleAndKeepsItsChoice) {
  Gemm gemm;
  for (const ProductShape& s :
       {ProductShape{1, 64, 128}, ProductShape{1, 1024, 4096}, ProductShape{5, 256, 512},
        ProductShape{33, 128, 1024}, ProductShape{64, 6144, 256}}) {
    const auto a = RandomBf16(random_, s.m * s.k);
    const auto b = RandomBf16(random_, s.n * s.k);
    const auto d_a = Uploaded(a), d_b = Uploaded(b);
    std::vector<__nv_bfloat16> first;
    for (int run = 0; run < 2; ++run) {
      const auto d_c = Poisoned<__nv_bfloat16>(s.m * s.n);
      gemm.Run(d_a.get(), d_b.get(), d_c.get(), s.m, s.n, s.k, nullptr);
      const auto c = ToHost(d_c);
      if (run == 0) first = c;
      for (int64_t i = 0; i < s.m * s.n; ++i) ASSERT_EQ(Bits(first[i]), Bits(c[i]));
    }
    ExpectProduct(s, a, b, first);
  }
}

TEST_F(Decoder, WrongShapesAreErrors) {
  const auto data = Poisoned<__nv_bfloat16>(64);
  EXPECT_THROW(AddRmsNorm(nullptr, data.get(), data.get(), 0, 1, 12, data.get(), nullptr), Error);
  EXPECT_THROW(AddRmsNorm(nullptr, data.get(), data.get(), 0, 1, 1 << 20, data.get(), nullptr),
               Error);
  EXPECT_THROW(SwiGlu(data.get(), 1, 9, data.get(), nullptr), Error);
  EXPECT_THROW(ArgMax(data.get(), 1, 0, nullptr, nullptr), Error);
  Gemm gemm;
  EXPECT_THROW(gemm.Run(data.get(), data.get(), data.get(), 1, 0, 8, nullptr), Error);
}

}  // namespace
}  // namespace stallcast::kernels
