// What an op is for within its method.
#pragma once

#include <cstdint>

namespace stallcast::plan {

/// Where a method has ops of one kind for several ends, each of them says for which, so that an
/// executor need not guess it from role and order. PlanBuilder::For() gives it.
enum class Purpose : uint8_t {
  kOnly,  ///< the method has this kind of op for one end only

  // The host learns
  kReadFlags,   ///< whether queries have drifted
  kReadCount,   ///< how many there are: of units taken, of tokens, of pages missed
  kReadMissed,  ///< what is to be recalled

  // Units that are complete, or a prompt's
  kPackFilled,       ///< are laid out as the pool has them
  kSummarizeFilled,  ///< get their summaries
  kOffloadFilled,    ///< go to the pool
  kKeepPrompt,       ///< those that stay on the GPU go to their places
  kKeepLandmarks,    ///< what stands for those that do not stay moves together (ShadowKV)

  // A selection
  kChooseUnits,
  kListAttended,    ///< lists the pages that attention reads (WG-KV)
  kChooseOutliers,  ///< units that stay on the GPU (ShadowKV)

  // A recall
  kBringRecalled,  ///< brings units or tokens from the host
  kPlaceRecalled,  ///< puts them from a buffer to their places

  // Tokens of a sequence get a new order (PRKV)
  kFetchSequence,
  kChooseStatic,  ///< which come first
  kReorder,
  kSummarizeReordered,
  kWriteReordered,
  kKeepReordered,  ///< those that stay on the GPU go to their places

  // A selection in passes, as a framework's operators do it (LouisKV)
  kPassSoftmax,
  kPassMean,
  kPassSort,
  kPassSizes,
  kPassRunningSum,
  kPassFit,
  kPassList,

  // An eviction (WG-KV)
  kChooseEvicted,
  kDropEvicted,
  kSummarizeKept,
};

}  // namespace stallcast::plan
