// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/axis.h"

#include <map>
#include <set>

#include "gui/timeline/timeline_model.h"

namespace stallcast::gui {
namespace {

using Anchor = AxisMap::Anchor;

// Places on a side's clock that are to meet those of the other sides, by number.
using Places = std::map<int32_t, Picoseconds>;

Places StepPlaces(const TimelineModel& model) {
  Places places;
  for (const TimelineModel::Step& step : model.steps()) places[step.step] = step.begin;
  return places;
}

Places RangePlaces(const TimelineModel& model, const std::string& range) {
  const traces::Timeline& t = model.timeline();
  const auto name = std::find(t.names.begin(), t.names.end(), range);
  std::vector<Picoseconds> starts;
  if (name != t.names.end()) {
    const auto id = static_cast<uint32_t>(name - t.names.begin());
    for (int64_t row = 0; row < t.rows(); ++row) {
      if (t.name[row] == id) starts.push_back(t.start[row]);
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  Places places;
  for (Picoseconds start : starts) places[static_cast<int32_t>(places.size())] = start;
  return places;
}

struct Part {
  const TimelineModel* model;
  AxisMap* map;
  bool Alignment::Stretch::*has;  // says that a stretch is this part's; null of the ghost
  Places places;
  Picoseconds end;  // where the last of the places is over
};

// The numbers that every side has, in an order that ascends on every clock.
std::vector<int32_t> Common(const std::vector<Part>& sides) {
  std::vector<int32_t> common;
  for (const auto& place_of : sides.front().places) {
    const int32_t number = place_of.first;
    const bool everywhere = std::all_of(sides.begin(), sides.end(), [&](const Part& side) {
      const auto place = side.places.find(number);
      return place != side.places.end() &&
             (common.empty() || place->second > side.places.at(common.back()));
    });
    if (everywhere) common.push_back(number);
  }
  return common;
}

// Leaves of a side's places those in common and, between them, those of its own that ascend.
void KeepAscending(Part& side, const std::vector<int32_t>& common) {
  Places kept;
  for (const auto& [number, place] : side.places) {
    const auto next = std::lower_bound(common.begin(), common.end(), number);
    const bool shared = next != common.end() && *next == number;
    const bool after = kept.empty() || place > kept.rbegin()->second;
    const bool before = next == common.end() || place < side.places.at(*next);
    if (shared || (after && before)) kept.emplace(number, place);
  }
  side.places = std::move(kept);
}

// Leaves of the ghost's places those of the sides. It is over where one of its own would follow.
void KeepOf(Part& ghost, const std::set<int32_t>& numbers) {
  Places kept;
  Picoseconds next = ghost.end;
  for (const auto& [number, place] : ghost.places) {
    const bool after = kept.empty() || place > kept.rbegin()->second;
    if (!after) continue;
    if (numbers.contains(number)) {
      kept.emplace(number, place);
      next = ghost.end;
    } else {
      next = std::min(next, place);
    }
  }
  ghost.places = std::move(kept);
  ghost.end = next;
}

// What is before a part's first place and after its last keeps its distance from it; the axis has
// room for it, but not for the ghost's.
void LayOut(std::vector<Part>& parts, const std::set<int32_t>& numbers, Alignment& alignment) {
  std::vector<std::vector<Anchor>> anchors(parts.size());
  Picoseconds axis{0};
  for (const int32_t number : numbers) {
    for (const Part& part : parts) {
      const auto first = part.places.begin();
      const bool begins = part.has != nullptr && first != part.places.end();
      if (!begins || first->first != number) continue;
      axis = std::max(axis, first->second - part.model->begin());
    }
    if (!alignment.stretches.empty()) alignment.stretches.back().axis.end = axis;
    Alignment::Stretch stretch{.step = number, .axis = {axis, axis}};
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto here = parts[i].places.find(number);
      if (here == parts[i].places.end()) continue;
      const auto next = std::next(here);
      const Picoseconds end = next == parts[i].places.end() ? parts[i].end : next->second;
      anchors[i].push_back({here->second, axis});
      stretch.axis.end = std::max(stretch.axis.end, axis + (end - here->second));
      if (parts[i].has != nullptr) stretch.*parts[i].has = true;
    }
    alignment.stretches.push_back(stretch);
    axis = stretch.axis.end;
  }
  alignment.whole = {Picoseconds{0}, axis};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (anchors[i].empty()) anchors[i] = {{parts[i].model->begin(), Picoseconds{0}}};
    *parts[i].map = AxisMap(std::move(anchors[i]));
    if (!numbers.empty()) continue;
    alignment.whole.end =
        std::max(alignment.whole.end, parts[i].map->ToAxis(parts[i].model->end()));
  }
}

}  // namespace

Picoseconds AxisMap::ToAxis(Picoseconds clock) const {
  if (anchors_.empty()) return clock;
  auto after = std::upper_bound(anchors_.begin(), anchors_.end(), clock,
                                [](Picoseconds t, const Anchor& a) { return t < a.clock; });
  if (after != anchors_.begin()) --after;
  return after->axis + (clock - after->clock);
}

Picoseconds AxisMap::EndToAxis(Picoseconds clock) const {
  if (anchors_.empty()) return clock;
  auto at = std::lower_bound(anchors_.begin(), anchors_.end(), clock,
                             [](const Anchor& a, Picoseconds t) { return a.clock < t; });
  if (at != anchors_.begin()) --at;
  return at->axis + (clock - at->clock);
}

Picoseconds AxisMap::FromAxis(Picoseconds axis) const {
  if (anchors_.empty()) return axis;
  auto after = std::upper_bound(anchors_.begin(), anchors_.end(), axis,
                                [](Picoseconds t, const Anchor& a) { return t < a.axis; });
  const Anchor& anchor = after == anchors_.begin() ? *after : *std::prev(after);
  const Picoseconds clock = anchor.clock + (axis - anchor.axis);
  const bool slack = after != anchors_.begin() && after != anchors_.end();
  return slack ? std::min(clock, after->clock) : clock;
}

const Alignment::Stretch* Alignment::At(Picoseconds axis) const {
  const auto after =
      std::upper_bound(stretches.begin(), stretches.end(), axis,
                       [](Picoseconds t, const Stretch& s) { return t < s.axis.begin; });
  return after == stretches.begin() ? nullptr : &*std::prev(after);
}

Alignment Align(const TimelineModel* predicted, const TimelineModel* measured,
                const TimelineModel* ghost, const std::string& range) {
  Alignment alignment;
  std::vector<Part> parts;  // the ghost last
  const auto add = [&](const TimelineModel* model, AxisMap* map, bool Alignment::Stretch::*has) {
    if (model != nullptr && model->rows() > 0) parts.push_back({model, map, has, {}, model->end()});
  };
  add(predicted, &alignment.predicted, &Alignment::Stretch::predicted);
  add(measured, &alignment.measured, &Alignment::Stretch::measured);
  const auto sides = static_cast<std::ptrdiff_t>(parts.size());
  if (sides == 0) return alignment;
  add(ghost, &alignment.ghost, nullptr);

  std::set<int32_t> numbers;
  const auto align = [&](Alignment::By by, auto&& places_of) {
    for (Part& part : parts) part.places = places_of(*part.model);
    const std::vector<int32_t> common = Common({parts.begin(), parts.begin() + sides});
    if (common.empty()) return false;
    for (Part& part : parts) {
      if (part.has == nullptr) {
        KeepOf(part, numbers);
        continue;
      }
      KeepAscending(part, common);
      for (const auto& place : part.places) numbers.insert(place.first);
    }
    alignment.by = by;
    return true;
  };
  const bool by_range = !range.empty() && align(Alignment::By::kRange, [&](const auto& model) {
    return RangePlaces(model, range);
  });
  if (!by_range && !align(Alignment::By::kStep, StepPlaces)) {
    for (Part& part : parts) part.places.clear();
  }
  LayOut(parts, numbers, alignment);
  return alignment;
}

}  // namespace stallcast::gui
