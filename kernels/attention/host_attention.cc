#include "kernels/attention/host_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/runtime/host_threads.h"
#include "traces/common/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/host_attention.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// After highway.h: it has a part for each target.
#include "hwy/contrib/math/math-inl.h"

#ifndef STALLCAST_HOST_ATTENTION_PART
#define STALLCAST_HOST_ATTENTION_PART
namespace stallcast::kernels {

// A stretch of one row's tokens, and what it adds to each query head's softmax.
struct HostAttentionPart {
  const float* query = nullptr;  // [group][head_dim], times the scale
  const uint16_t *keys = nullptr, *values = nullptr;
  int64_t tokens = 0;
  int32_t group = 0, head_dim = 0;
  float *most = nullptr, *sum = nullptr;  // [group]: the largest logit; sum of exp(logit - that)
  float* output = nullptr;                // [group][head_dim]: values by those weights
};

// Tokens whose logits are held at once: their keys are read once for the whole group.
inline constexpr int64_t kBlock = 64;
// Of a head, at once; the most that a vector has.
inline constexpr int32_t kChannels = 16;

}  // namespace stallcast::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace stallcast::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kChannels>;

// Far below every logit, far above where arithmetic on it could overflow.
constexpr float kNever = -1e30F;

HWY_INLINE hn::Vec<D> Widened(D d, const uint16_t* from) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from))));
}

// Query heads whose logits of a token are summed at once.
template <int kHeads>
HWY_INLINE void Logits(const HostAttentionPart& part, int64_t first, int64_t count, int head,
                       float* HWY_RESTRICT logits) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* HWY_RESTRICT query = part.query + int64_t{head} * part.head_dim;
  for (int64_t t = 0; t < count; ++t) {
    const uint16_t* HWY_RESTRICT key = part.keys + (first + t) * part.head_dim;
    hn::Vec<D> sum[kHeads];
    for (int h = 0; h < kHeads; ++h) sum[h] = hn::Zero(d);
    for (int64_t i = 0; i < part.head_dim; i += lanes) {
      const auto k = Widened(d, key + i);
      for (int h = 0; h < kHeads; ++h) {
        sum[h] = hn::MulAdd(hn::LoadU(d, query + h * part.head_dim + i), k, sum[h]);
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      logits[(head + h) * kBlock + t] = hn::GetLane(hn::SumOfLanes(d, sum[h]));
    }
  }
}

template <int kHeads>
HWY_INLINE void AddValues(const HostAttentionPart& part, int64_t first, int64_t count, int head,
                          const float* HWY_RESTRICT weights) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* HWY_RESTRICT output = part.output + int64_t{head} * part.head_dim;
  for (int64_t i = 0; i < part.head_dim; i += lanes) {
    hn::Vec<D> sum[kHeads];
    for (int h = 0; h < kHeads; ++h) sum[h] = hn::LoadU(d, output + h * part.head_dim + i);
    const uint16_t* HWY_RESTRICT value = part.values + first * part.head_dim + i;
    for (int64_t t = 0; t < count; ++t, value += part.head_dim) {
      const auto v = Widened(d, value);
      for (int h = 0; h < kHeads; ++h) {
        sum[h] = hn::MulAdd(hn::Set(d, weights[(head + h) * kBlock + t]), v, sum[h]);
      }
    }
    for (int h = 0; h < kHeads; ++h) hn::StoreU(sum[h], d, output + h * part.head_dim + i);
  }
}

