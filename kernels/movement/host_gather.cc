#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/movement/movement.h"
#include "kernels/runtime/host_threads.h"

namespace stallcast::kernels {
namespace {

/// Rows from which on one thread's stores pass the caches too: between 256 B, where memcpy was the
/// faster on a Xeon (4.6 against 3.2 GB/s), and 8 KiB, where it was not (6.3 against 7.7).
constexpr int64_t kStreamBytes = 4096;

/// Rows below this are fetched so many ahead: with four threads 256 B came at 17 GB/s instead of
/// 8.2. Larger ones line by line, this far ahead and so on into the next row, whose address the
/// processor's own prefetching cannot know and which takes long to translate in a large pool: with
/// one thread 8 and 16 KiB of 4 GiB came at 10.1 and 11.6 GB/s instead of 8.5 and 10.1 (EPYC).
constexpr int64_t kFetchedBelow = 4096, kAhead = 12, kLine = 64;
static_assert(kStreamBytes >= kFetchedBelow);

/// What a thread takes at once: about as long as waking another, so that those who wake late take
/// less and none waits for them.
constexpr int64_t kChunkBytes = 128 << 10;

/// Stores past the caches: the copy engine reads the result next, not this processor.
void StreamCopy(char* out, const char* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + at)));
  }
}

/// The same of kFetchedBelow bytes or more, fetching the row's lines that far ahead, and the next
/// row's behind them.
void StreamCopyAhead(char* out, const char* row, const char* next, int64_t bytes) {
  const int64_t own = bytes - kFetchedBelow;
  for (int64_t at = 0; at < bytes; at += kLine) {
    _mm_prefetch(at < own ? row + at + kFetchedBelow : next + at - own, _MM_HINT_T0);
    StreamCopy(out + at, row + at, std::min(kLine, bytes - at));
  }
}

/// The rows of listed places, one after the other.
class Rows {
 public:
  Rows(const char* pool, const int64_t* place, const PlaceShape& shape)
      : pool_(pool), place_(place), shape_(shape) {}
  const char* operator*() const {
    return pool_ + *place_ * shape_.row_bytes + row_ * shape_.stride;
  }
  void operator++() {
    if (++row_ < shape_.rows) return;
    row_ = 0;
    ++place_;
  }

 private:
  const char* pool_;
  const int64_t* place_;
  PlaceShape shape_;
  int64_t row_ = 0;
};

/// Into all caches. The hint for data that is read once allows it a single place in each set of the
/// first one, and rows of one KV head, which a list has one after the other, share few sets: four
/// threads then took 0.77 ms for 27,648 rows of 256 B, not 0.42.
void Prefetch(const char* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) _mm_prefetch(row + at, _MM_HINT_T0);
}

/// Gathers the rows of `count` places.
void GatherRows(Rows row, int64_t count, const PlaceShape& shape, bool stream, char* out) {
  const int64_t bytes = shape.row_bytes, rows = count * shape.rows;
  const int64_t fetched = bytes < kFetchedBelow ? rows : 0;
  Rows ahead = row;
  const auto fetch = [&](int64_t i) {
    if (i >= fetched) return;
    Prefetch(*ahead, bytes);
    ++ahead;
  };
  for (int64_t i = 0; i < kAhead; ++i) fetch(i);
  for (int64_t i = 0; i < rows; ++i) {
    fetch(i + kAhead);
    const char* from = *row;
    if (i + 1 < rows) ++row;
    if (stream && bytes >= kFetchedBelow) {
      StreamCopyAhead(out, from, *row, bytes);
    } else if (stream) {
      StreamCopy(out, from, bytes);
    } else {
      std::memcpy(out, from, static_cast<size_t>(bytes));
    }
    out += bytes;
  }
  _mm_sfence();
}

}  // namespace

void HostGather(const void* pool, const int64_t* places, int64_t count, const PlaceShape& shape,
                void* out, int threads) {
  const int64_t chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(shape.bytes(), 1));
  const int64_t chunks = (count + chunk - 1) / chunk;
  const int workers = SharingThreads(threads, chunks);
  // What several threads leave in their caches the copy engine must fetch from each: it then copied
  // 17 to 30 GB/s instead of 53.
  const bool stream = (workers > 1 || shape.row_bytes >= kStreamBytes) &&
                      shape.row_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
  const auto gather = [=](int64_t first, int64_t last) {
    GatherRows(Rows(static_cast<const char*>(pool), places + first, shape), last - first, shape,
               stream, static_cast<char*>(out) + first * shape.bytes());
  };
  if (workers <= 1) return gather(0, count);
  ShareAmongThreads(workers, chunks,
                    [&](int64_t i) { gather(i * chunk, std::min(count, (i + 1) * chunk)); });
}

}  // namespace stallcast::kernels
