// Work on a thread of its own, while Python's signals and a listener are served.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "sim/cli/progress.h"
#include "sim/predict.h"

namespace stallcast::python {

/// Returns what `work(progress, stop)` returns, or throws what it throws. `listener(what, share)`
/// is called by this thread with the newest progress; None: the bar on a terminal. Ctrl-C, and what
/// the listener raises, end the work soon: `stop` is requested, and its next progress throws
/// Cancelled. To be called with the GIL, which is free for others meanwhile.
template <class Work>
auto Watched(const nanobind::object& listener, Work work) {
  namespace nb = nanobind;
  using Result = std::invoke_result_t<Work, cli::Progress&, std::stop_token>;
  constexpr std::chrono::milliseconds kPatience{50};  // until signals are looked for again

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::pair<std::string, double>> news;
  bool done = false;
  std::optional<Result> result;
  std::exception_ptr failure;

  const bool draws = listener.is_none();
  cli::Progress terminal;
  std::stop_source stop;
  cli::Progress progress([&](const std::string& what, double share) {
    if (stop.stop_requested()) throw sim::Cancelled();
    if (draws) return terminal.Update(what, share);
    const std::lock_guard lock(mutex);
    news.emplace(what, share);
  });
  std::jthread thread([&] {
    try {
      result.emplace(work(progress, stop.get_token()));
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  const auto serve = [&] {
    std::optional<std::pair<std::string, double>> told;
    bool finished = false;
    {
      const nb::gil_scoped_release released;
      std::unique_lock lock(mutex);
      changed.wait_for(lock, kPatience, [&] { return done; });
      finished = done;
      std::swap(told, news);
    }
    if (told && !draws) listener(told->first, told->second);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return finished;
  };
  try {
    while (!serve()) {
    }
  } catch (...) {
    stop.request_stop();
    {
      const nb::gil_scoped_release released;
      thread.join();
    }
    throw;
  }
  thread.join();
  terminal.Clear();
  if (failure) std::rethrow_exception(failure);
  return std::move(*result);
}

}  // namespace stallcast::python
