#include "kernels/runtime/host_threads.h"

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <thread>

#include "kernels/runtime/host_cores.h"

namespace stallcast::kernels {

int SharingThreads(int threads, int64_t count) {
  return static_cast<int>(
      std::min({int64_t{threads}, count, int64_t{tbb::info::default_concurrency()}}));
}

void ShareAmongThreads(int threads, int64_t count, const std::function<void(int64_t)>& each) {
  const int workers = SharingThreads(threads, count);
  if (workers <= 1) {
    for (int64_t i = 0; i < count; ++i) each(i);
    return;
  }
  tbb::task_arena arena(workers);
  const auto caller = std::this_thread::get_id();
  const auto freed = [&](int64_t i) {
    thread_local bool free = false;  // of the caller's core, where it may have been started
    if (!free && std::this_thread::get_id() != caller) UseAllCores();
    free = true;
    each(i);
  };
  arena.execute([&] { tbb::parallel_for(int64_t{0}, count, freed, tbb::simple_partitioner()); });
}

}  // namespace stallcast::kernels
