// Plans that the methods write: what they move, and how their times answer to the machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/hardware/profile.h"
#include "models/methods/decoder_plan.h"
#include "models/plan/graph.h"
#include "sim/engine.h"
#include "sim/metrics.h"
#include "tests/models/methods/random_trace.h"
#include "tests/sim/test_machine.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

using methods::MakeMethod;
using methods::ParamValues;
using methods::PlanInput;
using plan::Copy;
using plan::Direction;
using plan::OpId;

struct Variant {
  std::string method;
  ParamValues params;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.method;
  for (const auto& [name, value] : variant.params) *out << ' ' << name << '=' << value;
}

// Small pages and budgets, so that a small random trace selects, misses and crosses pages.
std::vector<Variant> Variants() {
  const ParamValues arkvale{{"budget", "128"}, {"page", "16"}, {"sink", "16"}, {"window", "32"}};
  ParamValues as_run = arkvale;
  as_run["variant"] = "freekv";
  const ParamValues freekv = arkvale;
  const auto pariskv = [](ParamValues values) {
    values.merge(ParamValues{{"topk", "20"},
                             {"sink", "16"},
                             {"local", "32"},
                             {"update", "16"},
                             {"dense_until", "0"},
                             {"subspaces", "4"}});
    return values;
  };
  const auto wgkv = [](ParamValues values) {
    values.merge(ParamValues{{"window", "32"}, {"sparsity", "0.5"}});
    return values;
  };
  const auto with = [&](std::initializer_list<std::pair<const std::string, std::string>> more) {
    ParamValues values = freekv;
    for (const auto& [name, value] : more) values[name] = value;
    return values;
  };
  const auto louiskv = [](ParamValues values) {
    values.insert({{"budget", "128"}, {"sink", "16"}, {"window", "32"}, {"tau", "0.75"}});
    return values;
  };
  const auto prkv = [](ParamValues values) {
    values.insert({{"budget", "128"}, {"page", "16"}, {"window", "32"}, {"update", "25"}});
    return values;
  };
  const auto shadowkv = [](ParamValues values) {
    values.merge(ParamValues{
        {"budget", "64"}, {"outliers", "2"}, {"local", "2"}, {"rank", "16"}, {"dense_until", "0"}});
    return values;
  };
  return {{"full", {}},
          {"offload", {}},
          {"offload", {{"prefetch", "0"}}},
          {"offload", {{"prefetch", "2"}}},
          {"offload", {{"prefetch", "16"}}},
          {"streaming", {{"budget", "128"}}},
          {"snapkv", {{"budget", "64"}}},
          {"snapkv", {{"budget", "64"}, {"group", "query-head"}}},
          {"h2o", {{"budget", "64"}, {"recent", "32"}}},
          {"raas", {{"budget", "64"}}},
          {"raas", {{"budget", "64"}, {"prompt", "pinned"}}},
          {"rkv", {{"budget", "64"}, {"buffer", "16"}}},
          {"duoattention", {{"sink", "16"}, {"window", "32"}, {"two_calls", "off"}}},
          {"razorattention", {{"window", "32"}, {"compensation", "off"}}},
          {"sparq", {{"budget", "64"}, {"window", "16"}}},
          {"twilight", {{"base", "64"}}},
          {"hisparse", {{"budget", "64"}, {"buffer", "96"}}},
          {"hisparse", {{"budget", "64"}, {"buffer", "64"}, {"page", "1"}}},
          {"quest", {{"budget", "64"}}},
          {"quest", {{"budget", "64"}, {"group", "max"}}},
          {"arkvale", arkvale},
          {"arkvale", as_run},
          {"freekv", freekv},
          {"freekv", with({{"tau", "0.5"}})},
          {"freekv", with({{"correction", "off"}})},
          {"freekv", with({{"speculation", "off"}})},
          {"freekv", with({{"layout", "nhd"}})},
          {"freekv", with({{"double_buffer", "off"}})},
          {"freekv", with({{"recall", "batched"}})},
          {"freekv", with({{"recall", "batched"}, {"correction", "off"}})},
          {"freekv", with({{"recall", "staged"}})},
          {"freekv", with({{"recall", "staged"}, {"layout", "nhd"}})},
          {"freekv", with({{"recall", "zero-copy"}})},
          {"freekv", with({{"overwrite", "as-coded"}, {"correction", "off"}})},
          {"freekv", with({{"overwrite", "as-coded"}, {"recall", "zero-copy"}, {"tau", "0.8"}})},
          {"prkv", prkv({})},
          {"prkv", prkv({{"static_ratio", "0"}})},
          {"prkv", prkv({{"static_ratio", "1"}})},
          {"prkv", prkv({{"static_rule", "overlap"}})},
          {"prkv", prkv({{"layout", "nhd"}})},
          {"prkv", prkv({{"transfer", "per-page"}})},
          {"prkv", prkv({{"layout", "nhd"}, {"transfer", "per-page"}})},
          {"prkv", prkv({{"async_write_back", "off"}})},
          {"louiskv", louiskv({})},
          {"louiskv", louiskv({{"tau", "1"}, {"prompt_window", "off"}})},
          {"louiskv", louiskv({{"trigger", "every-token"}})},
          {"louiskv", louiskv({{"trigger", "stride"}, {"stride", "5"}})},
          {"louiskv", louiskv({{"units", "pages"}})},
          {"louiskv", louiskv({{"group", "query-head"}})},
          {"louiskv", louiskv({{"kernel", "passes"}})},
          {"louiskv", louiskv({{"recall", "staged"}})},
          {"louiskv", louiskv({{"pool", "paired"}})},
          {"pariskv", pariskv({})},
          {"pariskv", pariskv({{"pool", "joined"}, {"offload", "as-coded"}})},
          {"pariskv", pariskv({{"query", "query-head"}})},
          {"pariskv", pariskv({{"dense_until", "210"}})},
          {"shadowkv", shadowkv({})},
          {"shadowkv", shadowkv({{"update", "25"}})},
          {"shadowkv", shadowkv({{"dense_layers", "1"}, {"outliers", "0"}})},
          {"wgkv", wgkv({})},
          {"wgkv", wgkv({{"host", "as-coded"}, {"prefill", "dense"}})},
          {"wgkv", wgkv({{"select", "quest"}, {"budget", "64"}})},
          {"wgkv", wgkv({{"evict", "snapkv"}, {"capacity", "80"}, {"observe", "32"}})}};
}

constexpr int64_t kLouisKvCapacity = 128 - 16 - 32;

llm::Model SmallModel() {
  llm::Model model;
  model.name = model.title = "small";
  model.layers = 4;
  model.kv_heads = 2;
  model.query_heads = 6;
  model.head_dim = 24;
  model.hidden = 144;
  model.intermediate = 512;
  model.vocabulary = 1000;
  return model;
}

// Whether `earlier` must end before `later` can.
bool Follows(const plan::Plan& plan, OpId later, OpId earlier) {
  return earlier <= plan::NeededUntil(plan, later)[static_cast<size_t>(Index(plan[earlier].lane))];
}

int64_t RecalledBytes(const plan::Plan& plan) {
  int64_t bytes = 0;
  for (const plan::Op& op : plan.ops) {
    if (op.role == plan::Role::kRecall) bytes += plan::Count(op.work).link_h2d;
  }
  return bytes;
}

class Plans : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    methods::RandomTraceOptions options;
    options.layers = 4;
    options.kv_heads = 2;
    options.group = 3;
    trace_ = methods::RandomTrace(options);
    method_ = MakeMethod(GetParam().method, GetParam().params).method;
    if (method_->NewPolicy()) log_ = methods::Replay(trace_, "", GetParam().method, *method_);
    input_ = {SmallModel(),           1, options.prompt, options.steps, plan::Host::kCpp,
              log_ ? &*log_ : nullptr};
  }

  plan::Plan Decode() const { return methods::WriteDecode(*method_, input_); }
  static Picoseconds Time(const plan::Plan& plan, const hardware::Profile& machine) {
    return Simulation(plan, hardware::CostModel(machine)).Run().end_of_all;
  }

  traces::Trace trace_;
  std::unique_ptr<methods::Method> method_;
  std::optional<traces::AccessLog> log_;
  PlanInput input_;
};

