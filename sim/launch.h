// How this process was started: alone, or by mpirun together with others.
#pragma once

namespace stallcast::sim {

struct Launch {
  int rank = 0, size = 1;
};
/// By the environment that mpirun gives its processes (Open MPI's, MPICH's).
Launch LaunchOf();

}  // namespace stallcast::sim
