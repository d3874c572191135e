// Chrome's trace events, one at a time, out of JSON of any length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "traces/convert/input.h"

namespace stallcast::traces::convert {

/// A JSON value as it stands in the file: a string without its quotes but with its escapes, or the
/// text of anything else. Empty and no string: absent.
struct JsonText {
  std::string_view text;
  bool string = false;
  bool escaped = false;  ///< Decoded() differs from `text`

  bool present() const { return string || !text.empty(); }
  /// Escapes that cannot be decoded stay as they are.
  std::string Decoded() const;
  /// Of a number or of a string that holds one; `fallback` where there is none or it has a
  /// fraction.
  int64_t Integer(int64_t fallback) const;
};

/// The fields of an event that timelines need. Views hold until the next event is read.
struct ChromeEvent {
  char phase = 0;  ///< 0: absent
  JsonText name, category, process, thread, time, duration, id, id2, scope, binding;
  struct Arguments {
    JsonText correlation, device, stream, bytes;         // Kineto
    JsonText name, labels, sort_index;                   // metadata
    JsonText op, step, layer;                            // ours, of slices
    JsonText origin, title, notes, lane, kind, compute;  // ours, of metadata
  } arguments;
};

struct ChromeHandler {
  std::function<void(const ChromeEvent&)> event;
  /// A member of the object that holds the events, where it is not overly long: its JSON text.
  std::function<void(std::string_view key, std::string_view json)> member;
  std::function<void(double share)> progress;  ///< may be empty
};

struct ChromeEventsResult {
  bool found = false;    ///< there is an array of events
  bool foreign = false;  ///< it holds something, and nothing of it is an event
  int64_t damaged = 0;   ///< events that are no JSON and were skipped
  bool cut = false;      ///< the file ends before its JSON does
  std::string fault;     ///< what else went wrong, or empty
};

/// Reads an array of events or an object with the member `traceEvents`.
ChromeEventsResult ReadChromeEvents(Input* input, const ChromeHandler& handler);

}  // namespace stallcast::traces::convert