TEST_P(Plans, RecallWhatTheLogSays) {
  const plan::Plan plan = Decode();
  const int64_t recalled = RecalledBytes(plan);
  if (!log_) {
    // Full offload fetches every layer's cache in every step, the new token apart.
    int64_t cached = 0;
    for (int step = 0; step < input_.steps; ++step) cached += input_.prompt_tokens + step;
    EXPECT_EQ(recalled,
              GetParam().method == "offload" ? cached * input_.model.KvBytesPerToken() : 0);
    return;
  }
  if (GetParam().method == "louiskv") {
    int64_t retrievals = 0;
    for (const traces::LayerAccess& layer : log_->layers) {
      for (uint8_t flags : layer.flags) retrievals += (flags & traces::kSelectedNow) != 0;
    }
    EXPECT_GT(retrievals, 0);
    EXPECT_EQ(recalled, retrievals * kLouisKvCapacity * 2 * 24 * 2);  // K and V, d 24, bf16
    return;
  }
  int64_t units = 0;
  for (const traces::LayerAccess& layer : log_->layers) {
    if (layer.dense) continue;
    // A page set for the whole layer moves every head's share of the page.
    const int64_t heads = log_->sets_of == traces::SetsOf::kLayer ? 2 : 1;
    units += heads * (layer.recalled_now.total() + layer.recalled_ahead.total());
  }
  // Keys, unless they are rebuilt, and values, d 24, bf16.
  const int64_t parts = GetParam().method == "shadowkv" ? 1 : 2;
  const int64_t unit_head_bytes = parts * log_->unit_tokens * 24 * 2;
  EXPECT_EQ(recalled, units * unit_head_bytes);
}

// Pages are copied one by one from a pool of pages whose heads lie one behind the other.
TEST_P(Plans, CopiesTranslateARegionOnceForALayersRecall) {
  input_.batch = 2;
  // Far enough apart that some of a recall's pages share a region and some do not.
  input_.prompt_tokens *= 100;
  std::map<std::pair<int, int>, std::pair<int64_t, int64_t>> copied;  // pieces, regions
  Bytes piece = 0;
  for (const plan::Op& op : Decode().ops) {
    const auto* copy = std::get_if<Copy>(&op.work);
    if (copy == nullptr || copy->scattered_over == 0) continue;
    EXPECT_EQ(copy->path, plan::CopyPath::kPerPiece);
    EXPECT_EQ(copy->scattered_over, 2 * input_.prompt_tokens * SmallModel().KvBytesPerTokenLayer());
    EXPECT_LE(copy->regions, copy->pieces);
    auto& [pieces, regions] = copied[{op.step, op.layer}];
    pieces += copy->pieces, regions += copy->regions, piece = copy->piece_bytes;
  }
  if (copied.empty()) {
    EXPECT_NE(GetParam().method, "arkvale");
    return;
  }
  const methods::ProjectedLog log(&*log_, SmallModel(), 2);
  for (const auto& [recall, counts] : copied) {
    const auto [step, layer] = recall;
    std::set<std::tuple<bool, int, int64_t>> regions;  // ahead or not, sequence, region
    int64_t pieces = 0;
    for (int sequence = 0; sequence < 2; ++sequence) {
      for (int head = 0; head < log.heads(); ++head) {
        const auto add = [&](bool ahead, std::span<const uint32_t> units) {
          for (const uint32_t unit : units) {
            const int64_t byte = (int64_t{100} * unit * log.heads() + head) * piece;
            regions.insert({ahead, sequence, byte / (64 * 1024)});
            ++pieces;
          }
        };
        add(false, log.RecalledNow(step, layer, sequence, head));
        add(true, log.RecalledAhead(step, layer, sequence, head));
      }
    }
    EXPECT_EQ(counts.first, pieces) << "step " << step << ", layer " << layer;
    EXPECT_EQ(counts.second, std::ssize(regions)) << "step " << step << ", layer " << layer;
  }
}

TEST_P(Plans, AttendWhatTheLogSays) {
  const plan::Plan plan = Decode();
  std::map<std::pair<int, int>, int64_t> attended;  // (step, layer) -> tokens over KV heads
  for (const plan::Op& op : plan.ops) {
    if (const auto* work = std::get_if<plan::DecodeAttention>(&op.work)) {
      attended[{op.step, op.layer}] += work->kv_tokens;
      EXPECT_LE(work->kv_tokens_max, input_.prompt_tokens + op.step + 1);
    }
  }
  ASSERT_EQ(attended.size(), static_cast<size_t>(input_.steps * input_.model.layers));
  if (!log_) return;
  for (const traces::LayerAccess& layer : log_->layers) {
    for (int step = 0; step < input_.steps; ++step) {
      int64_t expected = 2 * (input_.prompt_tokens + step + 1);
      if (!layer.dense) {
        expected = 0;
        for (int head = 0; head < layer.heads; ++head) {
          expected += layer.attended_tokens[static_cast<size_t>(step * layer.heads + head)];
        }
        if (log_->sets_of == traces::SetsOf::kLayer) expected *= 2;
      }
      EXPECT_EQ((attended[{step, layer.layer}]), expected) << step << ", layer " << layer.layer;
    }
  }
}

// On a machine whose links are so slow that what is not waited for is late.
TEST_P(Plans, NothingStartsBeforeWhatItNeedsIsThere) {
  hardware::Profile machine = hardware::FindProfile("h200");
  hardware::Set(machine, "link.h2d", "2MB/s");
  hardware::Set(machine, "link.d2h", "2MB/s");
  const plan::Plan plan = Decode();
  const Simulation simulation(plan, hardware::CostModel(machine));
  const Execution run = simulation.Run();
  const bool freekv = GetParam().method == "freekv";
  const bool safe = freekv && !GetParam().params.contains("overwrite");
  // Pages that go from the host to their places: NHD rows, which no bulk copy brings, and what a
  // kernel reads.
  const ParamValues& params = GetParam().params;
  const bool direct = params.contains("layout") && !params.contains("recall");
  std::set<plan::LaneId> brings;                                  // lanes that recall
  std::map<int, Picoseconds> recalled, summarised;                // by layer
  std::map<std::pair<int, int>, Picoseconds> selected, attended;  // by step and layer
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    if (plan::IsHostWork(op)) continue;
    const std::pair<int, int> place{op.step, op.layer};
    const Picoseconds start = run.start[i], end = run.end[i];
    const bool copies = std::holds_alternative<Copy>(op.work);
    if (op.role == plan::Role::kRecall) {
      brings.insert(op.lane);
      EXPECT_GE(start, selected[place]) << "op " << i;
      const bool overwrites = !copies || direct;
      if (safe && overwrites) {
        EXPECT_GE(start, attended[place]) << "op " << i;
      }
      recalled[op.layer] = std::max(recalled[op.layer], end);
    } else if (op.role == plan::Role::kLayout && brings.contains(op.lane)) {
      if (safe) {
        EXPECT_GE(start, attended[place]) << "op " << i;
      }
      recalled[op.layer] = std::max(recalled[op.layer], end);
    } else if (std::holds_alternative<plan::Summarize>(op.work)) {
      summarised[op.layer] = end;
    } else if (std::holds_alternative<plan::DecodeAttention>(op.work)) {
      EXPECT_GE(start, recalled[op.layer]) << "op " << i;
      attended[place] = end;
    }
    if (op.role == plan::Role::kSelection && !copies) selected[place] = end;
    if (std::holds_alternative<plan::Score>(op.work)) {
      EXPECT_GE(start, summarised[op.layer]) << "op " << i;
      // Slots are chosen for others when those that were on their way have come.
      if (freekv) {
        EXPECT_GE(start, recalled[op.layer]) << "op " << i;
      }
    }
  }
}

TEST_P(Plans, CopyNothingThatIsEmpty) {
  for (const plan::Plan& plan : {Decode(), methods::WritePrefill(*method_, input_)}) {
    for (const plan::Op& op : plan.ops) {
      if (const auto* copy = std::get_if<Copy>(&op.work)) {
        EXPECT_GT(copy->pieces * copy->piece_bytes, 0);
      }
    }
  }
}

// Of pages, and of what is in them, where a method does both.
TEST_P(Plans, ScoreForOnePurposeOnceForALayerInAStep) {
  std::map<std::tuple<int, int, plan::Purpose>, int> scores;
  const plan::Plan plan = Decode();
  for (const plan::Op& op : plan.ops) {
    if (std::holds_alternative<plan::Score>(op.work)) ++scores[{op.step, op.layer, op.purpose}];
  }
  for (const auto& [place, count] : scores) EXPECT_EQ(count, 1) << std::get<0>(place);
}

