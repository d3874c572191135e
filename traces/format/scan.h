// Finds the chunks of a file by their heads, past any damage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/format/chunk.h"
#include "traces/format/source.h"

namespace stallcast::traces::format {

struct FoundChunk {
  ChunkHead head;
  int64_t payload_offset = 0;
  std::string lost_before;  ///< what is missing between the chunk before and this one, or empty
  std::string fault;        ///< why its payload is not to be read, or empty
  bool cut = false;         ///< the fault: the source ends within the payload
};

struct ScanResult {
  std::vector<FoundChunk> chunks;  ///< in the order of the file
  std::string header_fault;        ///< what is wrong with the file header, or empty
  std::string lost_after;          ///< what is wrong after the last chunk, or empty
};

/// Lists the chunks. Throws Error when the source is no trace or of a newer format version; `name`
/// is used in messages.
ScanResult ScanChunks(const Source& source, const std::string& name);

}  // namespace stallcast::traces::format
