// A machine of round numbers, so that tests can state the closed form and then the time.
#pragma once

#include "models/hardware/profile.h"
#include "models/plan/work.h"

namespace stallcast::sim {

/// All latencies and host costs zero; links 50 and 40 GB/s alone, 30 and 20 both ways; 4 TB/s of
/// device memory; 100 multiprocessors; zero-copy at 5 GB/s a block up to 50 GB/s.
inline hardware::Profile TestMachine() {
  hardware::Profile p;
  p.name = p.title = "test";
  p.status = "measured";
  p.link.h2d = 50e9;
  p.link.d2h = 40e9;
  p.link.both_h2d = 30e9;
  p.link.both_d2h = 20e9;
  p.host.memory = 100e9;
  p.host.gather_thread = 4e9;
  p.memory.bandwidth = 4e12;
  p.memory.bytes = 80e9;
  p.host.bytes = 100e9;
  p.device.sms = 100;
  p.batch.host_piece = hardware::Curve({256, 1 << 20}, {1e-6, 1e-6});
  p.batch.engine_piece = hardware::Curve({256, 1 << 20}, {1e-6, 1e-6});
  p.zero_copy.rate =
      hardware::Surface({1024, 1 << 20}, {1, 10, 100}, {5e9, 50e9, 50e9, 5e9, 50e9, 50e9});
  p.zero_copy.memory_loss = hardware::Curve({1, 100}, {1, 1});
  for (std::string_view kind : hardware::KernelKinds()) {
    hardware::KernelFit fit;
    fit.bandwidth = 4e12;
    fit.max_bytes = 1e15;
    p.kernels[std::string(kind)] = fit;
  }
  return p;
}

}  // namespace stallcast::sim
