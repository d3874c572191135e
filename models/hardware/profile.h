// A machine as numbers: one TOML file each in this folder. Values come from calibration or, marked
// `derived`, from published figures, never from a run of a method.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
/// Bytes of a host gather that pass at host_gather_first_rate.
inline constexpr double kGatherFirst = 2 << 20;

struct Profile {
  std::string name;        ///< "h200"
  std::string title;       ///< "NVIDIA H200, PCIe 5.0 x16"
  std::string status;      ///< "measured" or "derived"
  std::string provenance;  ///< date, driver, command
  std::vector<std::string> notes;

  // Scalars, base units; declared once in ProfileFields().
  double link_h2d = 0, link_d2h = 0;              ///< one direction alone, copy engine
  double link_both_h2d = 0, link_both_d2h = 0;    ///< each while the other runs at full rate
  double copy_h2d_start = 0, copy_d2h_start = 0;  ///< copy engine busy before a copy's first byte
  /// A piece takes longer by this while two other streams have work: the copies of two streams that
  /// kernels follow then no longer pass one another without a break.
  double copy_crowded_piece = 0;
  /// Else a copy, however many its pieces, does by this while another stream of the group
  /// (device_crowded_gap) has a kernel that waits.
  double copy_group_turn = 0;
  double copy_2d_row = 0;         ///< least time of a row of a 2-D copy
  double copy_device_factor = 0;  ///< device-memory capacity that a copied byte takes, in bytes
  /// Capacity that copies of one way take beyond their bytes at most; 0: no limit. Setting a link
  /// gives it what they took at the link's own rate, as mixed reads and writes of any rate lose no
  /// more than a share of the memory's.
  double copy_device_loss = 0;
  /// Batched H2D pieces below this are carried by the call itself, and moved by the front end
  /// (copy_h2d_inline_time) as the GPU is told of them. The copy engine moves larger ones, when the
  /// call has returned.
  double copy_inline_below = 0;
  double copy_spread = 0;       ///< relative standard deviation of copies about the model
  double zero_copy_start = 0;   ///< from kernel start to the first byte, and its tail
  double zero_copy_spread = 0;  ///< relative standard deviation
  double host_launch = 0, host_batch_call = 0;
  /// Of a copy to the GPU among others like it, of a copy to the host behind a kernel.
  double host_copy_call = 0, host_copy_back_call = 0;
  /// What a copy to the GPU takes more behind a kernel of its stream, in both their calls.
  double host_copy_switch = 0;
  double host_event_record = 0, host_stream_wait = 0;
  double host_op = 0;    ///< what issues the ops takes for each, beside its calls
  double host_sync = 0;  ///< from the last op's end to the host going on
  /// The same where that op is a copy; 0: no different.
  double host_sync_copy = 0;
  double host_handoff = 0;  ///< from one host thread's notice to another's going on
  double host_notify = 0;   ///< of the one that gives notice
  /// What a thread's launch or copy takes longer, whatever it takes alone, while another thread
  /// waits in a call for the device.
  double host_beside_call = 0;
  /// A thread's calls take so many times as long while another thread is in a call, and while two
  /// or more others are; the last 0: as beside one.
  double host_contended = 1, host_contended_more = 0;
  double host_graph_launch = 0, host_graph_node = 0;
  /// Calls, hand-overs and gathers of the host take so many times as long as in its file, which
  /// Set() makes them: a slower host, or one that others use. Not part of a machine's file.
  double host_slower = 1;
  /// 1: predicts a run that stallcast-gpu records, whose calls take longer by recorder_*. Not part
  /// of a machine's file.
  double host_recorded = 0;
  /// What passes more between two copies of a stream while they are recorded, and between two
  /// kernels; and what the host spends more: on each op, and on each call.
  double recorder_copy = 0, recorder_kernel = 0;
  double recorder_op = 0, recorder_launch = 0, recorder_copy_call = 0, recorder_copy_back_call = 0;
  double recorder_event_record = 0, recorder_stream_wait = 0, recorder_sync = 0;
  /// What a copy's piece that is recorded, and so has time stamps, waits more for a product.
  double recorder_holds_h2d_piece = 0, recorder_holds_d2h_piece = 0;
  double host_memory = 0, host_gather_thread = 0;  ///< rates
  double host_gather_piece = 0;                    ///< of a gather's thread, beside the bytes
  double device_launch_latency = 0;  ///< from the launch call's return to the start on an idle GPU
  double device_copy_latency = 0;    ///< the same of a copy
  double device_gap = 0;             ///< between dependent kernels of one stream
  /// A kernel behind another of its stream starts later by this while another stream of the group
  /// that the GPU serves together has a kernel that waits for an event or behind copies. Of a
  /// plan's streams those are one group that do not compute.
  double device_crowded_gap = 0;
  double device_copy_gap = 0;  ///< between a kernel and a copy of one stream, either way
  double device_flag_gap = 0;  ///< the same before a copy to the host that a host waits for
  /// Between copies of one stream that go opposite ways, which different engines move: before one
  /// to the host, and before one to the GPU; the latter 0: no different.
  double device_direction_gap = 0, device_direction_gap_h2d = 0;
  /// Why: an engine looks for the end of the copy before at intervals of device_look_period, the
  /// first time when its own copy's commands come. One that has to wait then starts by
  /// device_first_look behind its commands (first_look_h2d: to the GPU), or periods later; the gaps
  /// are the means over all moments at which the copy before can end. Period 0: the gaps alone.
  double device_look_period = 0, device_first_look = 0, device_first_look_h2d = 0;
  double device_event_to_copy = 0;    ///< as device_event_latency, from a kernel to a copy
  double device_event_from_copy = 0;  ///< from a copy to a kernel
  double device_event_latency = 0;    ///< from an op's end to the start of one that waits for it
  double device_event_wait = 0;       ///< a stream loses to each wait, also for what is long done
  double device_event_record = 0;     ///< a stream loses to each event recorded
  double device_graph_gap = 0;        ///< between kernels inside a CUDA graph
  double memory_bandwidth = 0;        ///< large reads
  /// Products that stream through weights take longer behind what others have written (WriteBack),
  /// all together at most so many s, each at most this share of its time.
  double memory_drag_most = 0, memory_drag_share = 0;
  double memory_bytes = 0;  ///< capacity of the GPU
  double host_bytes = 0;    ///< host memory available for the pinned pool
  double host_spread = 0;   ///< relative standard deviation of host work
  double device_sms = 0;    ///< multiprocessors
  double device_boost = 0;  ///< times as fast as later that kernels compute on a GPU that was idle,
  double device_boost_time = 0;  ///< for so many seconds of theirs
  /// What others copy over the link beside the run, bytes/s by direction, in copies of so many
  /// bytes that come at random (BackgroundTicks), at most kBackgroundCopies under way. Not part of
  /// a machine's file: none unless asked for.
  double background_h2d = 0, background_d2h = 0, background_piece = 1 << 20;

