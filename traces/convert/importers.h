// The importers behind Import(), one a format. Each adds timelines and what the file says of its
// machine and software to `trace`, and what is wrong to `report`; each throws Error where the file
// holds nothing of its format.
#pragma once

#include <map>
#include <string>

#include "traces/convert/database.h"
#include "traces/convert/import.h"
#include "traces/convert/input.h"

namespace stallcast::traces::convert {

/// The remedy for a file of no format that is read.
inline constexpr const char* kFormatsRead =
    "give a .kvt, a Perfetto trace, Chrome or Kineto JSON, or an SQLite export of Nsight Systems";

void ImportChromeJson(Input* input, const std::string& name, const ImportOptions& options,
                      Trace* trace, ReadReport* report);
void ImportPerfetto(Input* input, const std::string& name, const ImportOptions& options,
                    Trace* trace, ReadReport* report);
void ImportNsight(Database* database, const std::string& name, const ImportOptions& options,
                  Trace* trace, ReadReport* report);

/// "GPU 0 stream 7", and the place of such lanes behind those of threads.
std::string StreamName(int64_t device, int64_t stream);
int64_t StreamOrder(int64_t device, int64_t stream);

/// Devices of a machine, by name, as its name: "A100, 2 x H100".
std::string MachineOf(const std::map<std::string, int>& devices);

/// "1 event", "12 events".
std::string Counted(int64_t count, const std::string& what);

}  // namespace stallcast::traces::convert
