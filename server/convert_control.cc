// The Control half of convert.h.
#include "server/convert.h"
#include "server/options.h"

namespace lookback::server {
namespace {

v1::ServerLimits LimitsToProto(const Limits& limits, const ServerOptions& options) {
  v1::ServerLimits out;
  out.set_max_requests(limits.max_requests);
  out.set_max_queue(limits.max_queue);
  out.set_max_choices(limits.max_choices);
  out.set_max_stops(limits.max_stops);
  out.set_max_stop_bytes(limits.max_stop_bytes);
  out.set_max_stop_token_ids(limits.max_stop_token_ids);
  out.set_max_top_logprobs(limits.max_top_logprobs);
  out.set_max_logit_bias(limits.max_logit_bias);
  out.set_max_prompt_bytes(limits.max_prompt_bytes);
  out.set_max_request_id_bytes(limits.max_request_id_bytes);
  out.set_max_message_bytes(options.max_message_bytes);
  out.set_max_metadata_bytes(options.max_metadata_bytes);
  out.set_max_concurrent_streams(options.max_concurrent_streams);
  return out;
}

/// Sets window and sinks of a HeadWindow or KvHead message; full stays absent.
template <typename Message>
void SetWindow(HeadWindow head, Message& out) {
  if (!head.full()) out.set_window(head.window);
  out.set_sinks(head.sinks);
}

}  // namespace

v1::ServerInfo ServerInfoToProto(const Engine& engine, const ServerOptions& options,
                                 const ModelIdentity& identity, double uptime_seconds) {
  const EngineInfo& info = engine.info();
  const EngineOptions& resolved = engine.options();
  v1::ServerInfo out;
  out.set_version(LOOKBACK_VERSION);
  out.set_model(identity.name);
  out.set_compute(info.compute);
  out.set_kv(info.kv);
  out.set_kernels(info.kernels);
  out.set_threads(info.threads);
  out.set_max_context(info.max_context);
  out.set_block_tokens(info.block_tokens);
  out.set_max_chunk(resolved.max_chunk);
  out.set_max_step_rows(resolved.max_step_rows);
  *out.mutable_limits() = LimitsToProto(resolved.limits, options);
  out.set_uptime_seconds(uptime_seconds);
  out.set_load_ms(info.load_ms);
  out.set_draining(engine.load().draining);
  return out;
}

v1::ModelInfo ModelInfoToProto(const LoadedModel& model, const ModelIdentity& identity) {
  const ModelConfig& config = model.config();
  v1::ModelInfo out;
  out.set_name(identity.name);
  out.set_hash(identity.model_hash);
  v1::ModelConfig& to = *out.mutable_config();
  to.set_family(std::string(FamilyName(config.family)));
  to.set_vocab_size(config.vocab_size);
  to.set_hidden_size(config.hidden_size);
  to.set_layers(config.layers);
  to.set_heads(config.heads);
  to.set_kv_heads(config.kv_heads);
  to.set_head_dim(config.head_dim);
  to.set_ffn_size(config.ffn_size);
  to.set_train_context(config.train_context);
  to.set_residual(std::string(ResidualModeName(config.residual)));
  to.set_routing_heads(config.routing_heads);
  to.set_tied_embeddings(config.tied_embeddings);
  to.set_json(config.ToJson().dump());
  out.set_window_table_hash(identity.window_table_hash);
  out.set_window_source(identity.window_source);
  out.set_acr(config.windows.Acr(config.train_context));
  out.set_tokenizer(model.checkpoint->tokenizer().kind);
  out.set_tokenizer_missing_reason(model.no_tokenizer_reason);
  out.set_has_chat_template(!model.checkpoint->tokenizer().chat_template.empty());
  out.set_source_json(model.checkpoint->source().dump());
  return out;
}

v1::Windows WindowsToProto(const LoadedModel& model, const Engine& engine,
                           const ModelIdentity& identity) {
  const ModelConfig& config = model.config();
  const MemoryReport memory = engine.memory();
  v1::Windows out;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    v1::LayerWindows& to = *out.add_layers();
    for (int64_t head = 0; head < config.heads; ++head) {
      SetWindow(config.windows.at(layer, head), *to.add_heads());
    }
    for (int64_t head = 0; head < config.kv_heads; ++head) {
      v1::KvHead& kv = *to.add_kv_heads();
      SetWindow(config.windows.KvHead(layer, head, config.group()), kv);
      kv.set_held_bytes(
          memory.kv_held_by_head.at(static_cast<size_t>(layer)).at(static_cast<size_t>(head)));
    }
    to.set_acr(config.windows.AcrOfLayer(layer, config.train_context));
  }
  out.set_hash(identity.window_table_hash);
  out.set_source(identity.window_source);
  out.set_train_context(config.train_context);
  out.set_acr(config.windows.Acr(config.train_context));
  out.set_max_context(engine.info().max_context);
  out.set_kv_full_context_bytes(memory.kv_full_context_bytes);
  out.set_kv_full_attention_bytes(memory.kv_full_attention_bytes);
  return out;
}

v1::Load LoadToProto(const EngineLoad& load, const EngineCounters& counters) {
  v1::Load out;
  out.set_running(load.running);
  out.set_waiting(load.waiting);
  out.set_kv_blocks_held(load.kv_blocks_held);
  out.set_kv_blocks_promised(load.kv_blocks_promised);
  out.set_kv_blocks_total(load.kv_blocks_total);
  out.set_draining(load.draining);
  out.set_steps(load.steps);
  out.set_prompt_tokens(counters.prompt_tokens);
  out.set_generated_tokens(counters.generated_tokens);
  out.set_attention_products(counters.attention_products);
  out.set_attention_products_full(counters.attention_products_full);
  if (counters.attention_products_full > 0) {
    out.set_attention_measured_ratio(static_cast<double>(counters.attention_products) /
                                     static_cast<double>(counters.attention_products_full));
  }
  out.set_kv_bytes_read(counters.kv_bytes_read);
  out.set_kv_bytes_read_full(counters.kv_bytes_read_full);
  out.set_weight_bytes_read(counters.weight_bytes_read);
  return out;
}

v1::MemoryReport MemoryToProto(const MemoryReport& memory) {
  v1::MemoryReport out;
  out.set_weight_bytes(memory.weight_bytes);
  out.set_packed_bytes(memory.packed_bytes);
  out.set_workspace_bytes(memory.workspace_bytes);
  out.set_kv_pool_bytes(memory.kv_pool_bytes);
  out.set_kv_held_bytes(memory.kv_held_bytes);
  out.set_kv_cached_bytes(memory.kv_cached_bytes);
  out.set_kv_held_peak_bytes(memory.kv_held_peak_bytes);
  out.set_kv_block_bytes(memory.kv_block_bytes);
  for (const std::vector<int64_t>& layer : memory.kv_held_by_head) {
    out.add_kv_held()->mutable_kv_head_bytes()->Add(layer.begin(), layer.end());
  }
  out.set_kv_full_context_bytes(memory.kv_full_context_bytes);
  out.set_kv_full_attention_bytes(memory.kv_full_attention_bytes);
  return out;
}

}  // namespace lookback::server
