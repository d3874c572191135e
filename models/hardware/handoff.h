// What passes between an op and the one that follows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace stallcast::hardware {

/// Where an op runs.
enum class Site : uint8_t { kKernel, kH2D, kD2H, kHost };
inline constexpr std::array<std::string_view, 4> kSiteNames = {"kernel", "h2d", "d2h", "host"};
/// How the next one follows: in one stream, behind an event or a host's wait, as a node of a CUDA
/// graph.
enum class How : uint8_t { kStream, kEvent, kGraph };
inline constexpr std::array<std::string_view, 3> kHowNames = {"stream", "event", "graph"};

/// Times from the end of an op to the start of the next, by where both run and how the second
/// follows. In a stream from the host: from a call's return to the start on an idle stream.
template <class T>
class HandoffTable {
 public:
  T& operator()(Site from, Site to, How how) { return times_[Index(from, to, how)]; }
  const T& operator()(Site from, Site to, How how) const { return times_[Index(from, to, how)]; }

  /// Whether there is such a hand-off. All nodes of a graph follow one another as its kernels do.
  static constexpr bool Has(Site from, Site to, How how) {
    if (how == How::kGraph) return from == Site::kKernel && to == Site::kKernel;
    if (from == Site::kHost) return (to == Site::kHost) == (how == How::kEvent);
    return to != Site::kHost || how == How::kEvent;
  }

  /// From each of some sites to each of others; returns the time.
  T Set(std::initializer_list<Site> from, std::initializer_list<Site> to, How how, T time) {
    for (const Site a : from) {
      for (const Site b : to) (*this)(a, b, how) = time;
    }
    return time;
  }
  // Groups that take the same time where nothing tells them apart.
  T SetCopyGap(T time) {
    Set({Site::kKernel}, {Site::kH2D, Site::kD2H}, How::kStream, time);
    return Set({Site::kH2D, Site::kD2H}, {Site::kKernel}, How::kStream, time);
  }
  T SetCopyLaunch(T time) {
    return Set({Site::kHost}, {Site::kH2D, Site::kD2H}, How::kStream, time);
  }
  T SetHostSync(T time) {
    return Set({Site::kKernel, Site::kH2D, Site::kD2H}, {Site::kHost}, How::kEvent, time);
  }
  /// Between kernels, and between copies.
  T SetEvent(T time) {
    Set({Site::kH2D, Site::kD2H}, {Site::kH2D, Site::kD2H}, How::kEvent, time);
    return (*this)(Site::kKernel, Site::kKernel, How::kEvent) = time;
  }
  T SetEventToCopy(T time) {
    return Set({Site::kKernel}, {Site::kH2D, Site::kD2H}, How::kEvent, time);
  }
  T SetEventFromCopy(T time) {
    return Set({Site::kH2D, Site::kD2H}, {Site::kKernel}, How::kEvent, time);
  }

 private:
  static constexpr size_t Index(Site from, Site to, How how) {
    return (static_cast<size_t>(how) * kSiteNames.size() + static_cast<size_t>(from)) *
               kSiteNames.size() +
           static_cast<size_t>(to);
  }
  std::array<T, kSiteNames.size() * kSiteNames.size() * kHowNames.size()> times_{};
};

}  // namespace stallcast::hardware
