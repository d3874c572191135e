#include "capture/cupti/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::capture {
namespace {

constexpr const char* kLibrary = STALLCAST_CUPTI_LIBRARY;  // libcupti.so.N of the headers' version

std::vector<std::string> Places() {
  std::vector<std::string> places = {kLibrary};
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) roots.emplace_back(root);
  }
  roots.emplace_back(STALLCAST_CUDA_ROOT);
  roots.emplace_back("/usr/local/cuda");  // where the toolkit's packages put it
  for (const std::string& root : roots) {
    for (const char* folder : {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"}) {
      places.push_back(fmt::format("{}/{}/{}", root, folder, kLibrary));
    }
  }
  return places;
}

void* Open() {
  if (const char* chosen = std::getenv("STALLCAST_CUPTI")) {
    if (void* library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL)) return library;
    throw Error(fmt::format("cannot be loaded: {}", dlerror()), "STALLCAST_CUPTI",
                fmt::format("name a {}", kLibrary));
  }
  // By its plain name first: a second copy beside the one of PyTorch, say, would record nothing.
  for (const std::string& place : Places()) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error(
      fmt::format("{} not found", kLibrary), "CUPTI",
      "install it (package cuda-cupti of the CUDA toolkit), or point STALLCAST_CUPTI at it");
}

template <typename Function>
void Bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(fmt::format("lacks {}", name), kLibrary,
                "install the CUPTI of the CUDA toolkit that Stallcast was built with");
  }
}

Cupti Load() {
  void* library = Open();
  Cupti cupti;
  Bind(library, "cuptiActivityEnable", cupti.ActivityEnable);
  Bind(library, "cuptiActivityDisable", cupti.ActivityDisable);
  Bind(library, "cuptiActivityEnableDriverApi", cupti.ActivityEnableDriverApi);
  Bind(library, "cuptiActivityEnableRuntimeApi", cupti.ActivityEnableRuntimeApi);
  Bind(library, "cuptiActivityFlushAll", cupti.ActivityFlushAll);
  Bind(library, "cuptiActivityGetNextRecord", cupti.ActivityGetNextRecord);
  Bind(library, "cuptiActivityGetNumDroppedRecords", cupti.ActivityGetNumDroppedRecords);
  Bind(library, "cuptiActivityPopExternalCorrelationId", cupti.ActivityPopExternalCorrelationId);
  Bind(library, "cuptiActivityPushExternalCorrelationId", cupti.ActivityPushExternalCorrelationId);
  Bind(library, "cuptiActivityRegisterCallbacks", cupti.ActivityRegisterCallbacks);
  Bind(library, "cuptiEnableCallback", cupti.EnableCallback);
  Bind(library, "cuptiGetCallbackName", cupti.GetCallbackName);
  Bind(library, "cuptiGetContextId", cupti.GetContextId);
  Bind(library, "cuptiGetGraphNodeId", cupti.GetGraphNodeId);
  Bind(library, "cuptiGetResultString", cupti.GetResultString);
  Bind(library, "cuptiGetStreamIdEx", cupti.GetStreamIdEx);
  Bind(library, "cuptiGetTimestamp", cupti.GetTimestamp);
  Bind(library, "cuptiSetThreadIdType", cupti.SetThreadIdType);
  Bind(library, "cuptiSubscribe_v2", cupti.Subscribe);
  Bind(library, "cuptiUnsubscribe", cupti.Unsubscribe);
  Bind(library, "InitializeInjectionNvtx2", cupti.InitializeInjectionNvtx2);
  return cupti;
}

}  // namespace

const Cupti& LoadCupti() {
  static const Cupti cupti = Load();
  return cupti;
}

}  // namespace stallcast::capture