// At a context no longer than what the trace attends all is attended, nothing selected or moved.
TEST_P(Plans, WhatFitsIsNotRecalled) {
  // These have on the GPU what they retrieved, not what they might; or drop what has no weight; or
  // keep a share of any context.
  for (const char* method : {"pariskv", "shadowkv", "twilight", "razorattention"}) {
    if (GetParam().method == method) return;
  }
  if (!log_) return;
  int32_t least = std::numeric_limits<int32_t>::max();
  for (const traces::LayerAccess& layer : log_->layers) {
    if (!layer.dense) least = std::min(least, layer.attended_tokens.front());
  }
  PlanInput input = input_;
  input.prompt_tokens = least - 1;  // the step's own token comes to it
  input.steps = 1;
  const plan::Plan plan = methods::WriteDecode(*method_, input);
  for (const plan::Op& op : plan.ops) {
    EXPECT_NE(op.role, plan::Role::kRecall);
    if (const auto* attention = std::get_if<plan::DecodeAttention>(&op.work)) {
      EXPECT_LE(attention->kv_tokens_max, least);
      if (GetParam().method != "wgkv") {
        EXPECT_EQ(attention->kv_tokens, 2 * least * (attention->kv_heads / 2));
      }
    }
    if (GetParam().method == "freekv") {
      EXPECT_FALSE(std::holds_alternative<plan::QuerySimilarity>(op.work));
    }
  }
}

TEST_P(Plans, AppendBoundsWhereQuestReadsThem) {
  const plan::Plan plan = Decode();
  for (const plan::Op& op : plan.ops) {
    if (const auto* append = std::get_if<plan::RopeAppend>(&op.work)) {
      const std::string& method = GetParam().method;
      const bool pages = method == "quest" || method == "raas" || method == "twilight" ||
                         (method == "hisparse" && !GetParam().params.contains("page"));
      EXPECT_EQ(append->bounds, pages && op.layer >= method_->DenseLayers());
    }
  }
}

// Metrics tell transfers by their work, timelines by their role.
TEST_P(Plans, RolesOfTheComputeStreamTellWhatMovesData) {
  for (const plan::Plan& plan : {Decode(), methods::WritePrefill(*method_, input_)}) {
    for (const plan::Op& op : plan.ops) {
      if (!plan.lanes[static_cast<size_t>(plan::Index(op.lane))].compute) continue;
      const bool moves = std::holds_alternative<plan::Copy>(op.work) ||
                         std::holds_alternative<plan::ZeroCopyGather>(op.work);
      EXPECT_EQ(traces::MovesData(op.role), moves)
          << plan::KindName(op.work) << ", " << traces::Name(op.role);
    }
  }
}

// An executor need not guess which op it has: a kind that a method has for several ends says for
// which with every op, and one that it has for a single end has one role.
TEST_P(Plans, OpsOfOneKindSayEachWhatTheyAreFor) {
  for (const plan::Plan& plan : {Decode(), methods::WritePrefill(*method_, input_)}) {
    std::map<int, std::pair<plan::Role, bool>>
        seen;  // by kind: role, and whether purposes are told
    for (const plan::Op& op : plan.ops) {
      const bool decoder = op.role == plan::Role::kProjection || op.role == plan::Role::kMlp;
      if (decoder || op.layer < 0 || plan::IsHostWork(op)) continue;
      const bool told = op.purpose != plan::Purpose::kOnly;
      const auto [first, fresh] = seen.try_emplace(plan::KindOf(op.work), op.role, told);
      ASSERT_EQ(first->second.second, told) << plan::KindName(op.work);
      if (!told) {
        ASSERT_EQ(first->second.first, op.role) << plan::KindName(op.work);
      }
    }
  }
}

TEST_P(Plans, StepsEndInOrderAndNeverBeatTheCeiling) {
  const plan::Plan plan = Decode();
  const Simulation simulation(plan, hardware::CostModel(hardware::FindProfile("h200")));
  const Metrics m = Measure(simulation, simulation.Run(), 1);
  ASSERT_EQ(m.step_times.size(), static_cast<size_t>(input_.steps));
  for (Picoseconds step : m.step_times) EXPECT_GT(step.count(), 0);
  EXPECT_GE(m.step_mean, m.ceiling);
  // Each is a mean cut to whole picoseconds.
  EXPECT_NEAR((m.compute_busy + m.exposed).count(), m.step_mean.count(), 2);
}

TEST_P(Plans, NoRunIsFasterThanItsCeiling) {
  const hardware::CostModel machine(hardware::FindProfile("h200"));
  for (const int batch : {1, 16}) {
    for (const int steps : {1, 16}) {
      PlanInput input = input_;
      input.batch = batch;
      input.steps = steps;
      const plan::Plan plan = methods::WriteDecode(*method_, input);
      const Simulation simulation(plan, machine);
      const Metrics m = Measure(simulation, simulation.Run(), batch);
      EXPECT_GE(m.step_mean, m.ceiling) << "batch " << batch << ", " << steps << " steps";
    }
  }
}

TEST_P(Plans, WhatIsRecalledHasBeenOffloaded) {
  const plan::Plan plan = Decode();
  std::map<int, std::vector<OpId>> offloaded;  // by layer: its copies to the host so far
  for (OpId id{0}; Index(id) < std::ssize(plan.ops); id = OpId{Index(id) + 1}) {
    const plan::Op op = plan[id];
    std::vector<OpId>& copies = offloaded[op.layer];
    if (op.role == plan::Role::kOffload) copies.push_back(id);
    if (op.role != plan::Role::kRecall) continue;
    // Full offload brings the tokens of the steps before.
    const auto last = std::ranges::find_if(copies.rbegin(), copies.rend(), [&](OpId copy) {
      return GetParam().method != "offload" || plan[copy].step < op.step;
    });
    if (last == copies.rend()) continue;
    EXPECT_TRUE(Follows(plan, id, *last)) << "op " << Index(id) << ", step " << op.step;
  }
}

TEST_P(Plans, AFasterLinkIsNeverSlower) {
  const plan::Plan plan = Decode();
  Picoseconds slower = Picoseconds::max();
  for (const char* rate : {"5GB/s", "10GB/s", "25GB/s", "50.7GB/s", "100GB/s", "400GB/s"}) {
    hardware::Profile machine = hardware::FindProfile("h200");
    hardware::Set(machine, "link.h2d", rate);
    // Faster copies find other streams at work, and threads that have less to do sleep longer.
    machine.copy.group_turn = machine.copy.crowded_piece = machine.memory.drag_share = 0;
    machine.host.woken = machine.host.handoff_asleep = {};
    const Picoseconds time = Time(plan, machine);
    EXPECT_LE(time, slower) << rate;
    slower = time;
  }
}

TEST_P(Plans, CheaperLaunchesAreNeverSlower) {
  const plan::Plan plan = Decode();
  Picoseconds slower = Picoseconds::max();
  for (const char* cost : {"20us", "10us", "4.9us", "2us"}) {
    hardware::Profile machine = hardware::FindProfile("h200");
    hardware::Set(machine, "host.launch", cost);
    const Picoseconds time = Time(plan, machine);
    EXPECT_LE(time, slower) << cost;
    slower = time;
  }
}

TEST_P(Plans, RepeatBitForBit) {
  const plan::Plan a = Decode(), b = Decode();
  ASSERT_EQ(a.ops.size(), b.ops.size());
  const hardware::CostModel model(hardware::FindProfile("h200"));
  EXPECT_EQ(ToTimeline(Simulation(a, model), Simulation(a, model).Run()),
            ToTimeline(Simulation(b, model), Simulation(b, model).Run()));
}

TEST_P(Plans, PrefillOffloadsTheWholeCacheOnce) {
  input_.batch = 3;
  const plan::Plan plan = methods::WritePrefill(*method_, input_);
  int64_t offloaded = 0;
  for (const plan::Op& op : plan.ops) {
    if (op.role == plan::Role::kOffload) offloaded += plan::Count(op.work).link_d2h;
  }
  const methods::Footprint need = method_->Bytes(input_.model, input_.prompt_tokens, 1);
  if (need.host == 0) {
    EXPECT_EQ(offloaded, 0);
    return;
  }
  // Layers that are dense stay on the GPU; paged methods offload whole pages, LouisKV what it
  // clusters, ParisKV what lies between sink and window.
  const int64_t layers = input_.model.layers - method_->DenseLayers();
  int64_t tokens = input_.prompt_tokens / 16 * 16;
  const bool tokenwise = GetParam().method == "hisparse" && GetParam().params.contains("page");
  if (GetParam().method == "offload" || tokenwise) tokens = input_.prompt_tokens;
  if (GetParam().method == "louiskv") {
    tokens = input_.prompt_tokens - 16 - (GetParam().params.contains("prompt_window") ? 0 : 32);
  }
  if (GetParam().method == "pariskv") tokens = input_.prompt_tokens - 16 - 32;
  int64_t token_bytes = input_.model.KvBytesPerTokenLayer();
  if (GetParam().method == "shadowkv") {
    tokens = (input_.prompt_tokens / 8 - 2) * 8;
    token_bytes /= 2;
  }
  EXPECT_EQ(offloaded, 3 * layers * tokens * token_bytes);
}

