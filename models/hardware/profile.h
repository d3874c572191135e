// A machine as numbers: one TOML file each in this folder. Values come from calibration or, marked
// `derived`, from published figures, never from a run of a method.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/handoff.h"
#include "models/plan/work.h"
#include "traces/common/quantity.h"

namespace stallcast::hardware {

/// Values at sample points, interpolated linearly in log-log; outside, the end value holds.
class Curve {
 public:
  Curve() = default;
  /// `x` ascending and positive, `y` positive, same length.
  Curve(std::vector<double> x, std::vector<double> y);
  bool empty() const { return x_.empty(); }
  double At(double x) const;
  /// The same, but below the first sample in proportion to x: nothing at 0.
  double FromZero(double x) const;
  bool Covers(double x) const;
  const std::vector<double>& x() const { return x_; }
  const std::vector<double>& y() const { return y_; }

 private:
  std::vector<double> x_, y_;
};

/// Values by two sizes, interpolated in log space; outside, those of the ends hold.
class Surface {
 public:
  Surface() = default;
  /// values[i * columns.size() + j] belongs to rows[i], columns[j].
  Surface(std::vector<double> rows, std::vector<double> columns, std::vector<double> values);
  bool empty() const { return values_.empty(); }
  double At(double row, double column) const;
  bool Covers(double row, double column) const;
  /// Where values are rates over a link, a what-if on it. The time of a byte is 1/link on the wire
  /// plus what latency and requests add; only the first changes. Rates near the link scale with it,
  /// latency-bound ones hardly move.
  void Relink(double old_link, double new_link);
  const std::vector<double>& rows() const { return rows_; }
  const std::vector<double>& columns() const { return columns_; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<double> rows_, columns_, values_;
};

/// A kernel that a calibration has timed.
struct KernelPoint {
  plan::KernelShape shape{};
  double seconds = 0;
  double factor = 1;       ///< seconds over what the law gives there
  double host_factor = 1;  ///< its host call over the fit's
  /// s that the products of a layer behind it take longer, all together: what it has written is
  /// written back amid what they read.
  double drag = 0;
};

/// Time of a kernel kind alone on the device. The law
///   fixed + max(device bytes / bandwidth, flops / flops_rate, cache bytes / cache_rate,
///               serial_items * serial)
/// holds everywhere; near timed points it is multiplied by their factors (cost_model.h).
struct KernelFit {
  double fixed_s = 0;
  double bandwidth = 0;                 ///< bytes/s
  double flops_rate = 0;                ///< FLOP/s; 0: never the limit
  double cache_rate = 0;                ///< bytes/s of WorkCounts::cache_read; 0: never the limit
  double serial_s = 0;                  ///< s an item of the longest chain
  double spread = 0;                    ///< relative standard deviation of measured about fitted
  double min_bytes = 0, max_bytes = 0;  ///< range calibrated; outside it a cost is extrapolated
  double host_s = 0;                    ///< host call of each kernel launched; 0: host.launch
  std::vector<KernelPoint> points{};    ///< distinct shapes
  std::string source;
};

/// Copies of background traffic that are under way at most, a direction.
inline constexpr int kBackgroundCopies = 8;
/// Bytes of a host gather that pass at host.gather_first_rate.
inline constexpr double kGatherFirst = 2 << 20;

/// A machine, in base units. Its sections are those of the file; the reference of its values is
/// models/hardware/reference.md, made from their tables (ProfileFields() and so on).
struct Profile {
  std::string name;        ///< "h200"
  std::string title;       ///< "NVIDIA H200, PCIe 5.0 x16"
  std::string status;      ///< "measured", "tables" or "derived"
  std::string base;        ///< profile of what it does not say; empty: it says all
  std::string provenance;  ///< date, driver, command
  std::vector<std::string> notes;

