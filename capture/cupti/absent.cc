// In place of the source where this was built without CUPTI's headers.
#include "capture/activity_source.h"
#include "traces/common/error.h"

namespace stallcast::capture {

std::unique_ptr<ActivitySource> OpenCupti() {
  throw Error("this build cannot record GPU activity", "CUPTI",
              "build Stallcast where a CUDA toolkit (13 or later, with CUPTI) is installed");
}

int InitializeCuptiNvtx(void* /*get_export_table*/) { return 0; }

}  // namespace stallcast::capture
