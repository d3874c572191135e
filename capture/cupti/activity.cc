#include "capture/cupti/activity.h"

#include <string_view>

namespace stallcast::capture {
namespace {

// CUPTI says which struct a record is by its kind only.
template <typename Record>
const Record& As(const CUpti_Activity& activity) {
  return reinterpret_cast<const Record&>(activity);
}

template <typename Record>
DeviceRecord OnDevice(DeviceRecord::Kind kind, const Record& record) {
  DeviceRecord out;
  out.kind = kind;
  out.start_ns = static_cast<int64_t>(record.start);
  out.end_ns = static_cast<int64_t>(record.end);
  out.correlation = record.correlationId;
  out.device = record.deviceId;
  out.stream = {record.contextId, record.streamId};
  out.graph_node = record.graphNodeId;
  return out;
}

template <typename Record>
DeviceRecord Copy(const Record& record) {
  DeviceRecord out = OnDevice(DeviceRecord::Kind::kCopy, record);
  out.name = CopyName(record.copyKind, record.srcKind, record.dstKind);
  out.bytes = static_cast<int64_t>(record.bytes);
  if (record.channelType == CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY) {
    out.copy_channel = static_cast<int32_t>(record.channelID);
  }
  return out;
}

}  // namespace

ActivityParser::ActivityParser(const Cupti& cupti)
    : cupti_(cupti),
      runtime_calls_(CallNames(cupti, CUPTI_CB_DOMAIN_RUNTIME_API)),
      driver_calls_(CallNames(cupti, CUPTI_CB_DOMAIN_DRIVER_API)) {}

void ActivityParser::Parse(uint8_t* buffer, size_t bytes, TimelineAssembler& assembler) const {
  CUpti_Activity* activity = nullptr;
  CUptiResult result = CUPTI_SUCCESS;
  while ((result = cupti_.ActivityGetNextRecord(buffer, bytes, &activity)) == CUPTI_SUCCESS) {
    Add(*activity, assembler);
  }
  if (result == CUPTI_ERROR_INVALID_KIND) assembler.AddDropped(1);  // it never ended
}

int64_t ActivityParser::Count(uint8_t* buffer, size_t bytes) const {
  CUpti_Activity* activity = nullptr;
  int64_t records = 0;
  while (cupti_.ActivityGetNextRecord(buffer, bytes, &activity) == CUPTI_SUCCESS) ++records;
  return records;
}

void ActivityParser::Add(const CUpti_Activity& activity, TimelineAssembler& assembler) const {
  switch (activity.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = As<CUpti_ActivityKernel10>(activity);
      DeviceRecord record = OnDevice(DeviceRecord::Kind::kKernel, kernel);
      record.name = kernel.name != nullptr ? kernel.name : "kernel";
      assembler.Add(record);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      assembler.Add(Copy(As<CUpti_ActivityMemcpy6>(activity)));
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      assembler.Add(Copy(As<CUpti_ActivityMemcpyPtoP4>(activity)));
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& memset = As<CUpti_ActivityMemset4>(activity);
      DeviceRecord record = OnDevice(DeviceRecord::Kind::kMemset, memset);
      record.name = "memset";
      record.bytes = static_cast<int64_t>(memset.bytes);
      assembler.Add(record);
      break;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const auto& wait = As<CUpti_ActivitySynchronization2>(activity);
      assembler.Add(WaitRecord{.name = WaitName(wait.type),
                               .start_ns = static_cast<int64_t>(wait.start),
                               .end_ns = static_cast<int64_t>(wait.end),
                               .correlation = wait.correlationId});
      break;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto& call = As<CUpti_ActivityAPI>(activity);
      const auto& calls =
          activity.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? runtime_calls_ : driver_calls_;
      const bool known = call.cbid < calls.size();
      if (known && !calls[call.cbid].recorded) break;
      assembler.Add(
          CallRecord{.name = known ? std::string_view(calls[call.cbid].name) : "CUDA call",
                     .start_ns = static_cast<int64_t>(call.start),
                     .end_ns = static_cast<int64_t>(call.end),
                     .correlation = call.correlationId,
                     .thread = call.threadId});
      break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& external = As<CUpti_ActivityExternalCorrelation>(activity);
      if (external.externalKind == kExternalKind) {
        assembler.Add(ExternalRecord{external.correlationId, external.externalId});
      }
      break;
    }
    case CUPTI_ACTIVITY_KIND_MARKER: {
      const auto& marker = As<CUpti_ActivityMarker2>(activity);
      if ((marker.flags & (CUPTI_ACTIVITY_FLAG_MARKER_START | CUPTI_ACTIVITY_FLAG_MARKER_END)) == 0)
        break;  // a point in time
      assembler.Add(RangeRecord{.begin = (marker.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0,
                                .range = marker.id,
                                .name = marker.name != nullptr ? marker.name : "",
                                .at_ns = static_cast<int64_t>(marker.timestamp),
                                .thread = marker.objectId.pt.threadId});
      break;
    }
    default:
      break;  // not asked for
  }
}

}  // namespace stallcast::capture
