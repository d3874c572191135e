// The workload as a program of its own, to be recorded from outside: gpu_workload [STEPS].
#include <cstdlib>

#include "tests/capture/gpu/workload.h"

int main(int argc, char** argv) {
  stallcast::capture::testing::RunWorkload(argc > 1 ? std::atoi(argv[1]) : 3, {});
  return 5;  // to be passed on
}