TEST_P(Plans, ABatchRecallsAsManyTimesTheBytes) {
  PlanInput batch = input_;
  batch.batch = 3;
  const int64_t one = RecalledBytes(Decode());
  const int64_t three = RecalledBytes(methods::WriteDecode(*method_, batch));
  // Sequences replay the same steps staggered, each step once when the steps are all of them.
  EXPECT_EQ(three, 3 * one);
}

std::string VariantName(const testing::TestParamInfo<Variant>& info) {
  std::string name = std::to_string(info.index) + info.param.method;
  for (const auto& [key, value] : info.param.params) {
    if (key == "budget" || key == "page" || key == "sink" || key == "window") continue;
    if ((key == "tau" && value == "0.75") || key == "update") continue;
    name += key + value;
  }
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
}

INSTANTIATE_TEST_SUITE_P(Methods, Plans, testing::ValuesIn(Variants()), VariantName);

TEST(OffloadPieces, ALayersCacheIsFetchedWhenABufferIsFree) {
  for (const int prefetch : {0, 1, 2}) {
    SCOPED_TRACE(prefetch);
    const auto method = MakeMethod("offload", {{"prefetch", std::to_string(prefetch)}}).method;
    const plan::Plan plan = methods::WriteDecode(*method, {SmallModel(), 1, 5000, 1, {}, nullptr});
    const Simulation simulation(plan, hardware::CostModel(TestMachine()));
    const Execution run = simulation.Run();
    std::vector<size_t> fetches, attentions;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      if (plan.ops[i].role == plan::Role::kRecall) fetches.push_back(i);
      if (plan.ops[i].role == plan::Role::kAttention) attentions.push_back(i);
    }
    ASSERT_EQ(fetches.size(), 4u);
    ASSERT_EQ(attentions.size(), 4u);
    // One after another, into the buffer that its layer's attention is done with.
    for (size_t layer = 0; layer < fetches.size(); ++layer) {
      Picoseconds due = layer == 0 ? Picoseconds{0} : run.end[fetches[layer - 1]];
      const size_t buffers = static_cast<size_t>(prefetch) + 1;
      if (layer >= buffers) due = std::max(due, run.end[attentions[layer - buffers]]);
      EXPECT_EQ(run.start[fetches[layer]], due) << layer;
      EXPECT_GE(run.start[attentions[layer]], run.end[fetches[layer]]) << layer;
    }
  }
}

// FreeKV's pieces do what they are for, on a link slow enough to matter.
class FreeKvPieces : public testing::Test {
 protected:
  static plan::Plan Decode(ParamValues params) {
    for (const auto& [name, value] :
         ParamValues{{"budget", "128"}, {"page", "16"}, {"sink", "16"}, {"window", "32"}}) {
      params.try_emplace(name, value);
    }
    methods::RandomTraceOptions options;
    options.layers = 4;
    options.kv_heads = 2;
    options.group = 3;
    options.similarity = 0.98;
    const traces::Trace trace = methods::RandomTrace(options);
    const auto method = MakeMethod("freekv", params).method;
    const traces::AccessLog log = methods::Replay(trace, "", "freekv", *method);
    return methods::WriteDecode(*method,
                                {SmallModel(), 1, options.prompt, options.steps, {}, &log});
  }
  static Picoseconds Time(const ParamValues& params, const char* link = "2GB/s") {
    hardware::Profile machine = hardware::FindProfile("h200");
    hardware::Set(machine, "link.h2d", link);
    const plan::Plan plan = Decode(params);
    return Simulation(plan, hardware::CostModel(machine)).Run().end_of_all;
  }
};

TEST_F(FreeKvPieces, AttentionWaitsOnlyForWhatItsOwnLayerRecalled) {
  const plan::Plan plan = Decode({{"recall", "zero-copy"}, {"tau", "0.9"}});
  int waits = 0;
  for (const plan::Op& op : plan.ops) {
    if (!std::holds_alternative<plan::DecodeAttention>(op.work)) continue;
    for (const OpId wait : plan.Waits(op)) {
      EXPECT_EQ(plan[wait].layer, op.layer) << "step " << op.step;
      ++waits;
    }
  }
  EXPECT_GT(waits, 0);
}

TEST_F(FreeKvPieces, AKernelThatRecallsFollowsTheSelectionWhoseListItReads) {
  for (const char* overwrite : {"safe", "as-coded"}) {
    const plan::Plan plan =
        Decode({{"recall", "zero-copy"}, {"overwrite", overwrite}, {"tau", "0.9"}});
    OpId selected = OpId::kNone;
    int after_a_correction = 0;
    for (OpId id{0}; Index(id) < std::ssize(plan.ops); id = OpId{Index(id) + 1}) {
      const plan::Op op = plan[id];
      if (std::holds_alternative<plan::AssignSlots>(op.work)) selected = id;
      if (!std::holds_alternative<plan::ZeroCopyGather>(op.work)) continue;
      EXPECT_TRUE(Follows(plan, id, selected)) << overwrite << ", step " << op.step;
      after_a_correction += plan[selected].lane != op.lane;
    }
    EXPECT_GT(after_a_correction, 0);
  }
}

TEST_F(FreeKvPieces, SpeculationTakesRecallOffTheCriticalPath) {
  EXPECT_LT(Time({{"correction", "off"}}), Time({{"speculation", "off"}}));
}

TEST_F(FreeKvPieces, CorrectionCostsTime) {
  EXPECT_LT(Time({{"correction", "off"}}), Time({{"tau", "0.9"}}));
}

TEST_F(FreeKvPieces, FragmentedPagesAreSlowToCopy) {
  EXPECT_LT(Time({{"speculation", "off"}}), Time({{"speculation", "off"}, {"layout", "nhd"}}));
}

TEST_F(FreeKvPieces, HeadsTakeTurnsAtTheBuffersAndLayersAtTheWorkers) {
  const auto count = [&](const ParamValues& params) {
    const plan::Plan plan = Decode(params);
    std::set<plan::LaneId> streams, workers;
    std::map<int, plan::LaneId> worker_of;  // by layer
    for (const plan::Op& op : plan.ops) {
      if (op.role == plan::Role::kRecall && std::holds_alternative<Copy>(op.work)) {
        streams.insert(op.lane);
      }
      if (std::holds_alternative<plan::HostHandoff>(op.work) && op.lane != plan::LaneId{0}) {
        workers.insert(op.lane);
        EXPECT_EQ(worker_of.try_emplace(op.layer, op.lane).first->second, op.lane);
      }
    }
    return std::pair(streams.size(), workers.size());
  };
  EXPECT_EQ(count({{"workers", "2"}}), std::pair(size_t{2}, size_t{2}));
  EXPECT_EQ(count({{"workers", "1"}}), std::pair(size_t{2}, size_t{1}));
  EXPECT_EQ(count({{"double_buffer", "off"}, {"workers", "2"}}), std::pair(size_t{1}, size_t{2}));
}

TEST_F(FreeKvPieces, OnlyWhatReplacesPagesWaitsForTheAttention) {
  const plan::Plan plan = Decode({{"correction", "off"}});
  OpId attention = OpId::kNone;
  int copies = 0, placed = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    if (std::holds_alternative<plan::DecodeAttention>(op.work)) {
      attention = OpId{static_cast<int32_t>(i)};
    }
    if (plan.lanes[static_cast<size_t>(plan::Index(op.lane))].name.find("recall") != 0) continue;
    const auto waits = plan.Waits(op);
    const bool waits_for_it = std::find(waits.begin(), waits.end(), attention) != waits.end();
    if (op.role == plan::Role::kRecall) {
      EXPECT_FALSE(waits_for_it) << "op " << i;  // a copy to a buffer
      ++copies;
    }
    if (op.role == plan::Role::kLayout) placed += waits_for_it;
  }
  EXPECT_GT(copies, 0);
  EXPECT_GT(placed, 0);
}

