// Traces made of random numbers, for policies to be tested on.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "traces/format/trace_file.h"

namespace stallcast::methods {

struct RandomTraceOptions {
  int layers = 1;
  int kv_heads = 2;
  int group = 3;
  int dim = 24;
  int64_t prompt = 203;
  int steps = 70;
  int64_t prompt_queries = 1;  ///< last prompt tokens whose queries are kept
  int value_dim = 0;           ///< 0: no values
  double similarity = 0.9;     ///< of adjacent queries, about; every seventh step it is 0.2
  uint32_t seed = 1;
};

inline traces::Tensor MakeTensor(traces::TensorKind kind, int layer, int heads, int dim,
                                 int64_t first, const std::vector<float>& values) {
  traces::Tensor tensor;
  tensor.spec = {kind,
                 traces::DType::kFp32,
                 layer,
                 heads,
                 dim,
                 first,
                 static_cast<int64_t>(values.size()) / heads / dim};
  tensor.data.resize(values.size() * sizeof(float));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

/// Keys drift slowly from token to token, so that pages differ; queries follow an autoregression.
inline traces::Trace RandomTrace(const RandomTraceOptions& o) {
  traces::Trace trace;
  trace.info.set_prompt_tokens(o.prompt);
  trace.info.set_decode_steps(o.steps);
  std::mt19937 random(o.seed);
  std::normal_distribution<float> normal;
  const auto walk = [&](int heads, int dim, int64_t first, int64_t last, bool queries) {
    std::vector<float> values;
    for (int h = 0; h < heads; ++h) {
      std::vector<float> at(static_cast<size_t>(dim));
      for (float& x : at) x = normal(random);
      for (int64_t t = first; t < last; ++t) {
        const double rho = !queries ? 0.95 : (t + h) % 7 == 0 ? 0.2 : o.similarity;
        for (float& x : at) {
          x = static_cast<float>(rho * x + std::sqrt(1 - rho * rho) * normal(random));
        }
        values.insert(values.end(), at.begin(), at.end());
      }
    }
    return values;
  };
  const int64_t tokens = o.prompt + o.steps;
  const int64_t first_query = o.prompt - o.prompt_queries;
  for (int layer = 0; layer < o.layers; ++layer) {
    trace.tensors.push_back(MakeTensor(traces::TensorKind::kKey, layer, o.kv_heads, o.dim, 0,
                                       walk(o.kv_heads, o.dim, 0, tokens, false)));
    trace.tensors.push_back(
        MakeTensor(traces::TensorKind::kQuery, layer, o.kv_heads * o.group, o.dim, first_query,
                   walk(o.kv_heads * o.group, o.dim, first_query, tokens, true)));
    if (o.value_dim == 0) continue;
    trace.tensors.push_back(MakeTensor(traces::TensorKind::kValue, layer, o.kv_heads, o.value_dim,
                                       0, walk(o.kv_heads, o.value_dim, 0, tokens, false)));
  }
  return trace;
}

}  // namespace stallcast::methods
