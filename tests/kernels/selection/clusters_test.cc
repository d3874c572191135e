#include "kernels/selection/clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/selection/selection.h"
#include "kernels/selection/selection_passes.h"
#include "models/methods/common/key_clusters.h"
#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"
#include "tests/kernels/on_device.h"
#include "tests/models/methods/random_trace.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

class Clusters : public OnDevice {
 protected:
  // Keys that wander, so that there is something to cluster: [row][token][dim].
  std::vector<float> Keys(int rows, int tokens, int dim) {
    std::normal_distribution<float> normal;
    std::vector<float> keys;
    for (int r = 0; r < rows; ++r) {
      std::vector<float> at(static_cast<size_t>(dim)), home(static_cast<size_t>(dim));
      for (int t = 0; t < tokens; ++t) {
        for (int i = 0; i < dim; ++i) {
          if (t % 37 == 0) home[i] = 2 * normal(random_);
          at[i] = 0.7f * at[i] + 0.3f * home[i] + 0.5f * normal(random_);
          keys.push_back(__bfloat162float(__float2bfloat16(at[i])));
        }
      }
    }
    return keys;
  }
};

// The same keys in pages on the device, values poisoned.
struct Paged {
  Paged(const std::vector<float>& keys, int sequences, int heads, int tokens, int dim, int page,
        bool hnd) {
    const int pages = (tokens + page - 1) / page;
    data = Poisoned<Bf16>(int64_t{sequences} * pages * 2 * page * heads * dim);
    runs = {hnd ? HndPages(data.get(), page, heads, dim) : NhdPages(data.get(), page, heads, dim),
            pages};
    std::vector<Bf16> host = ToHost(data);
    for (int r = 0; r < sequences * heads; ++r) {
      for (int t = 0; t < tokens; ++t) {
        Bf16* to = host.data() + (r / heads * pages + t / page) * runs.cache.slot_stride +
                   t % page * runs.cache.token_stride + r % heads * runs.cache.head_stride;
        const float* from = keys.data() + (int64_t{r} * tokens + t) * dim;
        for (int i = 0; i < dim; ++i) to[i] = __float2bfloat16(from[i]);
      }
    }
    Check(cudaMemcpy(data.get(), host.data(), static_cast<size_t>(data.bytes()),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  Buffer<Bf16> data;
  PageRuns runs;
};

// What the policy makes of a row's keys.
methods::KeyClusters OnHost(const std::vector<float>& keys, int row, int tokens, int dim, int first,
                            int count, int clusters, int iterations) {
  traces::Trace trace;
  trace.info.set_prompt_tokens(tokens - 1);
  trace.info.set_decode_steps(1);
  const auto begin = keys.begin() + int64_t{row} * tokens * dim;
  trace.tensors.push_back(methods::MakeTensor(traces::TensorKind::kKey, 0, 1, dim, 0,
                                              {begin, begin + int64_t{tokens} * dim}));
  trace.tensors.push_back(methods::MakeTensor(traces::TensorKind::kQuery, 0, 1, dim, tokens - 1,
                                              std::vector<float>(static_cast<size_t>(dim))));
  return methods::ClusterKeys(methods::LayerTensors(trace, 0), 0, first, count, clusters,
                              iterations);
}

struct KMeansCase {
  int sequences, heads, tokens, dim, page, first, count, clusters, iterations;
  bool hnd;
};

struct Clustered {
  int stride;  ///< of centroids
  std::vector<Bf16> mean;
  std::vector<int32_t> offset, member;
};

Clustered OnTheDevice(const KMeansCase& c, const Paged& paged, bool portable) {
  const int rows = c.sequences * c.heads, stride = c.clusters + 3;
  const auto centroids = Poisoned<Bf16>(int64_t{rows} * stride * c.dim);
  const auto offsets = Poisoned<int32_t>(int64_t{rows} * (stride + 1));
  const auto members = Poisoned<int32_t>(int64_t{rows} * (c.count + 5));
  const KMeansArgs args{.keys = paged.runs,
                        .rows = rows,
                        .first_token = c.first,
                        .tokens = c.count,
                        .clusters = c.clusters,
                        .iterations = c.iterations,
                        .centroids = centroids.get(),
                        .centroid_stride = stride,
                        .lists = {offsets.get(), members.get(), stride + 1, c.count + 5},
                        .portable = portable};
  const auto workspace = Poisoned<char>(KMeansWorkspace(args));
  KMeans(args, workspace.get(), nullptr);
  return {stride, ToHost(centroids), ToHost(offsets), ToHost(members)};
}

void ExpectClusters(const methods::KeyClusters& want, const Clustered& got, int row,
                    const KMeansCase& c, const std::vector<float>& keys) {
  for (int i = 0; i <= c.clusters; ++i) {
    ASSERT_EQ(got.offset[row * (got.stride + 1) + i], static_cast<int32_t>(want.offsets[i]))
        << "row " << row;
  }
  for (int i = 0; i < c.count; ++i) {
    ASSERT_EQ(got.member[row * (c.count + 5) + i], static_cast<int32_t>(want.tokens[i]) + c.first)
        << "row " << row;
  }
  for (int u = 0; u < c.clusters; ++u) {
    const uint32_t size = want.offsets[u + 1] - want.offsets[u];
    for (int i = 0; i < c.dim; ++i) {
      double sum = 0;
      for (uint32_t at = want.offsets[u]; at < want.offsets[u + 1]; ++at) {
        const int64_t token = int64_t{row} * c.tokens + c.first + want.tokens[at];
        sum += static_cast<double>(keys[token * c.dim + i]);
      }
      ExpectRounded(size > 0 ? sum / size : 0, got.mean[(row * got.stride + u) * c.dim + i], 10, u);
    }
  }
}

void ExpectPolicysClusters(const KMeansCase& c, const std::vector<float>& keys) {
  SCOPED_TRACE(testing::Message() << c.count << " of " << c.tokens << " tokens, " << c.clusters
                                  << " clusters, dim " << c.dim << ", " << c.iterations
                                  << " iterations, hnd " << c.hnd);
  const Paged paged(keys, c.sequences, c.heads, c.tokens, c.dim, c.page, c.hnd);
  const Clustered best = OnTheDevice(c, paged, false), portable = OnTheDevice(c, paged, true);
  for (int r = 0; r < c.sequences * c.heads; ++r) {
    const auto want = OnHost(keys, r, c.tokens, c.dim, c.first, c.count, c.clusters, c.iterations);
    {
      SCOPED_TRACE("the device's best");
      ASSERT_NO_FATAL_FAILURE(ExpectClusters(want, best, r, c, keys));
    }
    SCOPED_TRACE("portable");
    ASSERT_NO_FATAL_FAILURE(ExpectClusters(want, portable, r, c, keys));
  }
}

TEST_F(Clusters, AreThePolicys) {
  for (const KMeansCase& c : {KMeansCase{1, 2, 300, 128, 16, 0, 300, 19, 5, false},
                              KMeansCase{2, 3, 700, 64, 32, 13, 650, 41, 4, true},
                              KMeansCase{1, 1, 1030, 128, 1, 64, 900, 131, 6, false},
                              KMeansCase{1, 2, 260, 256, 16, 1, 257, 70, 3, false},
                              KMeansCase{1, 1, 40, 128, 8, 0, 40, 40, 2, true},
                              KMeansCase{1, 1, 2, 64, 4, 1, 1, 1, 1, false},
                              KMeansCase{2, 4, 5000, 128, 16, 64, 4700, 294, 5, false}}) {
    ExpectPolicysClusters(c, Keys(c.sequences * c.heads, c.tokens, c.dim));
  }
}

// Hopper's kernel takes 64 centroids at a time, eight such tiles on their way, and 512 keys of a
// row a block; where there are more blocks than multiprocessors, one block after the other.
TEST_F(Clusters, AreThePolicysWhereTilesAndBlocksEnd) {
  for (const int dim : {64, 128}) {
    for (const int clusters : {1, 8, 63, 64, 65, 128, 129, 511, 512, 513, 1100}) {
      const int tokens = std::max(2 * clusters, 300);
      ExpectPolicysClusters({1, 2, tokens + 3, dim, 16, 3, tokens, clusters, 3, false},
                            Keys(2, tokens + 3, dim));
    }
    for (const int tokens : {127, 128, 129, 511, 512, 513, 1537}) {
      ExpectPolicysClusters({1, 3, tokens, dim, 16, 0, tokens, 70, 2, true}, Keys(3, tokens, dim));
    }
    ExpectPolicysClusters({9, 16, 530, dim, 16, 5, 525, 100, 3, false}, Keys(9 * 16, 530, dim));
  }
}

// A word of Hopper's kernel tells 16,384 clusters apart.
TEST_F(Clusters, AreThePolicysWhereThereAreMany) {
  for (const int clusters : {16384, 16385}) {
    ExpectPolicysClusters({1, 1, 16500, 64, 16, 0, 16500, clusters, 1, false}, Keys(1, 16500, 64));
  }
}

// Few different keys, so that most centroids have equals, in the same tile and in others.
TEST_F(Clusters, TiesGoToTheSmallerCluster) {
  for (const int dim : {64, 128}) {
    for (const int different : {2, 7, 40}) {
      constexpr int kTokens = 1300;
      const std::vector<float> some = Keys(1, different, dim);
      std::vector<float> keys;
      for (int t = 0; t < 2 * kTokens; ++t) {
        const auto key = some.begin() + int64_t{t} * t / 3 % different * dim;
        keys.insert(keys.end(), key, key + dim);
      }
      for (const int clusters : {2, 60, 150, 640}) {
        ExpectPolicysClusters({1, 2, kTokens, dim, 16, 0, kTokens, clusters, 3, false}, keys);
      }
    }
  }
}

// Nothing but the largest numbers, of either sign.
TEST_F(Clusters, HoldTheLargestKeys) {
  constexpr int kTokens = 1000;
  for (const int dim : {64, 128, 256}) {
    std::vector<float> opposite, random;
    for (int t = 0; t < kTokens; ++t) {
      // No seed of two clusters is negative: negative keys are as far as can be from both.
      for (int i = 0; i < dim; ++i) {
        opposite.push_back(t % 7 == 0 ? -2.0f : 2.0f);
        random.push_back(random_() % 2 == 0 ? -2.0f : 2.0f);
      }
    }
    for (const int clusters : {1, 2, 129}) {
      for (const int iterations : {1, 3}) {
        const KMeansCase c{1, 1, kTokens, dim, 16, 0, kTokens, clusters, iterations, false};
        ExpectPolicysClusters(c, opposite);
        ExpectPolicysClusters(c, random);
      }
    }
  }
}

TEST_F(Clusters, OfEqualKeysAreOne) {
  const KMeansCase c{1, 2, 500, 128, 16, 10, 480, 30, 3, false};
  std::vector<float> keys(static_cast<size_t>(2 * 500 * 128), 1.5f);
  ExpectPolicysClusters(c, keys);
  std::fill(keys.begin(), keys.end(), 0.0f);
  ExpectPolicysClusters(c, keys);
}

TEST_F(Clusters, RefuseMoreClustersThanKeys) {
  KMeansArgs args;
  args.keys.cache.head_dim = 128;
  args.rows = args.iterations = 1;
  args.tokens = 10;
  args.clusters = 11;
  EXPECT_THROW(KMeansWorkspace(args), Error);
  args.clusters = 0;
  EXPECT_THROW(KMeans(args, nullptr, nullptr), Error);
}

// ---- Selection under a budget

struct Selected {
  std::vector<int32_t> ids, id_count, token_count;
  std::vector<int64_t> source;
};

struct SelectCase {
  int sequences, heads, kv_heads, group, units, budget;
};

// Random sizes, empty units among them; members are shuffled tokens.
struct Lists {
  Lists(std::mt19937& random, int rows, int units) {
    for (int r = 0; r < rows; ++r) {
      offsets.push_back(0);
      for (int u = 0; u < units; ++u) {
        const int size = random() % 5 == 0 ? 0 : static_cast<int>(random() % 40);
        offsets.push_back(offsets.back() + size);
      }
      most = std::max(most, offsets.back());
    }
    for (int r = 0; r < rows; ++r) {
      std::vector<int32_t> tokens(static_cast<size_t>(most));
      std::iota(tokens.begin(), tokens.end(), 0);
      std::shuffle(tokens.begin(), tokens.end(), random);
      members.insert(members.end(), tokens.begin(), tokens.end());
    }
  }
  std::vector<int32_t> offsets, members;
  int32_t most = 1;
};

// In one kernel, or in passes. `units_of`, if not empty: units of each list.
Selected Select(const SelectCase& c, const std::vector<float>& scores, const Lists& lists,
                float scale, bool passes = false, const std::vector<int32_t>& units_of = {}) {
  const int rows = c.sequences * c.heads;
  const auto d_scores = Uploaded(scores);
  const auto offsets = Uploaded(lists.offsets), members = Uploaded(lists.members);
  const auto some = Uploaded(units_of);
  const auto ids = Poisoned<int32_t>(int64_t{rows} * c.budget);
  const auto id_count = Poisoned<int32_t>(rows), token_count = Poisoned<int32_t>(rows);
  const auto source = Poisoned<int64_t>(int64_t{rows} * c.budget);
  const SelectUnitsArgs args{.scores = d_scores.get(),
                             .rows = rows,
                             .group = c.group,
                             .units = c.units,
                             .scale = scale,
                             .units_of = units_of.empty() ? nullptr : some.get(),
                             .lists = {offsets.get(), members.get(), c.units + 1, lists.most},
                             .budget = c.budget,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .pool_tokens = lists.most,
                             .unit_ids = ids.get(),
                             .unit_count = id_count.get(),
                             .source = source.get(),
                             .token_count = token_count.get()};
  const auto workspace = Poisoned<char>(SelectUnitsWorkspace(args));
  if (passes) {
    SelectionPasses of(rows, c.group, c.units);
    of.Softmax(args, nullptr);
    of.Mean(args, nullptr);
    of.Sort(args, nullptr);
    of.Sizes(args, nullptr);
    of.RunningSum(args, nullptr);
    of.Fit(args, nullptr);
    of.List(args, nullptr);
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  } else {
    SelectUnits(args, workspace.get(), nullptr);
  }
  return {ToHost(ids), ToHost(id_count), ToHost(token_count), ToHost(source)};
}

// What the policy takes: pairs of unit and tokens, ascending.
std::vector<methods::Taken> Wanted(const SelectCase& c, const std::vector<float>& scores,
                                   const int32_t* offsets, int row, float scale) {
  std::vector<int32_t> units;
  std::vector<uint32_t> compact{0};
  for (int u = 0; u < c.units; ++u) {
    if (offsets[u] == offsets[u + 1]) continue;
    units.push_back(u);
    compact.push_back(compact.back() + static_cast<uint32_t>(offsets[u + 1] - offsets[u]));
  }
  std::vector<std::vector<float>> logits(static_cast<size_t>(c.group));
  std::vector<const float*> rows;
  for (int h = 0; h < c.group; ++h) {
    for (int u : units) logits[h].push_back(scores[(int64_t{row} * c.group + h) * c.units + u]);
    logits[h].resize(units.size() + methods::kPanel);
    rows.push_back(logits[h].data());
  }
  std::vector<float> pooled;
  methods::PoolScores(methods::Pooling::kSoftmaxMean, rows, std::ssize(units), scale, pooled);
  std::vector<methods::Taken> taken = methods::BestWithin(pooled, compact, c.budget);
  for (methods::Taken& t : taken) t.unit = static_cast<uint32_t>(units[t.unit]);
  return taken;
}

TEST_F(Clusters, SelectionFillsTheBudgetAsThePolicyDoes) {
  int64_t equal = 0, all = 0;
  for (const SelectCase& c : {SelectCase{1, 2, 2, 4, 300, 700}, SelectCase{2, 3, 3, 1, 1024, 1728},
                              SelectCase{1, 8, 2, 1, 2500, 900}, SelectCase{1, 1, 1, 7, 40, 10000},
                              SelectCase{2, 2, 2, 16, 9000, 3000}, SelectCase{1, 1, 1, 4, 1, 3},
                              SelectCase{1, 2, 2, 3, 5000, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << c.units << " units, group " << c.group << ", budget " << c.budget);
    const int rows = c.sequences * c.heads, lists_a_row = c.heads / c.kv_heads;
    const Lists lists(random_, rows / lists_a_row, c.units);
    std::normal_distribution<float> normal(0, 8);
    std::vector<float> scores(static_cast<size_t>(rows) * c.group * c.units);
    for (float& s : scores) s = normal(random_);
    const float scale = 0.3f;
    const Selected got = Select(c, scores, lists, scale);
    for (int r = 0; r < rows; ++r) {
      const int list = r / lists_a_row;
      const int32_t* offsets = lists.offsets.data() + list * (c.units + 1);
      const auto want = Wanted(c, scores, offsets, r, scale);
      int64_t at = 0, tokens = 0;
      for (const methods::Taken& t : want) tokens += t.tokens;
      ASSERT_EQ(got.token_count[r], tokens);
      std::set<int32_t> mine;
      for (int i = 0; i < got.id_count[r]; ++i) {
        const int32_t id = got.ids[int64_t{r} * c.budget + i];
        ASSERT_TRUE(id >= 0 && id < c.units);
        ASSERT_TRUE(mine.insert(id).second);
        ASSERT_EQ(*mine.rbegin(), id) << "not ascending";
        // Its tokens, as many as fit, one after the other.
        const int64_t size = offsets[id + 1] - offsets[id];
        for (int64_t j = 0; j < size && at < tokens; ++j, ++at) {
          const int64_t row = got.source[int64_t{r} * c.budget + at];
          const int64_t sequence = r / c.heads, head = r % c.heads * c.kv_heads / c.heads;
          const int64_t token = row / c.kv_heads - sequence * lists.most;
          ASSERT_EQ(row % c.kv_heads, head);
          if (token != lists.members[int64_t{list} * lists.most + offsets[id] + j]) {
            // Only the unit at the budget's end is cut short; the next begins here.
            ASSERT_GT(j, 0);
            break;
          }
        }
      }
      ASSERT_EQ(at, tokens);
      for (const methods::Taken& t : want) {
        ++all;
        equal += mine.contains(static_cast<int32_t>(t.unit)) ? 1 : 0;
      }
    }
  }
  std::printf("%ld of %ld selected units equal\n", static_cast<long>(equal),
              static_cast<long>(all));
  EXPECT_GE(static_cast<double>(equal), 0.999 * static_cast<double>(all));
}

std::set<int32_t> UnitsOf(const Selected& selected, const SelectCase& c, int row) {
  const auto begin = selected.ids.begin() + int64_t{row} * c.budget;
  return {begin, begin + selected.id_count[row]};
}
std::set<int64_t> TokensOf(const Selected& selected, const SelectCase& c, int row) {
  const auto begin = selected.source.begin() + int64_t{row} * c.budget;
  return {begin, begin + selected.token_count[row]};
}

TEST_F(Clusters, PassesSelectWhatTheKernelDoes) {
  for (const SelectCase& c : {SelectCase{1, 2, 2, 4, 300, 700}, SelectCase{2, 3, 3, 1, 1024, 1728},
                              SelectCase{1, 8, 2, 1, 2500, 900}, SelectCase{1, 1, 1, 4, 1, 3}}) {
    SCOPED_TRACE(testing::Message() << c.units << " units, group " << c.group);
    const int rows = c.sequences * c.heads, lists_a_row = c.heads / c.kv_heads;
    const Lists lists(random_, rows / lists_a_row, c.units);
    // Scores that no softmax rounds to the same: apart, and not far.
    std::uniform_real_distribution<float> uniform(-4, 4);
    std::vector<float> scores(static_cast<size_t>(rows) * c.group * c.units);
    for (float& s : scores) s = uniform(random_);
    std::vector<int32_t> units_of;
    for (int list = 0; list < rows / lists_a_row; ++list) {
      units_of.push_back(list % 2 == 0 ? c.units : c.units / 2);
    }
    const Selected kernel = Select(c, scores, lists, 1.0f, false, units_of);
    const Selected passes = Select(c, scores, lists, 1.0f, true, units_of);
    for (int r = 0; r < rows; ++r) {
      EXPECT_EQ(UnitsOf(passes, c, r), UnitsOf(kernel, c, r)) << "row " << r;
      EXPECT_EQ(TokensOf(passes, c, r), TokensOf(kernel, c, r)) << "row " << r;
    }
  }
}

TEST_F(Clusters, RowsChooseAmongTheUnitsThatTheyHave) {
  const SelectCase c{3, 2, 2, 2, 900, 400};
  const Lists lists(random_, 6, c.units);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> scores(static_cast<size_t>(6 * c.group * c.units));
  for (float& s : scores) s = normal(random_);
  const std::vector<int32_t> units_of{900, 0, 1, 350, 899, 0};
  const Selected got = Select(c, scores, lists, 1.0f, false, units_of);
  for (int r = 0; r < 6; ++r) {
    // The same row without the units that it does not have.
    SelectCase less = c;
    less.sequences = less.heads = less.kv_heads = 1;
    less.units = units_of[r];
    if (less.units == 0) {
      EXPECT_EQ(got.id_count[r], 0);
      EXPECT_EQ(got.token_count[r], 0);
      continue;
    }
    std::vector<float> mine;
    for (int h = 0; h < c.group; ++h) {
      const auto begin = scores.begin() + (int64_t{r} * c.group + h) * c.units;
      mine.insert(mine.end(), begin, begin + less.units);
    }
    Lists own = lists;
    const auto first = lists.offsets.begin() + r * (c.units + 1);
    own.offsets.assign(first, first + less.units + 1);
    own.members.assign(lists.members.begin() + int64_t{r} * lists.most,
                       lists.members.begin() + int64_t{r + 1} * lists.most);
    const Selected alone = Select(less, mine, own, 1.0f);
    EXPECT_EQ(UnitsOf(got, c, r), UnitsOf(alone, less, 0)) << "row " << r;
    EXPECT_EQ(got.token_count[r], alone.token_count[0]);
  }
}

TEST_F(Clusters, TiesGoToTheSmallerUnit) {
  const SelectCase c{1, 1, 1, 2, 700, 500};
  const Lists lists(random_, 1, c.units);
  std::vector<float> scores;
  for (int h = 0; h < 2; ++h) {
    for (int u = 0; u < c.units; ++u) scores.push_back(static_cast<float>(u % 3));
  }
  const Selected got = Select(c, scores, lists, 1.0f);
  int64_t left = c.budget;
  std::vector<int32_t> want;
  for (int value = 2; value >= 0; --value) {
    for (int u = 0; u < c.units && left > 0; ++u) {
      const int size = lists.offsets[u + 1] - lists.offsets[u];
      if (u % 3 != value || size == 0) continue;
      want.push_back(u);
      left -= size;
    }
  }
  std::sort(want.begin(), want.end());
  ASSERT_EQ(got.id_count[0], static_cast<int32_t>(want.size()));
  EXPECT_TRUE(std::equal(want.begin(), want.end(), got.ids.begin()));
}

// From keys to units: clusters, scores and selection on the device, and the policy's.
TEST_F(Clusters, RetrieveWhatThePolicyRetrieves) {
  constexpr int kHeads = 2, kGroup = 4, kDim = 128, kTokens = 6000, kClusters = 375, kBudget = 900;
  const std::vector<float> keys = Keys(kHeads, kTokens, kDim);
  const Paged paged(keys, 1, kHeads, kTokens, kDim, 16, false);
  const auto centroids = Poisoned<Bf16>(int64_t{kHeads} * kClusters * kDim);
  const auto offsets = Poisoned<int32_t>(kHeads * (kClusters + 1));
  const auto members = Poisoned<int32_t>(int64_t{kHeads} * kTokens);
  const UnitLists lists{offsets.get(), members.get(), kClusters + 1, kTokens};
  const KMeansArgs cluster{.keys = paged.runs,
                           .rows = kHeads,
                           .tokens = kTokens,
                           .clusters = kClusters,
                           .iterations = 5,
                           .centroids = centroids.get(),
                           .centroid_stride = kClusters,
                           .lists = lists};
  const auto workspace = Poisoned<char>(KMeansWorkspace(cluster));
  KMeans(cluster, workspace.get(), nullptr);
  const std::vector<Bf16> means = ToHost(centroids);
  const std::vector<int32_t> offset = ToHost(offsets);
  const float scale = 1 / std::sqrt(static_cast<float>(kDim));
  int64_t equal = 0, all = 0;
  for (int query = 0; query < 20; ++query) {
    const std::vector<Bf16> q = RandomBf16(random_, int64_t{kHeads} * kGroup * kDim, 2);
    const auto d_q = Uploaded(q);
    const auto scores = Poisoned<float>(int64_t{kHeads} * kGroup * kClusters);
    Score(d_q.get(), centroids.get(), kHeads, kGroup, kDim, 1, 0, kClusters, kClusters,
          Pooling::kNone, scale, scores.get(), nullptr, nullptr);
    const auto ids = Poisoned<int32_t>(int64_t{kHeads} * kBudget);
    const auto id_count = Poisoned<int32_t>(kHeads), token_count = Poisoned<int32_t>(kHeads);
    const auto source = Poisoned<int64_t>(int64_t{kHeads} * kBudget);
    const SelectUnitsArgs select{.scores = scores.get(),
                                 .rows = kHeads,
                                 .group = kGroup,
                                 .units = kClusters,
                                 .scale = scale,
                                 .lists = lists,
                                 .budget = kBudget,
                                 .heads = kHeads,
                                 .kv_heads = kHeads,
                                 .pool_tokens = kTokens,
                                 .unit_ids = ids.get(),
                                 .unit_count = id_count.get(),
                                 .source = source.get(),
                                 .token_count = token_count.get()};
    const auto more = Poisoned<char>(SelectUnitsWorkspace(select));
    SelectUnits(select, more.get(), nullptr);
    const auto got = ToHost(ids), count = ToHost(id_count);
    std::vector<float> exact;
    for (int r = 0; r < kHeads * kGroup; ++r) {
      for (int u = 0; u < kClusters; ++u) {
        double dot = 0;
        for (int i = 0; i < kDim; ++i) {
          dot += static_cast<double>(__bfloat162float(q[r * kDim + i])) *
                 __bfloat162float(means[(r / kGroup * kClusters + u) * kDim + i]);
        }
        exact.push_back(static_cast<float>(dot));
      }
    }
    const SelectCase c{1, kHeads, kHeads, kGroup, kClusters, kBudget};
    for (int r = 0; r < kHeads; ++r) {
      const std::set<int32_t> mine(got.begin() + r * kBudget, got.begin() + r * kBudget + count[r]);
      for (const methods::Taken& t :
           Wanted(c, exact, offset.data() + r * (kClusters + 1), r, scale)) {
        ++all;
        equal += mine.contains(static_cast<int32_t>(t.unit)) ? 1 : 0;
      }
    }
  }
  std::printf("%ld of %ld retrieved units equal\n", static_cast<long>(equal),
              static_cast<long>(all));
  EXPECT_GE(static_cast<double>(equal), 0.999 * static_cast<double>(all));
}

}  // namespace
}  // namespace stallcast::kernels
