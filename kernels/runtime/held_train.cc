#include "kernels/runtime/held_train.h"

#include "kernels/runtime/probe.h"

namespace stallcast::kernels {

HeldTrain::HeldTrain() : flag_(1, Memory::kPinned) { *Flag() = 1; }

HeldTrain::~HeldTrain() {
  *Flag() = 1;
  cudaDeviceSynchronize();
}

void HeldTrain::Hold(cudaStream_t stream) {
  *Flag() = 0;
  HoldUntil(flag_.get(), stream);
}

bool HeldTrain::Release() {
  // What has run in the meantime was not timed as it was meant to be.
  if (*Flag() == kHeldTooLong) return false;
  *Flag() = 1;
  return true;
}

}  // namespace stallcast::kernels
