#include "kernels/executor/methods/prkv_order.h"

#include <algorithm>

#include "kernels/methods/restructure.h"
#include "kernels/runtime/upload.h"
#include "kernels/selection/selection.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;

}  // namespace

Observation::Observation(const methods::PrkvParams& params, const TraceTensors& trace,
                         int64_t context)
    : tokens(params.regions().SelectableEnd(context) * params.page),
      first(std::max(tokens, trace.first_query_token())),
      end(std::max(context, first + 1)) {}

PrkvOrder::PrkvOrder(const DecodeRun& run, const methods::PrkvParams& params)
    : run_(run), params_(params), tokens_(run.trace->Kv(0).tokens) {}

SequenceKv PrkvOrder::Source(int layer, int sequence, int64_t static_pages) {
  // Restructurings of the trace's steps before the run's first.
  const int64_t begun = run_.TraceStep(0, sequence);
  const int64_t restructured = begun > 0 ? (begun - 1) / params_.update : 0;
  const auto& data = After(run_.source_of[static_cast<size_t>(layer)], restructured, static_pages);
  const int32_t heads = run_.trace->kv_heads();
  return {data.get(), data.get() + data.size() / 2, heads, tokens_};
}

PageRuns PrkvOrder::Runs(const Buffer<Bf16>& data) const {
  const int64_t dim = run_.head_dim(), plane = data.size() / 2;
  const PagedKv all{data.get(),
                    2 * plane,
                    plane,
                    dim,
                    tokens_ * dim,
                    static_cast<int32_t>(tokens_),
                    run_.trace->kv_heads(),
                    run_.head_dim()};
  return {all, 1};
}

const Buffer<Bf16>& PrkvOrder::After(int trace_layer, int64_t restructured, int64_t static_pages) {
  const auto known = ordered_.find({trace_layer, restructured});
  if (known != ordered_.end()) return known->second;
  const TraceTensors& trace = *run_.trace;
  const SequenceKv traced = trace.Kv(trace_layer);
  const int64_t plane = traced.heads * tokens_ * run_.head_dim();
  Buffer<Bf16> before(2 * plane), after(2 * plane);
  const auto copy = [](Bf16* to, const Bf16* from, int64_t count) {
    Check(cudaMemcpy(to, from, static_cast<size_t>(count) * sizeof(Bf16), cudaMemcpyDeviceToDevice),
          "cudaMemcpy");
  };
  if (restructured == 0) {
    copy(before.get(), traced.keys, plane);
    copy(before.get() + plane, traced.values, plane);
  } else {
    copy(before.get(), After(trace_layer, restructured - 1, static_pages).get(), 2 * plane);
  }
  copy(after.get(), before.get(), 2 * plane);

  const int64_t prompt = run_.input.prompt_tokens;
  const Observation observed(
      params_, trace, restructured == 0 ? prompt : prompt + restructured * params_.update + 1);
  const auto count = static_cast<int32_t>(static_pages * params_.page);
  if (count > 0) {
    std::vector<Bf16> queries;
    for (int64_t token = observed.first; token < observed.end; ++token) {
      for (int head = 0; head < trace.kv_heads() * run_.group(); ++head) {
        const Bf16* query = trace.Query(trace_layer, trace.QueryHeadFor(head, run_.group()), token);
        queries.insert(queries.end(), query, query + run_.head_dim());
      }
    }
    const Buffer<Bf16> device_queries = Uploaded(queries);
    const int32_t rows = trace.kv_heads(), tokens = static_cast<int32_t>(observed.tokens);
    const Buffer<float> scores(int64_t{rows} * tokens);
    const ObservationScoreArgs args{.keys = Runs(before),
                                    .rows = rows,
                                    .tokens = tokens,
                                    .query = device_queries.get(),
                                    .queries = observed.queries(),
                                    .group = run_.group(),
                                    .scale = trace.softmax_scale(),
                                    .scores = scores.get()};
    const Buffer<char> workspace(ObservationScoreWorkspace(args));
    ObservationScore(args, workspace.get(), nullptr);
    const Buffer<int32_t> first(int64_t{rows} * count);
    const Buffer<char> top_k(std::max<int64_t>(1, TopKWorkspace(rows, tokens, count)));
    TopK(scores.get(), rows, tokens, count, first.get(), top_k.get(), nullptr);
    Restructure(Runs(before), Runs(after), first.get(), count, rows, tokens, nullptr);
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  return ordered_.emplace(std::pair{trace_layer, restructured}, std::move(after)).first->second;
}

}  // namespace stallcast::kernels