  HandoffTable<double> handoff;  ///< s
  struct Link {
    double h2d = 0, d2h = 0, both_h2d = 0, both_d2h = 0;
  } link;
  struct Copy {
    double h2d_start = 0, d2h_start = 0, row_2d = 0;
    double device_factor = 0, device_loss = 0;
    double inline_below = 0, crowded_piece = 0, group_turn = 0, spread = 0;
    Curve h2d_piece, d2h_piece;  ///< by bytes
    Curve translation;           ///< s a region (plan::kCopyRegion), by bytes of the pool
    Curve h2d_inline_call;       ///< by bytes; none larger goes in its call
    Curve h2d_inline_time;       ///< by bytes
  } copy;
  struct Batch {
    Curve host_piece, engine_piece;  ///< s a piece, by its bytes
  } batch;
  struct ZeroCopy {
    double start = 0, round_ahead = 0, spread = 0;
    Surface rate;       ///< bytes/s, by bytes of a piece and blocks
    Curve translation;  ///< s a region (plan::Regions), by bytes of the pool
    Curve drag;         ///< s, by bytes; KernelPoint::drag of gathers
    Curve memory_loss;  ///< bytes/s, by blocks
  } zero_copy;
  struct Host {
    double launch = 0, copy_call = 0, copy_back_call = 0, batch_call = 0;
    double event_record = 0, stream_wait = 0, op = 0, notify = 0;
    double graph_launch = 0, graph_node = 0;
    double memory = 0, attention = 0, gather_thread = 0, gather_piece = 0;
    double bytes = 0, spread = 0;
    double slower = 1, recorded = 0;       ///< of a run, not of a machine
    Curve woken, handoff_asleep;           ///< s, by s asleep
    Curve gather_rate, gather_first_rate;  ///< bytes/s, by threads
    Curve gather_start, gather_row;        ///< s, by threads
    Curve attention_rate;                  ///< bytes/s, by threads
  } host;
  /// What operators of PyTorch cost the thread that calls them (models/plan/operators.h); 0: not
  /// measured. python3 -m stallcast_capture.host_costs measures them.
  struct PyTorch {
    double view = 0, slice = 0, module_call = 0, cpu_operator = 0;
    double launch = 0, launch_allocating = 0, allocation = 0, zeros = 0, cast = 0, reduce = 0;
    double linear = 0, cat = 0, topk = 0, sort = 0, index_select = 0;
    double sdpa = 0, sdpa_new_length = 0;
    double item = 0, scalar_to_host = 0, index_by_gpu_scalar = 0;
    double stream_context = 0, event_record = 0, event_wait = 0, synchronize = 0;
    double graph_launch = 0, kernel = 0, spread = 0;
    double each = 0;                                 ///< of a run, not of a machine
    Curve copy_pinned, copy_strided, copy_pageable;  ///< s, by bytes; to the GPU
    Curve copy_back_pinned, copy_back_strided, copy_back_pageable;
    Curve gather_row;  ///< s, by threads
    bool measured() const { return launch > 0 && linear > 0; }
  } pytorch;
  /// What each takes more while it is recorded.
  struct Recorder {
    double copy = 0, kernel = 0, op = 0, launch = 0, copy_call = 0, copy_back_call = 0;
    double event_record = 0, stream_wait = 0, sync = 0;
  } recorder;
  struct Device {
    double sms = 0, boost = 0, boost_time = 0;
  } device;
  struct Memory {
    double bandwidth = 0, bytes = 0, drag_most = 0, drag_share = 0;
  } memory;
  struct Gemm {
    double delays_kernel = 0;
  } gemm;
  /// Of a run, not of a machine: what others copy meanwhile.
  struct Background {
    double h2d = 0, d2h = 0, piece = 1 << 20;
  } background;