TEST_F(FreeKvPieces, WhatABufferHoldsIsPutInItsPlace) {
  for (const char* layout : {"hybrid", "nhd"}) {
    for (const char* recall : {"per-page", "batched", "staged"}) {
      SCOPED_TRACE(std::string(layout) + ' ' + recall);
      const plan::Plan plan = Decode({{"layout", layout}, {"recall", recall}});
      int64_t recalled = 0, placed = 0;
      for (const plan::Op& op : plan.ops) {
        if (op.role == plan::Role::kRecall) recalled += plan::Count(op.work).link_h2d;
        const std::string& lane = plan.lanes[static_cast<size_t>(plan::Index(op.lane))].name;
        if (op.role == plan::Role::kLayout && lane.find("recall") == 0) {
          placed += plan::Count(op.work).device_written;
        }
      }
      // Rows that the host lays out as the cache does go there themselves, but from a bulk copy.
      const bool direct = std::string(layout) == "nhd" && std::string(recall) != "staged";
      EXPECT_EQ(placed, direct ? 0 : recalled);
    }
  }
}

TEST_F(FreeKvPieces, AStepWithoutHostDecisionsCanBeAGraph) {
  const auto method = MakeMethod("freekv", {{"recall", "zero-copy"},
                                            {"correction", "off"},
                                            {"budget", "128"},
                                            {"page", "16"},
                                            {"sink", "16"},
                                            {"window", "32"}})
                          .method;
  methods::RandomTraceOptions options;
  options.layers = 4;
  const traces::AccessLog log =
      methods::Replay(methods::RandomTrace(options), "", "freekv", *method);
  PlanInput input{SmallModel(), 1, options.prompt, options.steps, {}, &log};
  const hardware::CostModel model(hardware::FindProfile("h200"));
  const plan::Plan eager = methods::WriteDecode(*method, input);
  input.host = plan::Host::kGraph;
  const plan::Plan graph = methods::WriteDecode(*method, input);
  EXPECT_LT(Simulation(graph, model).Run().end_of_all, Simulation(eager, model).Run().end_of_all);

  EXPECT_EQ(plan::GraphsAStep(graph), 1);
}

TEST_F(FreeKvPieces, HostDecisionsCutAStepIntoGraphs) {
  methods::RandomTraceOptions options;
  options.layers = 4;
  for (const char* name : {"freekv", "arkvale-freekv"}) {
    const auto method =
        MakeMethod(name, {{"budget", "128"}, {"page", "16"}, {"sink", "16"}, {"window", "32"}})
            .method;
    const traces::AccessLog log = methods::Replay(methods::RandomTrace(options), "", name, *method);
    const PlanInput input{SmallModel(), 1, options.prompt, options.steps, plan::Host::kGraph, &log};
    EXPECT_GT(plan::GraphsAStep(methods::WriteDecode(*method, input)), 1) << name;
  }
}

// However short the context is against the budget, a page is read from memory once.
TEST(QuestPlan, HeadsOfAGroupReadNoMoreThanIsThereAndNoLessThanOneOfThem) {
  methods::RandomTraceOptions options;
  options.layers = 4;
  const auto method = MakeMethod("quest", {{"budget", "64"}}).method;
  const traces::AccessLog log =
      methods::Replay(methods::RandomTrace(options), "", "quest", *method);
  for (const int batch : {1, 3}) {
    for (int64_t context = 30; context < 110; context += 7) {
      const plan::Plan plan =
          methods::WriteDecode(*method, {SmallModel(), batch, context, options.steps, {}, &log});
      for (const plan::Op& op : plan.ops) {
        const auto* work = std::get_if<plan::DecodeAttention>(&op.work);
        if (work == nullptr || work->kv_heads == 2) continue;  // dense
        const int64_t there = 2 * batch * (context + op.step + 1);
        EXPECT_LE(work->distinct_tokens, std::min(there, work->kv_tokens)) << context;
        EXPECT_GE(work->distinct_tokens, work->kv_tokens / 3) << context;
      }
    }
  }
}

// A trace of one KV head stands for each of a model's, in every method that selects by KV head.
TEST(Projection, EveryHeadOfTheModelRecallsAsTheTracesOneDoes) {
  methods::RandomTraceOptions options;
  options.layers = 4;
  options.kv_heads = 1;
  const traces::Trace trace = methods::RandomTrace(options);
  const std::vector<Variant> variants = Variants();
  for (const char* name : {"freekv", "prkv", "louiskv"}) {
    const auto variant = std::ranges::find(variants, name, &Variant::method);
    const auto method = MakeMethod(name, variant->params).method;
    const traces::AccessLog log = methods::Replay(trace, "", name, *method);
    const auto recalled = [&](int32_t kv_heads) {
      llm::Model model = SmallModel();
      model.kv_heads = kv_heads;
      model.query_heads = 3 * kv_heads;
      return RecalledBytes(
          methods::WriteDecode(*method, {model, 1, options.prompt, options.steps, {}, &log}));
    };
    EXPECT_GT(recalled(1), 0) << name;
    EXPECT_EQ(recalled(8), 8 * recalled(1)) << name;
  }
}

// LouisKV's pieces do what they are for.
class LouisKvPieces : public testing::Test {
 protected:
  static PlanInput Input(const traces::AccessLog& log, plan::Host host = {}) {
    return {SmallModel(), 1, log.prompt_tokens, log.steps, host, &log};
  }
  static traces::AccessLog Log(const methods::Method& method) {
    methods::RandomTraceOptions options;
    options.layers = 4;
    options.similarity = 0.98;
    options.steps = 120;
    return methods::Replay(methods::RandomTrace(options), "", "louiskv", method);
  }
  static std::unique_ptr<methods::Method> Make(ParamValues params) {
    params.insert({{"budget", "128"}, {"sink", "16"}, {"window", "32"}});
    return MakeMethod("louiskv", params).method;
  }
  static plan::Plan Decode(const ParamValues& params) {
    const auto method = Make(params);
    const traces::AccessLog log = Log(*method);
    return methods::WriteDecode(*method, Input(log));
  }
  static Picoseconds Time(const ParamValues& params, const char* link = "50.7GB/s") {
    hardware::Profile machine = hardware::FindProfile("h200");
    hardware::Set(machine, "link.h2d", link);
    const plan::Plan plan = Decode(params);
    return Simulation(plan, hardware::CostModel(machine)).Run().end_of_all;
  }
};

TEST_F(LouisKvPieces, BoundariesSaveRetrievals) {
  EXPECT_LT(Time({}, "1GB/s"), Time({{"trigger", "every-token"}}, "1GB/s"));
}

TEST_F(LouisKvPieces, GroupsMoveLessThanQueryHeads) {
  EXPECT_LT(RecalledBytes(Decode({})), RecalledBytes(Decode({{"group", "query-head"}})));
}

TEST_F(LouisKvPieces, OneKernelSelectsFasterThanPasses) {
  EXPECT_LT(Time({}), Time({{"kernel", "passes"}}));
}

TEST_F(LouisKvPieces, EverySegmentThatLeavesIsOffloadedOnce) {
  const auto method = Make({});
  const traces::AccessLog log = Log(*method);
  const plan::Plan plan = methods::WriteDecode(*method, Input(log));
  std::map<int, int64_t> offloaded;  // tokens by layer
  for (const plan::Op& op : plan.ops) {
    if (op.role != plan::Role::kOffload) continue;
    offloaded[op.layer] += plan::Count(op.work).link_d2h / SmallModel().KvBytesPerTokenLayer();
  }
  ASSERT_EQ(offloaded.size(), 2u);
  // What the last step attends beside its choice is still in the buffer; the rest has left.
  for (const traces::LayerAccess& layer : log.layers) {
    if (layer.dense) continue;
    const int64_t buffered = layer.attended_tokens.back() - 16 - kLouisKvCapacity;
    EXPECT_EQ(offloaded[layer.layer], 32 + log.steps - buffered) << layer.layer;
  }
}

TEST_F(LouisKvPieces, ASegmentThatHasLeftIsAUnitMoreToScore) {
  const auto method = Make({{"trigger", "every-token"}});
  const traces::AccessLog log = Log(*method);
  const plan::Plan plan = methods::WriteDecode(*method, Input(log));
  std::map<int, int64_t> first, left;  // by layer
  for (const plan::Op& op : plan.ops) {
    if (const auto* score = std::get_if<plan::Score>(&op.work)) {
      const int64_t units = first.try_emplace(op.layer, score->units).first->second;
      EXPECT_EQ(score->units, units + left[op.layer]);
    }
    left[op.layer] += std::holds_alternative<plan::Summarize>(op.work);
  }
  for (const auto& [layer, units] : first) EXPECT_GT(left[layer], 0);
}

