#include "sim/typical_layer.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stallcast::sim {
namespace {

using Ops = std::vector<const MatchedOp*>;
using LayerKey = std::pair<int32_t, int16_t>;  // step, layer

TimePair Since(const TimePair& begin, const TimePair& time) {
  return {{time.predicted.value - begin.predicted.value},
          {time.measured.value - begin.measured.value}};
}

void Add(TimePair& sum, const TimePair& time) {
  sum.predicted.value += time.predicted.value;
  sum.measured.value += time.measured.value;
}

void Divide(TimePair& sum, int64_t by) {
  sum.predicted.value /= by;
  sum.measured.value /= by;
}

}  // namespace

TypicalLayer FindTypicalLayer(const Comparison& comparison) {
  std::map<LayerKey, Ops> layers;  // each in the order of op ids, which is the plan's
  for (const MatchedOp& op : comparison.ops) {
    if (!op.call && op.layer >= 0) layers[{op.step, op.layer}].push_back(&op);
  }
  std::map<std::vector<std::string>, std::vector<LayerKey>> alike;
  for (const auto& [key, ops] : layers) {
    std::vector<std::string> names;
    for (const MatchedOp* op : ops) names.push_back(op->name);
    alike[std::move(names)].push_back(key);
  }
  TypicalLayer typical;
  if (alike.empty()) return typical;
  const auto& [names, keys] =
      *std::ranges::max_element(alike, {}, [](const auto& group) { return group.second.size(); });
  typical.layers = std::ssize(keys);
  typical.of = std::ssize(layers);
  for (const std::string& name : names) typical.places.push_back({.op = name});

  int64_t followed = 0;
  for (const LayerKey& key : keys) {
    const Ops& ops = layers.at(key);
    const TimePair& begin = ops.front()->start;
    for (size_t i = 0; i < ops.size(); ++i) {
      TypicalLayer::Place& place = typical.places[i];
      Add(place.begin, Since(begin, ops[i]->start));
      Add(place.duration, ops[i]->duration);
      Add(place.idle, ops[i]->idle);
    }
    const auto next = layers.find({key.first, static_cast<int16_t>(key.second + 1)});
    if (next == layers.end()) continue;
    Add(typical.period, Since(begin, next->second.front()->start));
    ++followed;
  }
  for (TypicalLayer::Place& place : typical.places) {
    for (TimePair* sum : {&place.begin, &place.duration, &place.idle}) Divide(*sum, typical.layers);
  }
  if (followed > 0) Divide(typical.period, followed);
  return typical;
}

}  // namespace stallcast::sim
