// The functions of CUPTI that the recorder calls, found at run time.
#pragma once

#include <cupti.h>

namespace stallcast::capture {

struct Cupti {
  decltype(&cuptiActivityEnable) ActivityEnable = nullptr;
  decltype(&cuptiActivityDisable) ActivityDisable = nullptr;
  decltype(&cuptiActivityEnableDriverApi) ActivityEnableDriverApi = nullptr;
  decltype(&cuptiActivityEnableRuntimeApi) ActivityEnableRuntimeApi = nullptr;
  decltype(&cuptiActivityFlushAll) ActivityFlushAll = nullptr;
  decltype(&cuptiActivityGetNextRecord) ActivityGetNextRecord = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) ActivityGetNumDroppedRecords = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) ActivityPopExternalCorrelationId = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) ActivityPushExternalCorrelationId = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) ActivityRegisterCallbacks = nullptr;
  decltype(&cuptiEnableCallback) EnableCallback = nullptr;
  decltype(&cuptiGetCallbackName) GetCallbackName = nullptr;
  decltype(&cuptiGetContextId) GetContextId = nullptr;
  decltype(&cuptiGetGraphNodeId) GetGraphNodeId = nullptr;
  decltype(&cuptiGetResultString) GetResultString = nullptr;
  decltype(&cuptiGetStreamIdEx) GetStreamIdEx = nullptr;
  decltype(&cuptiGetTimestamp) GetTimestamp = nullptr;
  decltype(&cuptiSetThreadIdType) SetThreadIdType = nullptr;
  decltype(&cuptiSubscribe_v2) Subscribe = nullptr;
  decltype(&cuptiUnsubscribe) Unsubscribe = nullptr;
  /// What NVTX calls in an injected library.
  int (*InitializeInjectionNvtx2)(void* get_export_table) = nullptr;
};

/// The library that $STALLCAST_CUPTI names; else the one that the process has loaded; else the one
/// that the loader finds; else that of the CUDA toolkit. Stays loaded. Throws Error where there is
/// none, or where it lacks a function.
const Cupti& LoadCupti();

}  // namespace stallcast::capture
