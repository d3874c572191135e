#include "kernels/executor/methods/louiskv_units.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/selection/selection.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Params = methods::LouisKvParams;

// `rows` copies of `values` to `to` and every `stride` elements further.
void UploadToRows(int32_t* to, int64_t stride, const std::vector<int32_t>& values, int64_t rows) {
  if (values.empty()) return;
  std::vector<int32_t> all;
  for (int64_t row = 0; row < rows; ++row) all.insert(all.end(), values.begin(), values.end());
  const size_t width = values.size() * sizeof(int32_t);
  Check(cudaMemcpy2D(to, static_cast<size_t>(stride) * sizeof(int32_t), all.data(), width, width,
                     static_cast<size_t>(rows), cudaMemcpyHostToDevice),
        "cudaMemcpy2D");
}

}  // namespace

LouisKvUnits::LouisKvUnits(const DecodeRun& run, const Params& params)
    : run_(run),
      params_(params),
      first_layer_(static_cast<int>(params.dense_layers)),
      parts_(params, run.input.prompt_tokens) {
  if (parts_.clustered <= params.capacity()) {
    throw UsageError(fmt::format("a context of {} tokens fits the budget, so nothing is retrieved",
                                 run.input.prompt_tokens),
                     "louiskv", "give a longer context or a smaller budget");
  }
  const int layers = run.input.model.layers;
  for (int layer = first_layer_; layer < layers; ++layer) {
    MakeSchedule(layer, layers_.emplace_back());
    const Layer& of = layers_.back();
    most_ = std::max(most_, static_cast<int32_t>(parts_.clusters + std::ssize(of.segments)));
    const int64_t end = of.segments.empty() ? parts_.sink + parts_.clustered
                                            : of.segments.back().begin + of.segments.back().tokens;
    members_ = std::max(members_, end - parts_.sink);
  }
  zeros_ = Uploaded(std::vector<int32_t>(static_cast<size_t>(run.kv_heads())));
  if (params.units == Params::Units::kPages) {
    for (const bool shared : {false, true}) {
      std::vector<int32_t> slots;
      for (int row = 0; row < run.rows(); ++row) {
        const int64_t prompt = shared ? 0 : row / run.kv_heads() * run.input.prompt_tokens;
        for (int64_t page = 0; page < parts_.clusters; ++page) {
          slots.push_back(static_cast<int32_t>(prompt + parts_.sink + page * params.cluster));
        }
      }
      page_slots_[shared ? 1 : 0] = Uploaded(slots);
    }
  }
  for (int layer = first_layer_; layer < layers; ++layer) {
    FillIndex(layer, layers_[static_cast<size_t>(layer - first_layer_)]);
  }
  choosable_ = StepTable(
      run.input.steps * layers, run.rows(), 1, [&](int index, int64_t row, int64_t) -> int32_t {
        const int step = index / layers, layer = index % layers;
        const int sequence = static_cast<int>(row) / run.kv_heads();
        const bool chooses = layer >= first_layer_ && Retrieves(step, layer, sequence);
        return chooses ? Before(step, layer, sequence) : 0;
      });
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void LouisKvUnits::MakeSchedule(int layer, Layer& of) const {
  if (run_.log == nullptr) return;
  const auto steps = static_cast<int>(run_.TraceStep(run_.input.steps - 1, run_.batch() - 1)) + 1;
  of.local = methods::LocalSteps(params_, run_.input.prompt_tokens, steps, [&](int step) {
    return (run_.log->At(step, layer, 0, 0).flags & traces::kTriggered) != 0;
  });
  int64_t end = parts_.sink + parts_.clustered;
  for (const methods::LocalStep& step : of.local) {
    of.left.push_back(static_cast<int32_t>(of.segments.size()));
    if (step.leaving == 0) continue;
    const auto unit = static_cast<int32_t>(parts_.clusters + std::ssize(of.segments));
    of.segments.push_back({end, step.leaving, unit});
    end += step.leaving;
  }
}

LouisKvUnits::Segment LouisKvUnits::Leaving(int step, int layer, int sequence) const {
  const auto at = static_cast<size_t>(LogStep(step, sequence));
  const Layer& of = Of(layer);
  if (of.local[at].leaving == 0) return {};
  return of.segments[static_cast<size_t>(of.left[at])];
}

int64_t LouisKvUnits::HostEnd(int step, int layer, int sequence) const {
  const Layer& of = Of(layer);
  const int32_t left = Before(step, layer, sequence) - static_cast<int32_t>(parts_.clusters);
  if (left == 0) return parts_.sink + parts_.clustered;
  const Segment& last = of.segments[static_cast<size_t>(left) - 1];
  return last.begin + last.tokens;
}

int64_t LouisKvUnits::LocalTokens(int step, int layer, int sequence) const {
  return Of(layer).local[static_cast<size_t>(LogStep(step, sequence))].tokens;
}

bool LouisKvUnits::Retrieves(int step, int layer, int sequence) const {
  return run_.log != nullptr &&
         (run_.log->At(step, layer, sequence, 0).flags & traces::kSelectedNow) != 0;
}

int32_t LouisKvUnits::Before(int step, int layer, int sequence) const {
  const Layer& of = Of(layer);
  if (of.left.empty()) return static_cast<int32_t>(parts_.clusters);
  return static_cast<int32_t>(parts_.clusters) +
         of.left[static_cast<size_t>(LogStep(step, sequence))];
}

int LouisKvUnits::LastRetrieval(int step, int layer, int sequence) const {
  while (LogStep(step, sequence) >= 0 && !Retrieves(step, layer, sequence)) --step;
  return step;
}

const int32_t* LouisKvUnits::Choosable(int step, int layer) const {
  return choosable_.At(step * run_.input.model.layers + layer);
}

int32_t LouisKvUnits::MostChoosable(int step, int layer) const {
  int32_t most = 0;
  for (int sequence = 0; sequence < run_.batch(); ++sequence) {
    if (Retrieves(step, layer, sequence)) most = std::max(most, Before(step, layer, sequence));
  }
  return most;
}

UnitLists LouisKvUnits::Lists(int layer) const {
  const Layer& of = Of(layer);
  return {of.offsets.get(), of.members.get(), int64_t{most_} + 1, members_};
}

KMeansArgs LouisKvUnits::KMeansOf(int layer, const PageRuns& keys) const {
  return {.keys = keys,
          .rows = run_.rows(),
          .first_token = static_cast<int32_t>(parts_.sink),
          .tokens = static_cast<int32_t>(parts_.clustered),
          .clusters = static_cast<int32_t>(parts_.clusters),
          .iterations = static_cast<int32_t>(params_.iterations),
          .centroids = Centroids(layer),
          .centroid_stride = most_,
          .lists = Lists(layer)};
}

OpWork LouisKvUnits::Cluster(int layer, const PageRuns& keys) {
  const KMeansArgs args = KMeansOf(layer, keys);
  // Layers are clustered one after the other, on one stream.
  const int64_t bytes = KMeansWorkspace(args);
  if (workspace_.size() < bytes) workspace_ = Buffer<char>(bytes);
  return [args, workspace = workspace_.get()](cudaStream_t stream) {
    KMeans(args, workspace, stream);
  };
}

OpWork LouisKvUnits::SummarizePages(int layer, const PageRuns& keys) {
  PagedKv pages = keys.cache;
  pages.slot_stride = pages.token_stride;
  pages.page_tokens = static_cast<int32_t>(params_.cluster);
  const int32_t* slots = page_slots_[keys.sequence_pages == 0 ? 1 : 0].get();
  const auto clusters = static_cast<int32_t>(parts_.clusters);
  const auto rest = static_cast<int32_t>(parts_.clustered % params_.cluster);
  return [this, pages, slots, clusters, rest, centroids = Centroids(layer)](cudaStream_t stream) {
    Summarize(SummaryKind::kMean, pages, slots, clusters, 0, rest == 0 ? clusters : clusters - 1,
              run_.rows(), centroids, most_, stream);
    if (rest == 0) return;
    PagedKv partial = pages;
    partial.page_tokens = rest;
    Summarize(SummaryKind::kMean, partial, slots, clusters, clusters - 1, 1, run_.rows(), centroids,
              most_, stream);
  };
}

OpWork LouisKvUnits::SummarizeSegment(int layer, int sequence, const Segment& segment, PagedKv keys,
                                      int64_t first) const {
  keys.data += first * keys.slot_stride;
  keys.token_stride = keys.slot_stride;
  keys.page_tokens = static_cast<int32_t>(segment.tokens);
  const int64_t row = int64_t{sequence} * run_.kv_heads();
  __nv_bfloat16* to = Centroids(layer) + (row * most_ + segment.unit) * run_.head_dim();
  return [this, keys, to](cudaStream_t stream) {
    Summarize(SummaryKind::kMean, keys, zeros_.get(), 1, 0, 1, run_.kv_heads(), to, most_, stream);
  };
}

void LouisKvUnits::FillIndex(int layer, Layer& of) {
  const int64_t rows = run_.rows();
  of.centroids = Buffer<__nv_bfloat16>(rows * most_ * run_.head_dim());
  of.offsets = Buffer<int32_t>(rows * (most_ + 1));
  of.members = Buffer<int32_t>(rows * members_);
  Zero(of.centroids);

  // Prompts of all sequences are the trace's.
  const SequenceKv source = run_.Source(layer);
  auto* data = const_cast<__nv_bfloat16*>(source.keys);
  const int64_t head = source.tokens * run_.head_dim();
  const PagedKv keys{data,
                     head * source.heads,
                     0,
                     run_.head_dim(),
                     head,
                     static_cast<int32_t>(source.tokens),
                     source.heads,
                     run_.head_dim()};
  const bool pages = params_.units == Params::Units::kPages;
  (pages ? SummarizePages(layer, {keys, 0}) : Cluster(layer, {keys, 0}))(nullptr);

  std::vector<int32_t> offsets, members;
  const auto clustered = static_cast<int32_t>(parts_.clustered);
  const auto sink = static_cast<int32_t>(parts_.sink);
  if (pages) {
    for (int64_t page = 0; page < parts_.clusters; ++page) {
      offsets.push_back(static_cast<int32_t>(page * params_.cluster));
    }
    for (int32_t i = 0; i < clustered; ++i) members.push_back(sink + i);
  }
  const int64_t first_offset = pages ? 0 : parts_.clusters, first_member = pages ? 0 : clustered;
  int32_t at = clustered;
  offsets.push_back(at);
  for (const Segment& segment : of.segments) {
    for (int64_t i = 0; i < segment.tokens; ++i) {
      members.push_back(static_cast<int32_t>(segment.begin + i));
    }
    at += static_cast<int32_t>(segment.tokens);
    offsets.push_back(at);
  }
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  UploadToRows(of.offsets.get() + first_offset, most_ + 1, offsets, rows);
  UploadToRows(of.members.get() + first_member, members_, members, rows);

  // A sequence that begins later in the trace has what left before.
  for (int sequence = 0; sequence < run_.batch() && !of.segments.empty(); ++sequence) {
    const int32_t left = Before(0, layer, sequence) - static_cast<int32_t>(parts_.clusters);
    PagedKv tokens = keys;
    tokens.slot_stride = tokens.token_stride;
    for (int32_t i = 0; i < left; ++i) {
      const Segment& segment = of.segments[static_cast<size_t>(i)];
      SummarizeSegment(layer, sequence, segment, tokens, segment.begin)(nullptr);
    }
  }
}

}  // namespace stallcast::kernels
