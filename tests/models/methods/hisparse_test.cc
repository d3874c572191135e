// HiSparse: what is attended is Quest's, what is fetched follows from the rule of replacement, and
// no rule misses less than the one that knows the future.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/methods/hisparse/policy.h"
#include "models/methods/method.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

HiSparseParams Params(Replacement rule, int64_t page = 8, int64_t buffer = 96) {
  return {.budget = 48, .page = page, .buffer = buffer, .eviction = rule, .dense_layers = 0};
}

// What a buffer does, one unit at a time, from Quest's choices.
brute::Cells BruteForce(const brute::Layer& layer, const HiSparseParams& params) {
  brute::Cells cells = brute::Quest(
      layer, {.budget = params.budget, .page = params.page, .group = QuestParams::Group::kMax});
  const auto capacity = static_cast<size_t>(params.buffer / params.page);
  for (int head = 0; head < layer.kv_heads; ++head) {
    struct Times {
      int came, used;
    };
    std::map<uint32_t, Times> buffer;
    const auto next_use = [&](uint32_t unit, int step) {
      for (int s = step + 1; s < layer.steps; ++s) {
        if (cells[s][head].selected.contains(unit)) return s;
      }
      return layer.steps;
    };
    const auto shrink = [&](int step, const std::set<uint32_t>& used) {
      int64_t left = 0;
      for (; buffer.size() > capacity; ++left) {
        auto victim = buffer.end();
        const auto worth = [&](const auto& entry) {
          if (params.eviction == Replacement::kLru) return entry.second.used;
          if (params.eviction == Replacement::kFifo) return entry.second.came;
          return -next_use(entry.first, step);
        };
        for (auto it = buffer.begin(); it != buffer.end(); ++it) {
          if (used.contains(it->first)) continue;
          if (victim == buffer.end() || worth(*it) < worth(*victim)) victim = it;
        }
        buffer.erase(victim);
      }
      return left;
    };
    int64_t complete = brute::PagesOf(layer.prompt + 1, params.page) - 1;
    for (int64_t page = 0; page < complete; ++page) {
      const int when = static_cast<int>(page - complete);
      buffer[static_cast<uint32_t>(page)] = {when, when};
    }
    shrink(-1, {});
    bool ambiguous = false;
    for (int step = 0; step < layer.steps; ++step) {
      brute::Cell& cell = cells[step][head];
      const int64_t end = brute::PagesOf(layer.prompt + step + 1, params.page) - 1;
      for (; complete < end; ++complete) buffer[static_cast<uint32_t>(complete)] = {step, step};
      for (const uint32_t page : cell.selected) {
        if (!buffer.contains(page)) {
          cell.recalled_now.insert(page);
          buffer[page] = {step, step};
        }
        buffer[page].used = step;
      }
      cell.evicted = shrink(step, cell.selected);
      cell.ambiguous = ambiguous = ambiguous || cell.ambiguous;
    }
  }
  return cells;
}

TEST(HiSparse, FetchesWhatTheBufferLacks) {
  for (const RandomTraceOptions& shape :
       {RandomTraceOptions{}, RandomTraceOptions{.group = 1, .dim = 17, .prompt = 160, .seed = 3},
        RandomTraceOptions{.kv_heads = 1, .group = 4, .prompt = 40, .steps = 90, .seed = 5}}) {
    const traces::Trace trace = RandomTrace(shape);
    const LayerTensors tensors(trace, 0);
    const brute::Layer layer(trace, 0);
    for (const Replacement rule : {Replacement::kLru, Replacement::kFifo, Replacement::kBelady}) {
      for (const int64_t page : {1, 8}) {
        const HiSparseParams params = Params(rule, page);
        ExpectSame(Replayed(HiSparsePolicy(params), tensors), BruteForce(layer, params), layer,
                   /*share=*/0.6);
      }
    }
  }
}

int64_t Misses(const LayerTensors& tensors, Replacement rule, int64_t buffer) {
  return Replayed(HiSparsePolicy(Params(rule, 8, buffer)), tensors).access.recalled_now.total();
}

TEST(HiSparse, NoRuleMissesLessThanTheOneThatKnowsTheFuture) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const traces::Trace trace = RandomTrace({.prompt = 500, .steps = 90, .seed = seed});
    const LayerTensors tensors(trace, 0);
    for (const int64_t buffer : {48, 96, 192}) {
      const int64_t least = Misses(tensors, Replacement::kBelady, buffer);
      for (const Replacement rule : {Replacement::kLru, Replacement::kFifo, Replacement::kRandom}) {
        EXPECT_LE(least, Misses(tensors, rule, buffer)) << static_cast<int>(rule);
      }
    }
  }
}

// What a larger LRU buffer holds includes what a smaller one does.
TEST(HiSparse, ALargerBufferMissesLess) {
  const traces::Trace trace = RandomTrace({.prompt = 500, .steps = 90});
  const LayerTensors tensors(trace, 0);
  for (const Replacement rule : {Replacement::kLru, Replacement::kBelady}) {
    int64_t before = Misses(tensors, rule, 48);
    EXPECT_GT(before, 0);
    for (const int64_t buffer : {64, 96, 192, 384}) {
      const int64_t misses = Misses(tensors, rule, buffer);
      EXPECT_LE(misses, before);
      before = misses;
    }
    EXPECT_EQ(Misses(tensors, rule, 600), 0) << "all fits";
  }
}

TEST(HiSparse, RandomReplacementKeepsTheBufferFullAndWhatIsAttended) {
  const traces::Trace trace = RandomTrace({.prompt = 500, .steps = 90});
  const LayerTensors tensors(trace, 0);
  const HiSparseParams params = Params(Replacement::kRandom);
  const Replayed log(HiSparsePolicy(params), tensors);
  for (int step = 1; step < tensors.steps(); ++step) {
    for (int head = 0; head < log.access.heads; ++head) {
      const int64_t at = int64_t{step} * log.access.heads + head;
      const auto recalled = Set(log.access.recalled_now[at]);
      const auto selected = Set(log.access.selected[at]);
      EXPECT_TRUE(std::ranges::includes(selected, recalled));
      const int64_t written = (500 + step) % 8 == 0 ? 1 : 0;
      EXPECT_EQ(log.access.evicted[at], static_cast<int64_t>(recalled.size()) + written);
    }
  }
}

// Of the published miss rates (DSA at a buffer of twice the tokens attended) the order alone can
// hold on another model: the future, then LRU, then any, then first in first out.
TEST(HiSparse, RealTracesReuseWhatTheyUsedLast) {
  if (!std::filesystem::exists(kRealTrace)) GTEST_SKIP() << "no sample in traces/samples";
  const traces::Trace trace = traces::ReadTrace(kRealTrace);
  const LayerTensors tensors(trace, trace.Layers()[1]);
  const auto misses = [&](Replacement rule) {
    return Replayed(HiSparsePolicy({.eviction = rule}), tensors).access.recalled_now.total();
  };
  EXPECT_LT(misses(Replacement::kBelady), misses(Replacement::kLru));
  EXPECT_LT(misses(Replacement::kLru), misses(Replacement::kRandom));
  EXPECT_LT(misses(Replacement::kLru), misses(Replacement::kFifo));
}

}  // namespace
}  // namespace stallcast::methods