TEST_F(LouisKvPieces, ASelectionWaitsForTheSegmentsThatLeft) {
  const auto method = Make({{"trigger", "every-token"}});
  const traces::AccessLog log = Log(*method);
  const plan::Plan plan = methods::WriteDecode(*method, Input(log));
  std::map<int, OpId> gone;    // by layer: the last segment's copy to the host
  OpId awaited = OpId::kNone;  // the last of them that the compute stream has waited for
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    if (plan.lanes[static_cast<size_t>(plan::Index(op.lane))].compute) {
      for (const OpId wait : plan.Waits(op)) {
        if (plan[wait].role == plan::Role::kOffload) awaited = std::max(awaited, wait);
      }
    }
    if (op.role == plan::Role::kOffload) gone[op.layer] = OpId{static_cast<int32_t>(i)};
    if (std::holds_alternative<plan::Score>(op.work) && gone.contains(op.layer)) {
      EXPECT_GE(awaited, gone[op.layer]) << "op " << i;
    }
  }
  EXPECT_FALSE(gone.empty());
}

TEST_F(LouisKvPieces, ABatchSelectsForEachOfItsQueryHeads) {
  for (const char* group : {"query-head", "consistent"}) {
    const auto method = Make({{"group", group}, {"trigger", "every-token"}});
    const traces::AccessLog log = Log(*method);
    PlanInput input = Input(log);
    input.batch = 3;
    const plan::Plan plan = methods::WriteDecode(*method, input);
    std::map<int, int64_t> scored;  // query heads, by layer
    for (const plan::Op& op : plan.ops) {
      if (const auto* score = std::get_if<plan::Score>(&op.work)) {
        scored[op.layer] = score->kv_rows * score->group;
      } else if (const auto* select = std::get_if<plan::SelectUnits>(&op.work)) {
        EXPECT_EQ(select->rows * select->group, scored[op.layer]);
      }
    }
    EXPECT_FALSE(scored.empty());
  }
}

TEST_F(LouisKvPieces, PagesOfThePromptAreAllSummarised) {
  const auto method = Make({{"units", "pages"}});
  const PlanInput input{SmallModel(), 3, 203, 0, {}, nullptr};
  const int64_t rows = 3 * 2, tokens = 203 - 16 - 32;  // beside sink and buffer
  const plan::Plan plan = methods::WritePrefill(*method, input);
  int found = 0;
  for (const plan::Op& op : plan.ops) {
    const auto* pages = std::get_if<plan::Summarize>(&op.work);
    if (pages == nullptr) continue;
    ++found;
    EXPECT_EQ(pages->units % rows, 0);
    const int64_t held = pages->units / rows * pages->unit_tokens;
    EXPECT_GE(held, tokens);
    EXPECT_LT(held, tokens + pages->unit_tokens);  // the last page may be partial
  }
  EXPECT_EQ(found, 4 - method->DenseLayers());
}

TEST_F(LouisKvPieces, RetrievalAtAStrideCanBeAGraph) {
  const auto method = Make({{"trigger", "stride"}});
  const traces::AccessLog log = Log(*method);
  const hardware::CostModel model(hardware::FindProfile("h200"));
  const plan::Plan eager = methods::WriteDecode(*method, Input(log));
  const plan::Plan graph = methods::WriteDecode(*method, Input(log, plan::Host::kGraph));
  EXPECT_LT(Simulation(graph, model).Run().end_of_all, Simulation(eager, model).Run().end_of_all);
}

TEST_F(LouisKvPieces, ClusteringHidesBehindThePrefill) {
  const auto method = MakeMethod("louiskv", {}).method;
  const PlanInput input{llm::FindModel("llama-3.1-8b"), 1, 32768, 0, {}, nullptr};
  const auto time = [&](const methods::Method& m) {
    const hardware::CostModel model(hardware::FindProfile("h200"));
    return Seconds(Simulation(methods::WritePrefill(m, input), model).Run().end_of_all);
  };
  EXPECT_LT(time(*method), 1.05 * time(*MakeMethod("full", {}).method));
}

// PRKV's pieces do what they are for.
class PrkvPieces : public testing::Test {
 protected:
  static plan::Plan Decode(ParamValues params) {
    params.insert({{"budget", "256"}, {"page", "16"}, {"window", "32"}, {"update", "25"}});
    methods::RandomTraceOptions options;
    options.layers = 4;
    options.prompt = 2000;
    options.prompt_queries = 32;
    const auto method = MakeMethod("prkv", params).method;
    const traces::AccessLog log =
        methods::Replay(methods::RandomTrace(options), "", "prkv", *method);
    return methods::WriteDecode(*method,
                                {SmallModel(), 1, options.prompt, options.steps, {}, &log});
  }
  static Picoseconds Time(const ParamValues& params) {
    hardware::Profile machine = hardware::FindProfile("h200");
    hardware::Set(machine, "link.d2h", "5GB/s");
    return Simulation(Decode(params), hardware::CostModel(machine)).Run().end_of_all;
  }
};

// Where there are many: a gather's threads must be woken, which takes as long as a dozen copies.
TEST_F(PrkvPieces, BatchedTransferIsFasterThanPageByPage) {
  const auto time = [](ParamValues params) {
    params.insert({{"budget", "1280"}, {"page", "8"}});
    return Time(params);
  };
  EXPECT_LT(time({}), time({{"transfer", "per-page"}}));
}

TEST_F(PrkvPieces, ContiguousPagesAreFasterToGather) {
  EXPECT_LT(Time({{"transfer", "per-page"}}), Time({{"transfer", "per-page"}, {"layout", "nhd"}}));
}

TEST_F(PrkvPieces, WriteBackNeedNotBeWaitedFor) {
  EXPECT_LT(Time({}), Time({{"async_write_back", "off"}}));
}

TEST_F(PrkvPieces, NothingIsFetchedThatHasNotBeenWrittenBack) {
  for (const ParamValues& params :
       {ParamValues{{"transfer", "batched"}}, ParamValues{{"transfer", "per-page"}},
        // Everything is fetched anew, and written back, again and again.
        ParamValues{{"update", "2"}}}) {
    const plan::Plan plan = Decode(params);
    const auto writes_back = [&](const plan::Op& op) {
      return plan.lanes[static_cast<size_t>(plan::Index(op.lane))].name == "write-back";
    };
    std::map<int, OpId> written;           // by layer: its last write-back
    std::map<plan::LaneId, OpId> awaited;  // by lane: the last write-back that it has waited for
    int fetched = 0;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const plan::Op& op = plan.ops[i];
      OpId& known = awaited.try_emplace(op.lane, OpId::kNone).first->second;
      for (const OpId wait : plan.Waits(op)) {
        if (writes_back(plan[wait])) known = std::max(known, wait);
      }
      const auto* copy = std::get_if<Copy>(&op.work);
      const bool fetches = (copy != nullptr && copy->direction == Direction::kHostToDevice) ||
                           std::holds_alternative<plan::HostGather>(op.work);
      if (fetches && written.contains(op.layer)) {
        EXPECT_GE(known, written[op.layer]) << "op " << i;
        ++fetched;
      }
      if (writes_back(op)) written[op.layer] = OpId{static_cast<int32_t>(i)};
    }
    EXPECT_GT(fetched, 0);
  }
}

TEST_F(PrkvPieces, AnUpdateScoresByTheWindowAndPutsTheWholeBudgetInPlace) {
  int updates = 0;
  for (const plan::Op& op : Decode({}).ops) {
    if (op.step != 25 && op.step != 50) continue;
    if (const auto* scores = std::get_if<plan::ObservationScore>(&op.work)) {
      EXPECT_EQ(scores->tokens + scores->queries, 2000 + op.step + 1);
      EXPECT_LE(scores->queries, 32);
      ++updates;
    }
    // A head's page of keys and values; 14 of them, the window apart.
    const auto* layout = std::get_if<plan::Layout>(&op.work);
    if (layout != nullptr && layout->piece_bytes == 16 * 2 * 24 * 2) {
      EXPECT_EQ(layout->pieces, 2 * 14);
    }
  }
  EXPECT_EQ(updates, 2 * 4);
}

