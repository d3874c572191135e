// What the kernels and transfers in use reach on the machine at hand, beside what limits them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/llm/model.h"

namespace stallcast::capture {

struct BenchOptions {
  llm::Model model;    ///< whose shapes are timed
  std::string filter;  ///< part of a kernel's name; empty: all
  /// What is being measured, and the share done.
  std::function<void(const std::string& what, double share)> progress;
};

struct BenchRow {
  std::string kernel;  ///< op kind, or the path of a transfer
  std::string shape;
  double seconds = 0;  ///< of one among many, the gap to the next included; of transfers, a piece
  double bytes = 0;    ///< least that it moves: each input read, each output written once
  double flops = 0;
  /// What bounds it, measured in the same run: large reads of device memory, a large product on the
  /// tensor cores at full clock, the link in one direction, or the host's memory.
  std::string limit;
  double share = 0;  ///< least time that the limit allows, over seconds
};

/// Times kernels with the calibration's probes and transfers with its measurements. A filter that
/// matches nothing: usage Error listing the names. No device, no memory: Error.
std::vector<BenchRow> Bench(const BenchOptions& options);

}  // namespace stallcast::capture
