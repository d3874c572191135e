#include "capture/cupti/names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace stallcast::capture {
namespace {

template <size_t N>
bool HoldsOneOf(std::string_view name, const std::array<std::string_view, N>& parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// cudaLaunchKernel_ptsz_v7000 and cuLaunchKernel_ptsz are cudaLaunchKernel and cuLaunchKernel.
std::string WithoutVersion(std::string name) {
  const size_t version = name.rfind("_v");
  if (version != std::string::npos && version + 2 < name.size() &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(version) + 2, name.end(),
                  [](unsigned char c) { return std::isdigit(c) != 0; })) {
    name.resize(version);
  }
  for (const std::string_view variant : {"_ptsz", "_ptds"}) {
    if (name.ends_with(variant)) name.resize(name.size() - variant.size());
  }
  return name;
}

bool IsQuestion(std::string_view name) {
  static constexpr std::array<std::string_view, 14> kQuestions = {
      "Get",       "Query",       "Peek",       "IsCapturing",      "Exchange",
      "CanAccess", "ElapsedTime", "SetDevice",  "Occupancy",        "Configuration",
      "__cudaReg", "__cudaUnreg", "__cudaInit", "CreateChannelDesc"};
  return HoldsOneOf(name, kQuestions);
}

bool IsWork(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kWork = {
      "Launch", "Memcpy", "Memset", "Synchronize", "WaitEvent", "WaitValue", "WriteValue"};
  return HoldsOneOf(name, kWork);
}

}  // namespace

std::string_view CopyName(uint8_t copy_kind, uint8_t src_kind, uint8_t dst_kind) {
  const auto pageable = [](uint8_t kind) { return kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE; };
  switch (copy_kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return pageable(src_kind) ? "copy pageable host to device" : "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return pageable(dst_kind) ? "copy device to pageable host" : "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy device to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "copy host to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy peer to peer";
    default:
      return "copy";
  }
}

std::string_view WaitName(CUpti_ActivitySynchronizationType type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "host waits for event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      return "stream is told to wait for event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "host waits for stream";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE:
      return "host waits for device";
    default:
      return "wait";
  }
}

std::vector<CallName> CallNames(const Cupti& cupti, CUpti_CallbackDomain domain) {
  const bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  std::vector<CallName> calls(runtime ? size_t{CUPTI_RUNTIME_TRACE_CBID_SIZE}
                                      : size_t{CUPTI_DRIVER_TRACE_CBID_SIZE});
  for (uint32_t id = 1; id < calls.size(); ++id) {
    const char* name = nullptr;
    if (cupti.GetCallbackName(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) continue;
    calls[id].name = WithoutVersion(name);
    calls[id].recorded = !IsQuestion(name) && (runtime || IsWork(name));
  }
  return calls;
}

}  // namespace stallcast::capture
