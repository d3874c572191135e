// What the C interfaces share: exceptions become a status and a line of text.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>

#include "capture/recorder_c.h"
#include "traces/common/error.h"

namespace stallcast::capture {

/// The calling thread's last failure.
std::string& LastError();

/// Runs `body` and turns what it throws into a status and a text.
template <typename Body>
int Guarded(const char* function, Body&& body) noexcept {
  try {
    try {
      body();
      return STALLCAST_OK;
    } catch (const Error& error) {
      LastError() = error.what();
      return error.usage() ? STALLCAST_USAGE : STALLCAST_FAILURE;
    } catch (const std::bad_alloc&) {
      LastError() =
          fmt::format("out of memory ({}): record fewer layers or smaller chunks", function);
    } catch (const std::exception& error) {
      LastError() = fmt::format("{} ({}): report this as a bug", error.what(), function);
    }
  } catch (...) {
    // Not even the message could be stored; the status alone has to do.
  }
  return STALLCAST_FAILURE;
}

template <typename T>
T& NotNull(T* pointer, const char* what, const char* function) {
  if (!pointer) {
    throw UsageError(fmt::format("{} is null", what), function, "pass a valid address");
  }
  return *pointer;
}

inline const char* Text(const char* text) { return text ? text : ""; }

}  // namespace stallcast::capture