void Attend(const HostAttentionPart& part) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  std::vector<float> logits(static_cast<size_t>(part.group) * kBlock);
  std::fill_n(part.most, part.group, -std::numeric_limits<float>::infinity());
  std::fill_n(part.sum, part.group, 0.0F);
  std::fill_n(part.output, int64_t{part.group} * part.head_dim, 0.0F);
  for (int64_t first = 0; first < part.tokens; first += kBlock) {
    const int64_t count = std::min(kBlock, part.tokens - first);
    int head = 0;
    for (; head + 4 <= part.group; head += 4) Logits<4>(part, first, count, head, logits.data());
    for (; head < part.group; ++head) Logits<1>(part, first, count, head, logits.data());
    for (head = 0; head < part.group; ++head) {
      float* row = logits.data() + head * kBlock;
      std::fill(row + count, row + kBlock, kNever);
      const float before = part.most[head];
      const float most = std::max(before, *std::max_element(row, row + count));
      const float kept = std::exp(before - most);
      auto sum = hn::Zero(d);
      for (int64_t t = 0; t < kBlock; t += lanes) {
        const auto weight = hn::Exp(d, hn::Sub(hn::LoadU(d, row + t), hn::Set(d, most)));
        hn::StoreU(weight, d, row + t);
        sum = hn::Add(sum, weight);
      }
      part.most[head] = most;
      part.sum[head] = part.sum[head] * kept + hn::GetLane(hn::SumOfLanes(d, sum));
      if (kept == 1) continue;
      float* output = part.output + int64_t{head} * part.head_dim;
      for (int64_t i = 0; i < part.head_dim; ++i) output[i] *= kept;
    }
    for (head = 0; head + 4 <= part.group; head += 4) {
      AddValues<4>(part, first, count, head, logits.data());
    }
    for (; head < part.group; ++head) AddValues<1>(part, first, count, head, logits.data());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stallcast::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stallcast::kernels {

HWY_EXPORT(Attend);

namespace {

// Tokens that a thread takes at once: enough to hide waking another, few enough to share well.
constexpr int64_t kStretch = 512;

float FromBits(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// To the nearest, ties to even.
uint16_t ToBits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// What the stretches of a row add up to.
void Merge(const HostAttentionArgs& args, size_t row, std::span<const HostAttentionPart> parts) {
  for (int head = 0; head < args.group; ++head) {
    float most = -std::numeric_limits<float>::infinity();
    for (const HostAttentionPart& part : parts) most = std::max(most, part.most[head]);
    const int64_t at = static_cast<int64_t>(row) * args.group + head;
    double sum = 0;
    std::vector<double> output(static_cast<size_t>(args.head_dim));
    for (const HostAttentionPart& part : parts) {
      const double weight = std::exp(part.most[head] - most);
      sum += weight * part.sum[head];
      const float* of_part = part.output + int64_t{head} * args.head_dim;
      for (size_t i = 0; i < output.size(); ++i) output[i] += weight * of_part[i];
    }
    for (size_t i = 0; i < output.size(); ++i) {
      args.output[at * args.head_dim + static_cast<int64_t>(i)] =
          ToBits(static_cast<float>(output[i] / sum));
    }
    if (args.log_sums != nullptr) args.log_sums[at] = most + static_cast<float>(std::log(sum));
  }
}

}  // namespace

void HostAttention(const HostAttentionArgs& args, int threads) {
  if (args.head_dim % kChannels != 0) {
    throw UsageError(fmt::format("heads have {} channels", args.head_dim), "attention on the host",
                     fmt::format("choose a model with a multiple of {}", kChannels));
  }
  const size_t rows = args.tokens.size();
  const int64_t elements = int64_t{args.group} * args.head_dim;
  std::vector<float> query(rows * static_cast<size_t>(elements));
  for (size_t i = 0; i < query.size(); ++i) query[i] = FromBits(args.query[i]) * args.scale;
  std::vector<size_t> first_part{0};  // of each row
  for (const int64_t tokens : args.tokens) {
    first_part.push_back(first_part.back() +
                         static_cast<size_t>((tokens + kStretch - 1) / kStretch));
  }
  const size_t count = first_part.back();
  std::vector<HostAttentionPart> parts(count);
  std::vector<float> results(count * static_cast<size_t>(elements + 2 * int64_t{args.group}));
  float* next = results.data();
  for (size_t row = 0; row < rows; ++row) {
    int64_t first = 0;
    for (size_t i = first_part[row]; i < first_part[row + 1]; ++i, first += kStretch) {
      parts[i] = {.query = query.data() + row * static_cast<size_t>(elements),
                  .keys = args.keys[row] + first * args.head_dim,
                  .values = args.values[row] + first * args.head_dim,
                  .tokens = std::min(kStretch, args.tokens[row] - first),
                  .group = args.group,
                  .head_dim = args.head_dim,
                  .most = next,
                  .sum = next + args.group,
                  .output = next + int64_t{2} * args.group};
      next += elements + int64_t{2} * args.group;
    }
  }
  const auto attend = [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(Attend)(parts[static_cast<size_t>(i)]);
  };
  const auto merge = [&](int64_t at) {
    const auto row = static_cast<size_t>(at);
    Merge(args, row,
          std::span(parts).subspan(first_part[row], first_part[row + 1] - first_part[row]));
  };
  ShareAmongThreads(threads, static_cast<int64_t>(count), attend);
  ShareAmongThreads(count > 1 ? threads : 1, static_cast<int64_t>(rows), merge);
}

}  // namespace stallcast::kernels
#endif  // HWY_ONCE
