// How fast threads of the host gather pieces of a pool.
#pragma once

#include "models/hardware/profile.h"

namespace stallcast::capture {

/// Fills in host.gather_thread, gather_piece, gather_rate and gather_start by the number of
/// threads, and host.memory: gathers like those of a layer's recall, each from another layer's
/// pool, its list of pieces made first, and by threads that have meanwhile gone to sleep.
void MeasureGather(hardware::Profile& profile);

}  // namespace stallcast::capture
