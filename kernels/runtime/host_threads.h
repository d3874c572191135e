// Work of the host that several threads share.
#pragma once

#include <cstdint>
#include <functional>

namespace stallcast::kernels {

/// How many threads share `count` pieces where `threads` may: no more than the machine has.
int SharingThreads(int threads, int64_t count);

/// Calls each(i) for all i in [0, count), once, by the calling thread and the others of
/// SharingThreads(). The others may use all cores, wherever the caller is
/// kept. With one thread in the order of i.
void ShareAmongThreads(int threads, int64_t count, const std::function<void(int64_t)>& each);

}  // namespace stallcast::kernels
