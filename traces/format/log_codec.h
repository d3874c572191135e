// Access logs to messages and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "traces/access_log.h"
#include "traces/format/schema.pb.h"

namespace stallcast::traces::format {

/// Hands `emit` the messages of a log without a fault, at least one, each with its cells.
void EncodeAccessLog(const AccessLog& log, uint32_t id,
                     const std::function<void(const proto::AccessLog&, int64_t cells)>& emit);

/// Cells that a message of a log holds.
int64_t CellsIn(const proto::AccessLog& message);

/// Puts a log together from its messages, which come in order of layer and step.
class AccessLogBuilder {
 public:
  explicit AccessLogBuilder(const proto::AccessLog& first);

  /// Adds a message. Returns why it does not fit, leaving the log as it was, or empty.
  std::string Add(const proto::AccessLog& message);
  /// The log with the layers that are complete, and a line in `*problems` for what is missing.
  AccessLog Finish(std::vector<std::string>* problems);

 private:
  AccessLog log_;
  int64_t layer_count_;
  std::vector<int64_t> steps_;  // steps held, for each layer in log_
  bool says_sets_of_ = true;
};

}  // namespace stallcast::traces::format