TEST_F(PrkvPieces, APromptThatFitsTheBudgetIsNotSelectedFrom) {
  // A budget of 14 pages beside a window of two: 16 pages, the last partial.
  const auto method = MakeMethod("prkv", {{"budget", "256"}, {"page", "16"}, {"window", "32"}});
  const auto selects = [&](int64_t prompt) {
    const plan::Plan plan =
        methods::WritePrefill(*method.method, {SmallModel(), 1, prompt, 0, {}, nullptr});
    return std::ranges::any_of(
        plan.ops, [](const plan::Op& op) { return op.role == plan::Role::kSelection; });
  };
  EXPECT_FALSE(selects(15 * 16 + 1));
  EXPECT_FALSE(selects(16 * 16));
  EXPECT_TRUE(selects(16 * 16 + 1));
}

TEST_F(PrkvPieces, EveryUpdateFetchesAndWritesBackTheLayer) {
  std::map<int, std::pair<int64_t, int64_t>> bytes;  // by step
  for (const plan::Op& op : Decode({}).ops) {
    const plan::WorkCounts counts = plan::Count(op.work);
    if (op.role == plan::Role::kIndex) bytes[op.step].first += counts.link_h2d;
    if (op.role == plan::Role::kOffload) bytes[op.step].second += counts.link_d2h;
  }
  for (const int step : {25, 50}) {
    // All whole pages before the window; the step that fills a page offloads that too.
    const int64_t context = 2000 + step + 1;
    const int64_t cached = ((context + 15) / 16 - 2) * 16;
    const int64_t layers = 4 * SmallModel().KvBytesPerTokenLayer();
    EXPECT_EQ(bytes[step].first, cached * layers);
    EXPECT_EQ(bytes[step].second, (cached + (context % 16 == 1 ? 16 : 0)) * layers);
  }
  EXPECT_EQ(bytes[24].first, 0);
}

// ParisKV's region, between sink and window, by what the plan says of it.
class ParisKvPieces : public testing::Test {
 protected:
  // In a context `times` as long as the trace's.
  static plan::Plan Decode(ParamValues params, int64_t times = 1) {
    params.merge(ParamValues{{"topk", "20"},
                             {"sink", "16"},
                             {"local", "32"},
                             {"update", "16"},
                             {"dense_until", "0"},
                             {"subspaces", "4"}});
    const auto method = MakeMethod("pariskv", params).method;
    methods::RandomTraceOptions options;
    options.layers = 4;
    const traces::AccessLog log =
        methods::Replay(methods::RandomTrace(options), "", "pariskv", *method);
    return methods::WriteDecode(*method,
                                {SmallModel(), 1, times * options.prompt, options.steps, {}, &log});
  }
};

TEST_F(ParisKvPieces, InALongerContextTokensLieFurtherApart) {
  int64_t before = 0;
  for (const int64_t times : {1, 16, 1024}) {
    int64_t regions = 0, pieces = 0;
    for (const plan::Op& op : Decode({}, times).ops) {
      const auto* gather = std::get_if<plan::ZeroCopyGather>(&op.work);
      if (gather == nullptr) continue;
      regions += gather->regions;
      pieces += gather->pieces;
    }
    EXPECT_GT(regions, before) << times;
    EXPECT_LE(regions, pieces);
    if (times == 1024) {
      EXPECT_EQ(regions, pieces) << "each in a region of its own";
    }
    before = regions;
  }
}

TEST_F(ParisKvPieces, AGatherReadsFromAllThatTheHostHolds) {
  for (const char* query : {"group-mean", "query-head"}) {
    const int64_t heads = std::string(query) == "group-mean" ? 2 : 6;
    const plan::Plan plan = Decode({{"query", query}, {"fetch_blocks", "65"}});
    int64_t region = 0;
    for (const plan::Op& op : plan.ops) {
      if (const auto* scores = std::get_if<plan::CollisionScore>(&op.work)) region = scores->tokens;
      if (const auto* gather = std::get_if<plan::ZeroCopyGather>(&op.work)) {
        EXPECT_EQ(gather->scattered_over, region * SmallModel().KvBytesPerTokenLayer());
        EXPECT_EQ(gather->blocks, 17);  // of 1,024 threads for 65 of 256
        // 20 of some 200 tokens, each head's keys and its values in two regions at most.
        EXPECT_GE(gather->regions, 2 * heads);
        EXPECT_LE(gather->regions, 4 * heads);
      }
      if (const auto* attention = std::get_if<plan::DecodeAttention>(&op.work)) {
        // What is near is read once for a KV head, what was chosen for each head that chose it.
        const int64_t near = attention->kv_tokens_max - 20;
        EXPECT_EQ(near + region, 203 + op.step + 1);
        EXPECT_EQ(attention->kv_tokens, heads * (near + 20));
        EXPECT_EQ(attention->distinct_tokens, 2 * near + heads * 20);
      }
    }
    EXPECT_GT(region, 0);
  }
}

TEST_F(ParisKvPieces, TheWholeWindowMovesInASlide) {
  for (const int64_t local : {16, 32, 40}) {
    SCOPED_TRACE(local);
    const plan::Plan plan = Decode({{"local", std::to_string(local)}});
    std::map<int, int64_t> moved;  // bytes by step
    for (const plan::Op& op : plan.ops) {
      const auto* layout = std::get_if<plan::Layout>(&op.work);
      if (layout != nullptr) moved[op.step] += layout->pieces * layout->piece_bytes;
    }
    for (int step = 0; step < 70; ++step) {
      const bool slides = step > 0 && step % 16 == 0;
      EXPECT_EQ(moved[step], slides ? 4 * local * SmallModel().KvBytesPerTokenLayer() : 0) << step;
    }
  }
}

TEST_F(ParisKvPieces, AsCodedTheHostWaitsForASlideToBeCopied) {
  for (const char* offload : {"async", "as-coded"}) {
    const plan::Plan plan = Decode({{"offload", offload}});
    int copied = 0, waited = 0;
    OpId last = OpId::kNone;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const plan::Op& op = plan.ops[i];
      if (op.role == plan::Role::kOffload) last = OpId{static_cast<int32_t>(i)}, ++copied;
      for (const OpId wait : plan.Waits(op)) {
        waited += std::holds_alternative<plan::HostSync>(op.work) && wait == last;
      }
    }
    EXPECT_EQ(copied, 4 * 4);  // of four layers in four slides
    EXPECT_EQ(waited, std::string(offload) == "async" ? 0 : 4);
  }
}

// Quest's pages, by brute force from what its log selects.
class ShadowKvPieces : public testing::Test {
 protected:
  static plan::Plan Decode(ParamValues params, int batch = 1) {
    for (const auto& [name, value] :
         ParamValues{{"budget", "64"}, {"outliers", "2"}, {"local", "2"}, {"dense_until", "0"}}) {
      params.try_emplace(name, value);
    }
    methods::RandomTraceOptions options;
    options.layers = 4;
    const traces::Trace trace = methods::RandomTrace(options);
    const auto method = MakeMethod("shadowkv", params).method;
    const traces::AccessLog log = methods::Replay(trace, "", "shadowkv", *method);
    return methods::WriteDecode(*method,
                                {SmallModel(), batch, options.prompt, options.steps, {}, &log});
  }
  template <class W>
  static std::vector<std::pair<plan::Op, W>> All(const plan::Plan& plan) {
    std::vector<std::pair<plan::Op, W>> all;
    for (const plan::Op& op : plan.ops) {
      if (const auto* work = std::get_if<W>(&op.work)) all.emplace_back(op, *work);
    }
    return all;
  }
};

TEST_F(ShadowKvPieces, KeysAreRebuiltOfAsManyTokensAsValuesAreFetched) {
  const plan::Plan plan = Decode({{"rank", "32"}});
  const auto fetches = All<plan::ZeroCopyGather>(plan);
  const auto rebuilt = All<plan::RebuildKeys>(plan);
  ASSERT_EQ(fetches.size(), rebuilt.size());
  ASSERT_GT(fetches.size(), 0u);
  for (size_t i = 0; i < fetches.size(); ++i) {
    EXPECT_EQ(rebuilt[i].second.tokens, fetches[i].second.pieces * 8);
    EXPECT_EQ(rebuilt[i].second.rank, 32);
    EXPECT_GE(rebuilt[i].second.tokens_max * rebuilt[i].second.rows, rebuilt[i].second.tokens);
    EXPECT_LE(rebuilt[i].second.tokens_max, rebuilt[i].second.tokens);
    EXPECT_NE(rebuilt[i].first.lane, fetches[i].first.lane);
  }
}

