// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/axis.h"

#include <array>
#include <limits>
#include <map>

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
  Places places;
};

// The numbers that every part has, in an order that ascends on every clock.
std::vector<int32_t> Common(const std::vector<Part>& parts) {
  std::vector<int32_t> common;
  for (const auto& place_of : parts.front().places) {
    const int32_t number = place_of.first;
    const bool everywhere = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
      const auto place = part.places.find(number);
      return place != part.places.end() &&
             (common.empty() || place->second > part.places.at(common.back()));
    });
    if (everywhere) common.push_back(number);
  }
  return common;
}

// What is before the first anchor and after the last keeps its distance from it.
void LayOut(std::vector<Part>& parts, const std::vector<int32_t>& numbers, Alignment& alignment) {
  Picoseconds axis{0};  // of the current anchor; the earliest begin is at 0
  for (const Part& part : parts) {
    const Picoseconds first =
        numbers.empty() ? part.model->begin() : part.places.at(numbers.front());
    axis = std::max(axis, first - part.model->begin());
  }
  std::vector<std::vector<Anchor>> anchors(parts.size());
  if (numbers.empty()) {
    for (size_t i = 0; i < parts.size(); ++i) anchors[i] = {{parts[i].model->begin(), axis}};
  }
  for (size_t n = 0; n < numbers.size(); ++n) {
    Picoseconds longest{0};
    for (size_t i = 0; i < parts.size(); ++i) {
      const Picoseconds begin = parts[i].places.at(numbers[n]);
      const Picoseconds end =
          n + 1 < numbers.size() ? parts[i].places.at(numbers[n + 1]) : parts[i].model->end();
      anchors[i].push_back({begin, axis});
      longest = std::max(longest, end - begin);
    }
    alignment.stretches.push_back({numbers[n], {axis, axis + longest}});
    axis += longest;
  }
  alignment.whole = {Picoseconds{0}, Picoseconds{0}};
  for (size_t i = 0; i < parts.size(); ++i) {
    *parts[i].map = AxisMap(std::move(anchors[i]));
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
  std::vector<Part> parts;
  const std::array all = {Part{predicted, &alignment.predicted, {}},
                          Part{measured, &alignment.measured, {}},
                          Part{ghost, &alignment.ghost, {}}};
  for (const Part& part : all) {
    if (part.model != nullptr && part.model->rows() > 0) parts.push_back(part);
  }
  if (parts.empty()) return alignment;

  std::vector<int32_t> numbers;
  if (!range.empty()) {
    for (Part& part : parts) part.places = RangePlaces(*part.model, range);
    numbers = Common(parts);
    if (!numbers.empty()) alignment.by = Alignment::By::kRange;
  }
  if (numbers.empty()) {
    for (Part& part : parts) part.places = StepPlaces(*part.model);
    numbers = Common(parts);
    if (!numbers.empty()) alignment.by = Alignment::By::kStep;
  }
  LayOut(parts, numbers, alignment);
  return alignment;
}

}  // namespace stallcast::gui
