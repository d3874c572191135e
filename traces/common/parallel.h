// A loop over the machine's cores.
#pragma once

#include <cstdint>
#include <functional>

namespace stallcast {

/// Workers that ParallelFor uses for `count` items: at most the cores, at least one.
int WorkersFor(int64_t count);

/// Calls `body(worker, item)` once for each item of [0, count), in about ascending order, from
/// WorkersFor(count) threads; `worker` tells the threads apart. Returns when all are done. The
/// first exception stops the loop and is thrown again here.
void ParallelFor(int64_t count, const std::function<void(int worker, int64_t item)>& body);

}  // namespace stallcast