// The code gives each sequence and KV head a block of 128 threads.
TEST_F(ShadowKvPieces, MoreHeadsReadTheHostWithMoreThreads) {
  const auto blocks = [](int batch, const char* threads) {
    return All<plan::ZeroCopyGather>(Decode({{"fetch_threads", threads}}, batch))[0].second.blocks;
  };
  EXPECT_EQ(blocks(1, "128"), 1);  // two heads
  EXPECT_EQ(blocks(8, "128"), 2);
  EXPECT_EQ(blocks(8, "1024"), 16);
}

TEST_F(ShadowKvPieces, EveryUpdateFactorizesAllThatIsCached) {
  const plan::Plan plan = Decode({{"update", "25"}});
  std::map<int, std::vector<int64_t>> tokens;  // by step
  for (const auto& [op, work] : All<plan::FactorizeKeys>(plan)) {
    tokens[op.step].push_back(work.tokens);
  }
  const std::vector<int64_t> first(4, 203 + 25), second(4, 203 + 50);
  EXPECT_EQ(tokens, (std::map<int, std::vector<int64_t>>{{25, first}, {50, second}}));
  EXPECT_TRUE(All<plan::FactorizeKeys>(Decode({})).empty());
}

TEST_F(ShadowKvPieces, WhatIsDecodedNeedsRoom) {
  EXPECT_NO_THROW(Decode({{"reserve", "70"}}));
  EXPECT_THROW(Decode({{"reserve", "69"}}), Error);
  EXPECT_NO_THROW(Decode({{"reserve", "1"}, {"update", "25"}}));
}

TEST(QuestPieces, WhatHeadsShareIsReadOnceAndPartialPagesAreScored) {
  const auto method = MakeMethod("quest", {{"budget", "64"}}).method;
  methods::RandomTraceOptions options;
  options.layers = 4;
  const traces::AccessLog log =
      methods::Replay(methods::RandomTrace(options), "", "quest", *method);
  const plan::Plan plan =
      methods::WriteDecode(*method, {SmallModel(), 1, options.prompt, options.steps, {}, &log});
  int compared = 0;
  for (const plan::Op& op : plan.ops) {
    const int64_t context = options.prompt + op.step + 1;
    const traces::LayerAccess* layer = op.layer >= 0 ? &log.layers[op.layer] : nullptr;
    if (const auto* score = std::get_if<plan::Score>(&op.work)) {
      EXPECT_GE(score->units * 16, context);
      EXPECT_LT(score->units * 16, context + 16);
    }
    const auto* attention = std::get_if<plan::DecodeAttention>(&op.work);
    if (attention == nullptr || layer->dense) continue;
    ASSERT_EQ(layer->heads, 6);
    std::set<std::pair<int, int64_t>> read;  // KV head, token
    for (int head = 0; head < 6; ++head) {
      for (const uint32_t page : layer->selected[int64_t{op.step} * 6 + head]) {
        for (int64_t token = 0; token < 16; ++token) read.insert({head / 3, page * 16 + token});
      }
      for (int64_t token = (context - 1) / 16 * 16; token < context; ++token) {
        read.insert({head / 3, token});
      }
    }
    EXPECT_EQ(attention->distinct_tokens, std::ssize(read)) << op.step << ", layer " << op.layer;
    compared += attention->distinct_tokens < attention->kv_tokens;
  }
  EXPECT_GT(compared, 100);
  // Of the prompt's 13 pages the last is partial.
  const plan::Plan prefill =
      methods::WritePrefill(*method, {SmallModel(), 1, options.prompt, 0, {}, &log});
  for (const plan::Op& op : prefill.ops) {
    if (const auto* bounds = std::get_if<plan::Summarize>(&op.work)) {
      EXPECT_EQ(bounds->units, 2 * 13);
    }
  }
}

TEST(StreamingPieces, AShortContextIsAttendedWhole) {
  const auto method = MakeMethod("streaming", {{"budget", "128"}}).method;
  methods::RandomTraceOptions options;
  const traces::AccessLog log =
      methods::Replay(methods::RandomTrace(options), "", "streaming", *method);
  const plan::Plan plan = methods::WriteDecode(*method, {SmallModel(), 1, 126, 3, {}, &log});
  for (const plan::Op& op : plan.ops) {
    if (const auto* attention = std::get_if<plan::DecodeAttention>(&op.work)) {
      EXPECT_EQ(attention->kv_tokens_max, op.step == 0 ? 127 : 128);
      EXPECT_EQ(attention->kv_tokens, 2 * attention->kv_tokens_max);
    }
  }
}

// WG-KV's caches, by what the log says of them.
class WgKvPieces : public testing::Test {
 protected:
  struct Run {
    traces::AccessLog log;
    plan::Plan prefill, decode;
  };
  static Run Write(ParamValues params, int64_t context = 203) {
    params.merge(ParamValues{{"window", "32"}, {"sparsity", "0.5"}});
    const auto method = MakeMethod("wgkv", params).method;
    methods::RandomTraceOptions options;
    options.layers = 4;
    Run run;
    run.log = methods::Replay(methods::RandomTrace(options), "", "wgkv", *method);
    const PlanInput input{SmallModel(), 1, context, options.steps, {}, &run.log};
    run.prefill = methods::WritePrefill(*method, input);
    run.decode = methods::WriteDecode(*method, input);
    return run;
  }
  static int64_t Admitted(const plan::Plan& plan) {
    int64_t admitted = 0;
    for (const plan::Op& op : plan.ops) {
      if (const auto* admit = std::get_if<plan::Admit>(&op.work)) admitted += admit->admitted;
    }
    return admitted;
  }
};

TEST_F(WgKvPieces, WhatIsAdmittedStaysOrIsDropped) {
  const ParamValues snapkv{{"evict", "snapkv"}, {"capacity", "80"}, {"observe", "32"}};
  for (const ParamValues& params : {ParamValues{}, snapkv}) {
    const Run run = Write(params);
    int64_t left = 0, dropped = 0;
    for (const traces::LayerAccess& layer : run.log.layers) {
      for (int head = 1; head <= layer.heads; ++head) {
        left += *(layer.cached_tokens.end() - head) - 32;  // the window apart
      }
      for (const int32_t tokens : layer.evicted) dropped += tokens;
    }
    EXPECT_EQ(dropped > 0, !params.empty());
    EXPECT_EQ(Admitted(run.prefill) + Admitted(run.decode), left + dropped);
  }
}

TEST_F(WgKvPieces, AnEvictionScoresAllThatItsHeadsHold) {
  const Run run = Write({{"evict", "snapkv"}, {"capacity", "80"}, {"observe", "32"}});
  int evictions = 0;
  for (const plan::Op& op : run.decode.ops) {
    const auto* scores = std::get_if<plan::WindowScore>(&op.work);
    if (scores == nullptr) continue;
    const traces::LayerAccess& layer = run.log.layers[op.layer];
    int64_t held = 0;
    for (int head = 0; head < layer.heads; ++head) {
      const auto cell = static_cast<size_t>(op.step * layer.heads + head);
      held += layer.cached_tokens[cell] + layer.evicted[cell];
    }
    EXPECT_EQ(scores->tokens, held) << op.step << ", layer " << op.layer;
    ++evictions;
  }
  EXPECT_GT(evictions, 0);
}

TEST_F(WgKvPieces, AtALongerContextAsLargeAShareIsKeptUpToTheBudget) {
  const auto attended = [](const Run& run) {
    int64_t most = 0;
    for (const plan::Op& op : run.decode.ops) {
      if (const auto* attention = std::get_if<plan::DecodeAttention>(&op.work)) {
        if (op.step == 0) most = std::max(most, attention->kv_tokens_max);
      }
    }
    return most;
  };
  const int64_t traced = attended(Write({})), longer = attended(Write({}, 406));
  EXPECT_NEAR(static_cast<double>(longer - 32) / (407 - 32),
              static_cast<double>(traced - 32) / (204 - 32), 1.0 / (407 - 32));
  EXPECT_LE(attended(Write({{"select", "quest"}, {"budget", "64"}}, 406)), 64);
}

TEST_F(WgKvPieces, WhileTheWindowHoldsAllNothingIsPromoted) {
  const Run run = Write({}, 30);
  int promotions = 0;
  for (const plan::Op& op : run.decode.ops) {
    if (!std::holds_alternative<plan::Admit>(op.work)) continue;
    EXPECT_GT(30 + op.step + 1, 32);
    ++promotions;
  }
  EXPECT_EQ(promotions, 70 - 2);
}

}  // namespace
}  // namespace stallcast::sim
