// Timelines to messages and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "traces/format/schema.pb.h"
#include "traces/timeline.h"

namespace stallcast::traces::format {

/// Hands `emit` the messages of a timeline without a fault, at least one, each with its rows.
void EncodeTimeline(const Timeline& timeline, uint32_t id,
                    const std::function<void(const proto::Timeline&, int64_t rows)>& emit);

/// Appends the rows and flows of `message` to `*timeline`, whose tables it may extend. Returns why
/// it cannot, leaving the timeline as it was, or empty.
std::string AppendTimeline(const proto::Timeline& message, Timeline* timeline);

}  // namespace stallcast::traces::format
