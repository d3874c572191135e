#include "models/methods/common/host_attention.h"

namespace stallcast::methods {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::OpId;
using plan::Role;

plan::OpId AttendOnHost(DecoderPlan& plan, int layer, const HostPart& part,
                        const std::function<void()>& meanwhile) {
  const llm::Model& m = plan.input.model;
  const int64_t tokens = int64_t{plan.input.batch} * m.queries;
  const int64_t output = tokens * m.query_heads * m.head_dim * llm::kActivationBytes;
  plan.builder.At(layer, Role::kSync);
  const auto send = [&](Bytes bytes) {
    return plan.builder.Run(plan.compute,
                            Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, bytes});
  };
  OpId sent = send(output);
  if (part.sends_new_token) {
    plan.builder.For(plan::Purpose::kOffloadFilled);
    sent = send(tokens * m.KvBytesPerTokenLayer());
  }
  meanwhile();
  plan.builder.At(layer, Role::kSync);
  plan.builder.Run(plan.host, plan::HostSync{}, {sent});
  if (part.search) part.search();
  plan.builder.At(layer, Role::kAttention);
  const OpId attended =
      plan.builder.Run(plan.host, plan::HostAttention{.kv_tokens = part.kv_tokens,
                                                      .sequences = plan.input.batch,
                                                      .query_heads = m.query_heads,
                                                      .head_dim = m.head_dim,
                                                      .queries = m.queries,
                                                      .kv_row_bytes = m.KvRowBytes(),
                                                      .group = part.group,
                                                      .threads = part.threads});
  plan.builder.SetRole(Role::kSync);
  const Bytes sums = part.merged ? tokens * m.query_heads * Bytes{sizeof(float)} : 0;
  return plan.builder.Run(
      plan.compute, Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, output + sums}, {attended});
}

plan::OpId MergeWithHost(DecoderPlan& plan, int layer) {
  const llm::Model& m = plan.input.model;
  plan.builder.At(layer, Role::kAttention);
  return plan.builder.Run(
      plan.compute,
      plan::MergeStates{int64_t{plan.input.batch} * m.queries * m.query_heads, m.head_dim});
}

}  // namespace stallcast::methods
