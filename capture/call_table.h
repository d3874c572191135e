// What is known of the latest CUDA calls, by correlation id.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace stallcast::capture {

/// Correlation ids count up from 1, so the last kCalls of them share a ring: constant memory, and a
/// call is found in one step.
class CallTable {
 public:
  static constexpr uint32_t kCalls = uint32_t{1} << 20;

  struct Call {
    uint64_t id = 0;
    uint32_t correlation = 0;
    uint16_t lane = 0;
    bool pushed = false;  ///< `id` is known
    bool called = false;  ///< its own record has come: `lane` is known
  };

  /// The entry of a call, taken from an older call where that had it; null where a later one does.
  Call* At(uint32_t correlation) {
    Call& call = calls_[correlation % kCalls];
    if (call.correlation == correlation) return &call;
    if (IsLater(call.correlation, correlation)) return nullptr;
    call = {};
    call.correlation = correlation;
    return &call;
  }
  /// Null where the call is not known, or not any more.
  const Call* Find(uint32_t correlation) const {
    const Call& call = calls_[correlation % kCalls];
    return call.correlation == correlation && correlation != 0 ? &call : nullptr;
  }
  /// Whether nothing can become known of the call any more.
  bool Forgotten(uint32_t correlation) const {
    return correlation == 0 || IsLater(calls_[correlation % kCalls].correlation, correlation);
  }

 private:
  // The counter may wrap around; 0 marks a free entry.
  static bool IsLater(uint32_t holder, uint32_t correlation) {
    return holder != 0 && static_cast<int32_t>(holder - correlation) > 0;
  }

  // All zeros are empty entries; memory is taken as calls come.
  struct Free {
    void operator()(Call* calls) const { std::free(calls); }
  };
  static std::unique_ptr<Call[], Free> MakeEmpty() {
    auto* calls = static_cast<Call*>(std::calloc(kCalls, sizeof(Call)));
    if (calls == nullptr) throw std::bad_alloc();
    return std::unique_ptr<Call[], Free>(calls);
  }

  std::unique_ptr<Call[], Free> calls_ = MakeEmpty();
};

}  // namespace stallcast::capture
