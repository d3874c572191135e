// How fast threads of the host gather pieces of a pool.
#pragma once

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in host.gather_thread, gather_piece, gather_rate, gather_start and gather_row by the
/// number of threads, and host.memory: gathers like those of a layer's recall, of pages that the
/// host lists first and of tokens' rows that it has listed, each from another layer's pool, and by
/// threads that have meanwhile gone to sleep.
void MeasureGather(hardware::Profile& profile);

}  // namespace stallcast::capture
