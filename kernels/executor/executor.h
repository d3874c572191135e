// Runs a plan on the GPU. Lanes become streams or host threads, and waits become events. A Binder
// gives each op its work.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "models/plan/plan.h"
#include "traces/common/units.h"

namespace stallcast::kernels {

/// Enqueues an op's work on its stream. A host op (stream null) runs on the calling thread. Called
/// by the op's issuing thread. Empty if the op only waits.
using OpWork = std::function<void(cudaStream_t)>;

/// Gives ops their memory and kernels.
class Binder {
 public:
  virtual ~Binder() = default;
  /// Called once an op, in plan order, before anything runs. An op that it cannot serve: Error.
  virtual OpWork Bind(const plan::Op& op) = 0;
};

/// Is told what runs, by the thread that makes the calls.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void NameStream(cudaStream_t stream, const plan::Lane& lane) = 0;
  virtual void NameThread(const plan::Lane& lane) = 0;
  /// Around an op's calls, or what the host does itself; other threads' calls that come before a
  /// stream op's have been made.
  virtual void Begin(const plan::Op& op, plan::OpId id) = 0;
  virtual void End(const plan::Op& op, plan::OpId id) = 0;
};

struct RunOptions {
  OpObserver* observer = nullptr;  ///< null: nothing is told, and steps are timed undisturbed
  /// Called when a step has ended and the device is idle, with its number.
  std::function<void(int)> after_step;
};

/// A step as it ran.
struct RanStep {
  /// On the device: from the end of the step before (for the first: from the start) to the last end
  /// on the compute lane.
  Picoseconds time{0};
  /// CoreLoad() at its begin or its end, the most of its calling threads.
  double core_load = 0;
};

class Executor {
 public:
  /// `plan` must outlive the executor. Binds every op and, for ops in CUDA graphs, captures them.
  Executor(const plan::Plan& plan, Binder& binder);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Captures the graphs anew and tells whose nodes are made, so that a recorder knows them.
  void Recapture(OpObserver& observer);

  /// Runs the plan from its first op to its last. A plan without steps, a prefill, counts as one.
  /// What a thread throws is thrown here when all threads have stopped.
  std::vector<RanStep> Run(const RunOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::kernels