  /// Copy engine busy before the first byte, s, by bytes a piece: what a piece takes beyond bytes
  /// over the link's rate. Empty: copy_h2d_start, copy_d2h_start whatever the size.
  Curve copy_h2d_piece, copy_d2h_piece;
  /// The same of copies to the GPU from two streams that take turns, s a copy, by bytes: those of
  /// at most the last x. Larger ones of a stream follow one another until it has no more, as those
  /// of all sizes do where this is empty.
  Curve copy_h2d_turns;
  /// What translating addresses takes a copy to the GPU longer, s, for each region of the host's
  /// memory (plan::kCopyRegion) that none of the layer's pieces before lay in, by bytes of the
  /// layer's pool; the layers' pools are read in turn. Empty: nothing.
  Curve copy_translation;
  Curve batch_host_piece;  ///< host s a piece of a batched copy, by piece bytes
  /// s a piece of a batched copy on the GPU, behind its call, beside what the bytes take on the
  /// link, by piece bytes; of those that the call carries where copy_h2d_inline_time is empty.
  Curve batch_engine_piece;
  /// Host call of a copy to the GPU whose bytes the call itself carries, s, by bytes: one of at
  /// most the last x whose stream has nothing left to do. Empty: none is carried so.
  Curve copy_h2d_inline_call;
  /// What such a copy takes on the GPU, s, by bytes: the front end moves it, and starts no kernel
  /// of any stream meanwhile. Empty: what its bytes take on the link, and kernels start beside it.
  Curve copy_h2d_inline_time;
  /// What the first calls of a woken thread take longer, all together, s, by the seconds that it
  /// has slept. Each takes half of what those before it have left.
  Curve host_woken;
  /// The same of those behind a wait for the device, in which the thread does not sleep, by the
  /// seconds of it. Empty: nothing.
  Curve host_waited;
  /// The same of those behind a gather, which leaves its data in the caches of its thread's core,
  /// by the bytes that it has moved. Empty: nothing.
  Curve host_gathered;
  /// host_handoff to a thread that has slept so many seconds: the longer, the deeper its core is at
  /// rest. Empty: always host_handoff.
  Curve host_handoff_asleep;
  /// What the start of a kernel, or of a copy's piece, takes longer while others use the share x of
  /// the device memory's bandwidth, s. Empty: nothing.
  Curve load_kernel, load_h2d_piece, load_d2h_piece;
  /// Rate of a gather of large pieces by so many threads, bytes/s, and what passes, s, before they
  /// gather at that rate. Empty: threads at host_gather_thread each, that host_handoff wakes.
  Curve host_gather_rate, host_gather_start;
  /// The rate of a gather's first kGatherFirst bytes, where it is another: host memory gives single
  /// recalls more than it keeps up. Empty: host_gather_rate.
  Curve host_gather_first_rate;
  /// What a gather by several threads takes longer, s, by the seconds since the last such gather:
  /// its threads have gone to sleep. Empty: nothing.
  Curve host_gather_woken;
  /// Of a gather of rows of 256 bytes by so many threads: its time over its rows, s, less that of a
  /// row's bytes at host_gather_rate. Empty: host_gather_piece over the threads.
  Curve host_gather_row;
  Surface zero_copy;  ///< zero-copy reads, bytes/s, by bytes of a piece and blocks
  /// What 64 KiB take that a block has on its way (ZeroCopyGather::Rounds) where its threads look
  /// ahead, or look up tokens, and all addresses are known. 0: as long as in zero_copy, whose
  /// threads look up pieces.
  double zero_copy_round_ahead = 0, zero_copy_round_tokens = 0;
  /// Most pieces a second that zero-copy reads bring whose places are scattered over one pool of so
  /// many bytes: each needs its own address translation. Of the largest, it stands for
  /// zero_copy_translation in profiles that do not have that. Empty: no limit.
  Curve zero_copy_scattered;
  /// What translating addresses takes a gather of scattered pieces, s, for each region of the
  /// host's memory that it reads (plan::Regions), by bytes of its layer's pool; the layers' pools
  /// are read in turn. A region's bytes come meanwhile: the longer of both counts. Empty: by
  /// zero_copy_scattered.
  Curve zero_copy_translation;
  /// How much later what a warp has on its way comes, s, where an address of it must be translated,
  /// by the same bytes: what few blocks wait for, round by round. Empty: they wait for each region
  /// as long as zero_copy_translation.
  Curve zero_copy_translation_wait;
  /// Of the regions that a layer's gather read in the step before too, the share whose addresses
  /// are still known, by the regions that a step's gathers read. Empty: none.
  Curve zero_copy_kept;
  /// As KernelPoint::drag, s, by the bytes that a gather brings into device memory; for what
  /// kernels write WriteBack goes by it too. Empty: none.
  Curve zero_copy_drag;
  /// Device bandwidth that others lose (bytes/s) while a gather of so many blocks runs, beyond the
  /// bytes that it writes.
  Curve zero_copy_memory_loss;
  /// Of a link that a gather of so many blocks shares with a copy, the gather's bytes over the
  /// copy's: the more are on their way, the larger its share. Empty: both get the same.
  Curve zero_copy_link_share;
  /// What the start of a kernel, or of a copy's piece, takes longer while zero-copy gathers with so
  /// many blocks keep the link busy, s: what the GPU reads of the host's memory first, its commands
  /// and a copy's bytes, comes behind the gathers' bytes on their way. Nothing inside a
  /// CUDA graph, whose commands lie on the GPU. Empty: nothing.
  Curve zero_copy_holds_kernel, zero_copy_holds_h2d_piece, zero_copy_holds_d2h_piece;
  /// What the start of a kernel that looks up what it reads takes longer while a product that is
  /// bound by memory runs, s: each multiprocessor has its weights on their way, and what others
  /// read of the device's memory comes behind them, read for read. 0: as beside any load.
  double product_holds_kernel = 0;
  /// The same of a copy's piece.
  double product_holds_h2d_piece = 0, product_holds_d2h_piece = 0;
  /// The same of each round of a zero-copy gather (ZeroCopyGather::Rounds), whose blocks look up
  /// where the next pieces lie.
  double product_holds_round = 0;

