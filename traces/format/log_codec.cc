#include "traces/format/log_codec.h"

#include <fmt/format.h>

#include <algorithm>

namespace stallcast::traces::format {
namespace {

// Messages are closed at about this size, well below what a reader accepts.
constexpr int64_t kTargetBytes = int64_t{4} << 20;

proto::AccessLog::SetsOf ToProto(SetsOf sets_of) {
  switch (sets_of) {
    case SetsOf::kLayer:
      return proto::AccessLog::LAYER;
    case SetsOf::kKvHead:
      return proto::AccessLog::KV_HEAD;
    case SetsOf::kQueryHead:
      return proto::AccessLog::QUERY_HEAD;
  }
  return proto::AccessLog::UNSAID;
}

// Of a log that does not say, as far as its heads tell.
SetsOf Guess(const AccessLog& log) {
  for (const LayerAccess& layer : log.layers) {
    if (layer.dense) continue;
    if (layer.heads == 1) return SetsOf::kLayer;
    if (layer.heads == log.query_heads && layer.heads != log.kv_heads) return SetsOf::kQueryHead;
    break;
  }
  return SetsOf::kKvHead;
}

proto::AccessLog Header(const AccessLog& log, uint32_t id) {
  proto::AccessLog message;
  message.set_id(id);
  message.set_method(log.method);
  message.mutable_params()->insert(log.params.begin(), log.params.end());
  message.set_trace_hash(log.trace_hash);
  message.set_unit(log.unit);
  message.set_unit_tokens(log.unit_tokens);
  message.set_prompt_tokens(log.prompt_tokens);
  message.set_steps(log.steps);
  message.set_kv_heads(log.kv_heads);
  message.set_query_heads(log.query_heads);
  message.set_model_layers(log.model_layers);
  message.set_sets_of(ToProto(log.sets_of));
  message.set_layer_count(static_cast<int32_t>(log.layers.size()));
  return message;
}

bool SameHeader(const AccessLog& log, int64_t layer_count, const proto::AccessLog& message) {
  return log.method == message.method() &&
         std::ssize(log.params) == static_cast<int64_t>(message.params().size()) &&
         std::all_of(log.params.begin(), log.params.end(),
                     [&](const auto& param) {
                       const auto found = message.params().find(param.first);
                       return found != message.params().end() && found->second == param.second;
                     }) &&
         log.trace_hash == message.trace_hash() && log.unit == message.unit() &&
         log.unit_tokens == message.unit_tokens() && log.prompt_tokens == message.prompt_tokens() &&
         log.steps == message.steps() && log.kv_heads == message.kv_heads() &&
         log.query_heads == message.query_heads() && log.model_layers == message.model_layers() &&
         layer_count == message.layer_count();
}

// About the bytes that it adds to the message.
int64_t AppendCells(const IdLists& lists, int64_t begin, int64_t end, proto::IdLists* message) {
  if (lists.size() == 0) return 0;
  int64_t bytes = 0;
  for (int64_t cell = begin; cell < end; ++cell) {
    const std::span<const uint32_t> ids = lists[cell];
    message->add_counts(static_cast<uint32_t>(ids.size()));
    uint32_t previous = 0;
    for (uint32_t id : ids) {
      message->add_id_deltas(static_cast<int32_t>(id - previous));
      previous = id;
    }
    bytes += 2 + 2 * std::ssize(ids);
  }
  return bytes;
}

template <typename Column, typename Field>
void AppendColumn(const Column& column, int64_t begin, int64_t end, Field* field) {
  if (!column.empty()) field->Add(column.begin() + begin, column.begin() + end);
}

int64_t AppendStep(const LayerAccess& layer, int32_t step, proto::LayerAccess* message) {
  const int64_t begin = int64_t{step} * layer.heads;
  const int64_t end = begin + layer.heads;
  message->set_steps(message->steps() + 1);
  if (!layer.flags.empty()) {
    message->mutable_flags()->append(layer.flags.begin() + begin, layer.flags.begin() + end);
  }
  AppendColumn(layer.similarity, begin, end, message->mutable_similarity());
  AppendColumn(layer.attended_tokens, begin, end, message->mutable_attended_tokens());
  AppendColumn(layer.evicted, begin, end, message->mutable_evicted());
  AppendColumn(layer.cached_tokens, begin, end, message->mutable_cached_tokens());
  AppendColumn(layer.attention_mass, step, step + 1, message->mutable_attention_mass());
  AppendColumn(layer.output_error, step, step + 1, message->mutable_output_error());
  return 12 + 10 * layer.heads +
         AppendCells(layer.selected, begin, end, message->mutable_selected()) +
         AppendCells(layer.recalled_now, begin, end, message->mutable_recalled_now()) +
         AppendCells(layer.recalled_ahead, begin, end, message->mutable_recalled_ahead());
}

std::string ListsFault(const proto::IdLists& lists, int64_t cells) {
  if (lists.counts_size() != 0 && lists.counts_size() != cells) return "a list a cell is missing";
  int64_t ids = 0;
  for (uint32_t count : lists.counts()) ids += count;
  return ids == lists.id_deltas_size() ? "" : "lists and ids differ in number";
}

std::string PieceFault(const proto::LayerAccess& piece, int64_t log_steps) {
  if (piece.heads() < 0 || piece.steps() < 0 || piece.first_step() < 0 ||
      int64_t{piece.first_step()} + piece.steps() > log_steps) {
    return "its steps or heads are out of range";
  }
  const int64_t cells = int64_t{piece.steps()} * piece.heads();
  const auto wrong = [](int64_t size, int64_t want) { return size != 0 && size != want; };
  if (wrong(std::ssize(piece.flags()), cells) || wrong(piece.similarity_size(), cells) ||
      wrong(piece.attended_tokens_size(), cells) || wrong(piece.evicted_size(), cells) ||
      wrong(piece.cached_tokens_size(), cells) || wrong(piece.output_error_size(), piece.steps()) ||
      wrong(piece.attention_mass_size(), piece.steps())) {
    return "a column holds neither one entry a cell nor none";
  }
  for (const proto::IdLists* lists :
       {&piece.selected(), &piece.recalled_now(), &piece.recalled_ahead()}) {
    if (std::string fault = ListsFault(*lists, cells); !fault.empty()) return fault;
  }
  return "";
}

void AppendLists(const proto::IdLists& message, IdLists* lists) {
  std::vector<uint32_t> ids;
  int next = 0;
  for (uint32_t count : message.counts()) {
    ids.clear();
    uint32_t id = 0;
    for (uint32_t i = 0; i < count; ++i) {
      id += static_cast<uint32_t>(message.id_deltas(next++));
      ids.push_back(id);
    }
    lists->Append(ids);
  }
}

template <typename Field, typename Column>
void AppendField(const Field& field, Column* column) {
  column->insert(column->end(), field.begin(), field.end());
}

void AppendPiece(const proto::LayerAccess& piece, LayerAccess* layer) {
  AppendField(piece.flags(), &layer->flags);
  AppendField(piece.similarity(), &layer->similarity);
  AppendField(piece.attended_tokens(), &layer->attended_tokens);
  AppendField(piece.evicted(), &layer->evicted);
  AppendField(piece.cached_tokens(), &layer->cached_tokens);
  AppendField(piece.attention_mass(), &layer->attention_mass);
  AppendField(piece.output_error(), &layer->output_error);
  AppendLists(piece.selected(), &layer->selected);
  AppendLists(piece.recalled_now(), &layer->recalled_now);
  AppendLists(piece.recalled_ahead(), &layer->recalled_ahead);
}

}  // namespace

void EncodeAccessLog(const AccessLog& log, uint32_t id,
                     const std::function<void(const proto::AccessLog&, int64_t cells)>& emit) {
  const proto::AccessLog header = Header(log, id);
  proto::AccessLog message = header;
  int64_t bytes = 0;
  const auto open = [&](const LayerAccess& layer, int32_t first_step) {
    proto::LayerAccess* piece = message.add_layers();
    piece->set_layer(layer.layer);
    piece->set_dense(layer.dense);
    piece->set_heads(layer.heads);
    piece->set_first_step(first_step);
    return piece;
  };
  for (const LayerAccess& layer : log.layers) {
    proto::LayerAccess* piece = open(layer, 0);
    for (int32_t step = 0; step < log.steps; ++step) {
      if (bytes > kTargetBytes) {
        emit(message, CellsIn(message));
        message = header;
        bytes = 0;
        piece = open(layer, step);
      }
      bytes += AppendStep(layer, step, piece);
    }
  }
  emit(message, CellsIn(message));
}

int64_t CellsIn(const proto::AccessLog& message) {
  int64_t cells = 0;
  for (const proto::LayerAccess& piece : message.layers()) {
    cells += std::max({std::ssize(piece.flags()), std::ssize(piece.attended_tokens()),
                       std::ssize(piece.selected().counts())});
  }
  return cells;
}

AccessLogBuilder::AccessLogBuilder(const proto::AccessLog& first)
    : layer_count_(first.layer_count()) {
  log_.method = first.method();
  log_.params.insert(first.params().begin(), first.params().end());
  log_.trace_hash = first.trace_hash();
  log_.unit = first.unit();
  log_.unit_tokens = first.unit_tokens();
  log_.prompt_tokens = first.prompt_tokens();
  log_.steps = first.steps();
  log_.model_layers = first.model_layers();
  log_.kv_heads = first.kv_heads();
  log_.query_heads = first.query_heads();
  switch (first.sets_of()) {
    case proto::AccessLog::LAYER:
      log_.sets_of = SetsOf::kLayer;
      break;
    case proto::AccessLog::KV_HEAD:
      log_.sets_of = SetsOf::kKvHead;
      break;
    case proto::AccessLog::QUERY_HEAD:
      log_.sets_of = SetsOf::kQueryHead;
      break;
    default:
      says_sets_of_ = false;
  }
}

std::string AccessLogBuilder::Add(const proto::AccessLog& message) {
  if (message.steps() < 0) return "negative number of steps";
  if (!SameHeader(log_, layer_count_, message)) return "it is not of the log that it names";
  for (const proto::LayerAccess& piece : message.layers()) {
    if (std::string fault = PieceFault(piece, log_.steps); !fault.empty()) return fault;
  }
  for (const proto::LayerAccess& piece : message.layers()) {
    if (log_.layers.empty() || log_.layers.back().layer != piece.layer()) {
      log_.layers.emplace_back();
      log_.layers.back().layer = piece.layer();
      log_.layers.back().dense = piece.dense();
      log_.layers.back().heads = piece.heads();
      steps_.push_back(0);
    }
    LayerAccess& layer = log_.layers.back();
    // A piece that does not continue its layer leaves the layer short, which Finish() finds.
    if (steps_.back() != piece.first_step() || layer.heads != piece.heads()) continue;
    AppendPiece(piece, &layer);
    steps_.back() += piece.steps();
  }
  return "";
}

AccessLog AccessLogBuilder::Finish(std::vector<std::string>* problems) {
  std::vector<LayerAccess> whole;
  for (size_t i = 0; i < log_.layers.size(); ++i) {
    if (steps_[i] == log_.steps) whole.push_back(std::move(log_.layers[i]));
  }
  log_.layers = std::move(whole);
  if (std::ssize(log_.layers) != layer_count_) {
    problems->push_back(
        fmt::format("access log '{}': {} of {} layers are whole; the others are left out",
                    log_.method, log_.layers.size(), layer_count_));
  }
  if (std::string fault = FirstFault(log_); !fault.empty()) {
    problems->push_back(
        fmt::format("access log '{}': {}; its layers are left out", log_.method, fault));
    log_.layers.clear();
  }
  if (!says_sets_of_) log_.sets_of = Guess(log_);
  return std::move(log_);
}

}  // namespace stallcast::traces::format
