// The full cache on the GPU has nothing to set.
#pragma once

namespace stallcast::methods {

struct FullParams {};

}  // namespace stallcast::methods