  std::map<std::string, KernelFit, std::less<>> kernels;    ///< by op-kind name
  std::map<std::string, std::string, std::less<>> sources;  ///< by field path
  std::vector<std::string> overrides;                       ///< as given to Set(), for the output
};

/// A scalar of the profile: its path in the file and on the command line, unit and meaning.
struct ProfileField {
  std::string_view path;
  Dimension dimension;
  double Profile::*member;
  std::string_view help;
  bool in_file = true;    ///< of the machine, not of what it does beside
  bool optional = false;  ///< 0 where a file does not have it
};
std::span<const ProfileField> ProfileFields();

/// The same for a value of a kernel's fit: "kernel.gemm." + path.
struct KernelField {
  std::string_view path;
  Dimension dimension;
  double KernelFit::*member;
  std::string_view help;
};
std::span<const KernelField> KernelFields();
/// Names of the op kinds that a KernelFit times: work of a stream that is not a transfer.
std::span<const std::string_view> KernelKinds();

/// All curves, also those that the profile leaves empty.
std::vector<const Curve*> Curves(const Profile& profile);
std::vector<const Surface*> Surfaces(const Profile& profile);
/// Of all curves and surfaces in a file, which have a source each.
std::vector<std::string_view> CurvePaths();

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
/// Writes a file that LoadProfile() reads back to the same values.
void SaveProfile(const Profile& profile, const std::filesystem::path& path);

/// Overrides one value: "link.h2d", "128GB/s", "kernel.gemm.fixed" likewise. Setting a link rate
/// scales the both-ways rate of that direction by the same factor, link.h2d also the zero-copy
/// rates (Surface::Relink); setting copy.h2d_start or d2h_start scales that direction's curve;
/// setting host.gather_thread scales host.gather_rate and gather_first_rate, host.handoff
/// gather_start, host.gather_piece gather_row, host.contended contended_more; setting
/// memory.bandwidth scales the kernels' bandwidths and the zero-copy loss. Errors are usage Errors
/// and name the nearest valid path; `profile` is then as before.
void Set(Profile& profile, std::string_view path, std::string_view value);

}  // namespace stallcast::hardware
