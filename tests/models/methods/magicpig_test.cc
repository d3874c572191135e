// MagicPIG's sampling in double precision, given its random vectors, and what theory says of it.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "models/methods/magicpig/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"

namespace stallcast::methods {
namespace {

using brute::Vector;

// Signs of products with each random vector; `near` if one is too close to zero for a float.
std::vector<bool> Signs(const Vector& x, int64_t hashes, bool& near) {
  std::vector<bool> signs;
  for (int64_t hash = 0; hash < hashes; ++hash) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += x[i] * HashDirection(hash, static_cast<int64_t>(i), std::ssize(x));
    }
    near = near || std::abs(sum) < 1e-5 * std::sqrt(brute::Dot(x, x));
    signs.push_back(sum > 0);
  }
  return signs;
}

TEST(MagicPig, AttendsTokensThatMeetTheQueryInEnoughTables) {
  for (const RandomTraceOptions& shape :
       {RandomTraceOptions{.steps = 30},
        RandomTraceOptions{.kv_heads = 1, .group = 4, .dim = 17, .steps = 30, .seed = 2}}) {
    const traces::Trace trace = RandomTrace(shape);
    const LayerTensors tensors(trace, 0);
    const brute::Layer layer(trace, 0);
    const MagicPigParams params{.bits = 3, .tables = 9, .collisions = 2, .sink = 4, .window = 16};
    const int64_t hashes = params.bits * params.tables, end = layer.prompt - params.window;
    brute::Cells cells(static_cast<size_t>(layer.steps));
    for (int head = 0; head < layer.query_heads; ++head) {
      const std::vector<Vector>& keys = layer.keys[head / layer.group];
      Vector mean(static_cast<size_t>(layer.dim));
      for (int64_t t = params.sink; t < end; ++t) {
        for (int i = 0; i < layer.dim; ++i) {
          mean[i] += keys[t][i] / static_cast<double>(end - params.sink);
        }
      }
      bool keys_near = false;
      std::vector<std::vector<bool>> signs;
      for (int64_t t = params.sink; t < end; ++t) {
        Vector key = keys[t];
        for (int i = 0; i < layer.dim; ++i) key[i] -= mean[i];
        signs.push_back(Signs(key, hashes, keys_near));
      }
      for (int step = 0; step < layer.steps; ++step) {
        brute::Cell& cell = cells[step].emplace_back();
        cell.selected_now = true;
        bool near = keys_near;
        const std::vector<bool> query = Signs(layer.Query(head, layer.prompt + step), hashes, near);
        cell.ambiguous = near;
        cell.attended.assign(static_cast<size_t>(layer.prompt + step + 1), false);
        for (int64_t t = 0; t <= layer.prompt + step; ++t) {
          int64_t met = 0;
          for (int64_t table = 0; t >= params.sink && t < end && table < params.tables; ++table) {
            bool all = true;
            for (int64_t bit = 0; bit < params.bits; ++bit) {
              const int64_t hash = table * params.bits + bit;
              all = all && query[hash] == signs[t - params.sink][hash];
            }
            met += all ? 1 : 0;
          }
          cell.attended[t] = t < params.sink || t >= end || met >= params.collisions;
        }
      }
    }
    ExpectSame(Replayed(MagicPigPolicy(params), tensors), cells, layer, 0.5);
  }
}

// Two vectors at an angle a have the same sign with a random one with probability 1 - a / pi, so a
// pair meets in a table with that to the power of `bits`.
TEST(MagicPig, KeysMeetAQueryAsOftenAsTheirAngleSays) {
  constexpr int kDim = 32;
  constexpr int64_t kHashes = 20'000;
  for (const double angle : {0.2, 0.8, std::numbers::pi / 2, 2.5}) {
    int64_t same = 0;
    for (int64_t hash = 0; hash < kHashes; ++hash) {
      const double x = HashDirection(hash, 0, kDim), y = HashDirection(hash, 1, kDim);
      same += (x > 0) == (std::cos(angle) * x + std::sin(angle) * y > 0) ? 1 : 0;
    }
    // Four standard deviations.
    EXPECT_NEAR(static_cast<double>(same) / kHashes, 1 - angle / std::numbers::pi, 0.015) << angle;
  }
}

}  // namespace
}  // namespace stallcast::methods