  std::map<std::string, KernelFit, std::less<>> kernels;    ///< by op-kind name
  std::map<std::string, std::string, std::less<>> sources;  ///< by field path
  std::vector<std::string> overrides;                       ///< as given to Set(), for the output
};

/// A value goes with another that is set, as its power.
struct Scaling {
  std::string_view with;  ///< a path; empty: with none
  int power = 1;
};

/// A scalar of the profile: its path in the file and on the command line, unit and meaning.
struct ProfileField {
  std::string_view path;
  Dimension dimension;
  double& (*of)(Profile&);
  std::string_view help;
  enum class Kind : uint8_t {
    kNeeded,
    kOptional,  ///< 0 where a file does not have it
    kOfRun,     ///< not of the machine: in no file
    kHandoff,   ///< in the file a number of a table
  } kind = Kind::kNeeded;
  Scaling scaled{}, scaled_too{};
  int handoff = -1;  ///< kHandoff: in the order of the table

  double& In(Profile& profile) const;
  double In(const Profile& profile) const { return In(const_cast<Profile&>(profile)); }
  bool in_file() const { return kind != Kind::kOfRun; }
  bool optional() const { return kind == Kind::kOptional; }
};
std::span<const ProfileField> ProfileFields();

/// The same for a value of a kernel's fit: "kernel.gemm." + path.
struct KernelField {
  std::string_view path;
  Dimension dimension;
  double KernelFit::*member;
  std::string_view help;
  bool optional = false;
};
std::span<const KernelField> KernelFields();
/// Names of the op kinds that a KernelFit times: work of a stream that is not a transfer.
std::span<const std::string_view> KernelKinds();

/// The same for a curve: arrays with their units in their keys.
struct CurveField {
  std::string_view path, x_key, y_key;
  double y_per_unit;  ///< units of y_key in a base unit
  Curve& (*of)(Profile&);
  std::string_view help;
  bool optional = false;
  Scaling scaled{}, scaled_too{};

  Curve& In(Profile& profile) const { return of(profile); }
  const Curve& In(const Profile& profile) const { return of(const_cast<Profile&>(profile)); }
};
std::span<const CurveField> CurveFields();
/// And for a table by two sizes.
struct SurfaceField {
  std::string_view path, row_key, column_key, value_key;
  double value_per_unit;
  Surface& (*of)(Profile&);
  std::string_view help;

  Surface& In(Profile& profile) const { return of(profile); }
  const Surface& In(const Profile& profile) const { return of(const_cast<Profile&>(profile)); }
};
std::span<const SurfaceField> SurfaceFields();

/// The page that lists all of them (models/hardware/reference.md), in Markdown.
std::string ProfileReference();

/// Profile values that make no sense alone or together are an Error: a time over a second, a rate
/// under 1 MB/s, a both-ways rate above the one-way rate, a missing kernel kind. `where` names the
/// file or option.
void Check(const Profile& profile, std::string_view where);

/// Reads a profile. Unknown keys, missing keys, wrong units are Errors naming file, line and
/// remedy.
Profile LoadProfile(const std::filesystem::path& path);
/// The file of the profile called `name`: in the folders of the environment variable
/// STALLCAST_PROFILES (separated by ':'), then among the shipped ones; a path that ends in .toml is
/// itself. Unknown: usage Error listing all.
std::filesystem::path ProfilePath(std::string_view name);
/// Reads that file.
Profile FindProfile(std::string_view name);
/// Names that FindProfile() knows, sorted.
std::vector<std::string> ProfileNames();
/// Writes a file that LoadProfile() reads back to the same values, to five significant digits.
void SaveProfile(const Profile& profile, const std::filesystem::path& path);

/// Overrides one value: "link.h2d", "128GB/s", "kernel.gemm.fixed" likewise, and scales those that
/// go with it: a field's `scaled`, zero-copy rates with the link (Surface::Relink), kernels'
/// bandwidths with the memory's and their calls with host.launch. Errors are usage Errors
/// and name the nearest valid path; `profile` is then as before.
void Set(Profile& profile, std::string_view path, std::string_view value);

}  // namespace stallcast::hardware
