// Small files of other programs' formats, written here.
#pragma once

#include <sqlite3.h>
#include <zlib.h>

#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>

#include "tests/traces/convert/written.h"
#include "traces/convert/import.h"

namespace stallcast::traces {

inline ImportedTrace ImportText(const std::string& file, const ImportOptions& options = {},
                                const std::string& name = "test") {
  return Import(std::as_bytes(std::span(file)), name, options);
}

inline std::string Gzipped(const std::string& text) {
  return Written([&](const std::filesystem::path& path) {
    const gzFile out = gzopen(path.c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
  });
}

/// A database that `sql` fills.
inline std::string NsightFile(const std::string& sql) {
  return Written([&](const std::filesystem::path& path) {
    std::filesystem::remove(path);
    sqlite3* database = nullptr;
    sqlite3_open(path.c_str(), &database);
    char* message = nullptr;
    sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &message);
    const std::string fault = message == nullptr ? "" : message;
    sqlite3_free(message);
    sqlite3_close(database);
    if (!fault.empty()) throw std::runtime_error(fault);
  });
}

/// Two steps as Kineto would have recorded them: a kernel and a copy launched one by one, a graph
/// of two kernels, a synchronisation, annotations on both sides, an instant, metadata behind.
inline std::string KinetoFile() {
  return R"json({
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "Some GPU", "numSms": 132}
  ],
  "cuda_driver_version": 13000,
  "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 42, "tid": 42,
    "ts": 4351046388600.000, "dur": 100.000, "args": {"External id": 1}
  },
  {
    "ph": "X", "cat": "user_annotation", "name": "layer 7", "pid": 42, "tid": 42,
    "ts": 4351046388605.000, "dur": 45.000, "args": {"External id": 2}
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 42, "tid": 42,
    "ts": 4351046388610.000, "dur": 30.500, "args": {"External id": 3}
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 42, "tid": 42,
    "ts": 4351046388620.125, "dur": 5.25, "args": {"cbid": 211, "correlation": 11}
  },
  {"ph": "s", "id": 11, "pid": 42, "tid": 42, "ts": 4351046388620.125, "cat": "ac2g", "name": "ac2g"},
  {
    "ph": "X", "cat": "kernel", "name": "gemm<float>", "pid": 0, "tid": 7,
    "ts": 4351046388640.001, "dur": 12.002,
    "args": {"device": 0, "context": 1, "stream": 7, "correlation": 11, "grid": [1, 2, 3]}
  },
  {"ph": "f", "id": 11, "pid": 0, "tid": 7, "ts": 4351046388640.001, "cat": "ac2g", "name": "ac2g", "bp": "e"},
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 42, "tid": 42,
    "ts": 4351046388660, "dur": 4, "args": {"cbid": 41, "correlation": 12}
  },
  {
    "ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 20,
    "ts": 4351046388670, "dur": 1.5,
    "args": {"device": 0, "context": 1, "stream": 20, "correlation": 12, "bytes": 16384}
  },
  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 42, "tid": 42,
    "ts": 4351046388700.000, "dur": 100.000, "args": {"External id": 4}
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 42, "tid": 42,
    "ts": 4351046388710, "dur": 6, "args": {"cbid": 311, "correlation": 13}
  },
  {
    "ph": "X", "cat": "kernel", "name": "first", "pid": 0, "tid": 7,
    "ts": 4351046388720, "dur": 2,
    "args": {"device": 0, "stream": 7, "correlation": 13, "graph id": 3, "graph node id": 1}
  },
  {
    "ph": "X", "cat": "kernel", "name": "second", "pid": 0, "tid": 7,
    "ts": 4351046388722, "dur": 3,
    "args": {"device": 0, "stream": 7, "correlation": 13, "graph id": 3, "graph node id": 2}
  },
  {
    "ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#5", "pid": 0, "tid": 7,
    "ts": 4351046388720, "dur": 5, "args": {"External id": 4}
  },
  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 42, "tid": 42,
    "ts": 4351046388730, "dur": 20, "args": {"cbid": 131, "correlation": 14}
  },
  {
    "ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7,
    "ts": 4351046388731, "dur": 18, "args": {"device": 0, "stream": 7, "correlation": 14}
  },
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::item", "pid": 42, "tid": 43,
    "ts": 4351046388735, "dur": 1, "args": {"External id": 5}
  },
  {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 4351046388900},
  {"name": "process_name", "ph": "M", "ts": 0, "pid": 42, "tid": 0, "args": {"name": "python3"}},
  {"name": "thread_name", "ph": "M", "ts": 0, "pid": 42, "tid": 42, "args": {"name": "main "}},
  {"name": "thread_name", "ph": "M", "ts": 0, "pid": 0, "tid": 7, "args": {"name": "stream 7 "}}
  ],
  "traceName": "kineto.json"
}
)json";
}

/// The same two steps as Nsight Systems would export them, without the graph's nodes.
inline std::string NsightSample() {
  return NsightFile(R"sql(
PRAGMA page_size = 512;
CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaMemcpyAsync_v3020'),
  (3, 'cudaGraphLaunch_v10000'), (4, 'cudaStreamSynchronize_v3020'), (5, 'gemm<float>'),
  (6, 'gemm'), (7, 'layer 7'), (8, 'python3');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER, shortName INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (40, 52, 0, 1, 7, 11, 42 << 24, 5, 6);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (70, 72, 0, 20, 12, 42 << 24, 16384, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, value INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (80, 81, 0, 7, 15, 42 << 24, 64, 0);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (120, 125, 0, 7, 13, 42 << 24, 3);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (131, 149, 0, 7, 14, 42 << 24, 3);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (20, 25, 42 << 24 | 42, 11, 1),
  (60, 64, 42 << 24 | 42, 12, 2), (110, 116, 42 << 24 | 42, 13, 3),
  (130, 150, 42 << 24 | 42, 14, 4), (0, 0, 42 << 24 | 42, 16, 1);
CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  text TEXT, globalTid INTEGER, textId INTEGER);
INSERT INTO NVTX_EVENTS VALUES (1, 100, 59, 'step 4', 42 << 24 | 42, NULL),
  (5, 50, 59, NULL, 42 << 24 | 42, 7), (101, 200, 60, 'step 5', 42 << 24 | 42, NULL),
  (3, NULL, 34, 'a mark', 42 << 24 | 42, NULL);
CREATE TABLE ThreadNames(nameId INTEGER, priority INTEGER, globalTid INTEGER);
INSERT INTO ThreadNames VALUES (8, 20, 42 << 24 | 42);
CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'Some GPU'), (1, 'Some GPU');
CREATE TABLE DIAGNOSTIC_EVENT(timestamp INTEGER, severity INTEGER, text TEXT);
INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 2, 'Not all events were collected.'), (1, 1, 'Fine.');
)sql");
}

}  // namespace stallcast::traces
