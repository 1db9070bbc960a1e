#include "server/convert.h"

#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>

#include "engine/utf8.h"

namespace lookback::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

grpc::StatusCode ToGrpcCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return grpc::StatusCode::OK;
    case StatusCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case StatusCode::kResourceExhausted:
    case StatusCode::kBusy:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case StatusCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case StatusCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case StatusCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::kIo:
    case StatusCode::kInternal:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::UNKNOWN;
}

/// InvalidArgument if `message` or a message inside it carries a field number without a name.
Status RefuseUnknownFields(const Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return Mismatch(message.GetTypeName(), StrCat("field number ", unknown.field(0).number()),
                    "only fields that this version serves");
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) continue;
    if (!field->is_repeated()) {
      LOOKBACK_RETURN_IF_ERROR(RefuseUnknownFields(reflection.GetMessage(message, field)));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      LOOKBACK_RETURN_IF_ERROR(
          RefuseUnknownFields(reflection.GetRepeatedMessage(message, field, i)));
    }
  }
  return {};
}

Status CheckModel(const std::string& model, const std::string& served_name) {
  if (model.empty() || model == served_name) return {};
  return {StatusCode::kNotFound,
          StrCat("model: got ", Quoted(model), ", expected ", Quoted(served_name), " or none")};
}

Result<const Tokenizer*> NeedTokenizer(const LoadedModel& model) {
  if (model.tokenizer != nullptr) return model.tokenizer.get();
  return Status(StatusCode::kFailedPrecondition,
                StrCat("text: this model serves token ids only (", model.no_tokenizer_reason, ")"));
}

Result<std::vector<int32_t>> EncodeText(const std::string& text, const LoadedModel& model,
                                        const Limits& limits, bool special) {
  const auto bytes = static_cast<int64_t>(text.size());
  if (bytes > limits.max_prompt_bytes) {
    return Mismatch("text", StrCat(bytes, " bytes"),
                    StrCat("at most ", limits.max_prompt_bytes, " bytes"));
  }
  LOOKBACK_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, NeedTokenizer(model));
  Result<std::vector<int32_t>> encoded = tokenizer->Encode(text, special);
  if (!encoded.ok()) return std::move(encoded).status().WithPrefix("text");
  std::vector<int32_t> ids = std::move(encoded).value();
  // A text that spells its own BOS (a chat template does) must not get a second one.
  const std::optional<int32_t> bos = model.checkpoint->tokenizer().bos_id;
  if (bos && ids.size() >= 2 && ids[0] == *bos && ids[1] == *bos) ids.erase(ids.begin());
  return ids;
}

/// The prompt's ids from either form, for the two requests that share the oneof.
template <typename Request>
Result<std::vector<int32_t>> PromptIds(const Request& request, const LoadedModel& model,
                                       const Limits& limits) {
  switch (request.prompt_case()) {
    case Request::kText:
      return EncodeText(request.text(), model, limits, /*special=*/true);
    case Request::kTokenIds: {
      const auto& ids = request.token_ids().ids();
      if (ids.empty()) return Mismatch("token_ids", "none", "at least one");
      return std::vector<int32_t>(ids.begin(), ids.end());
    }
    case Request::PROMPT_NOT_SET:
      break;
  }
  return Mismatch("text, token_ids", "neither", "one of them");
}

void ReadSampling(const v1::Sampling& sampling, GenerateRequest& request) {
  if (sampling.has_temperature()) request.temperature = sampling.temperature();
  if (sampling.has_top_k()) request.top_k = sampling.top_k();
  if (sampling.has_top_p()) request.top_p = sampling.top_p();
  if (sampling.has_min_p()) request.min_p = sampling.min_p();
  if (sampling.has_typical_p()) request.typical_p = sampling.typical_p();
  if (sampling.has_seed()) request.seed = sampling.seed();
  if (sampling.has_repetition_penalty()) request.repetition_penalty = sampling.repetition_penalty();
  if (sampling.has_presence_penalty()) request.presence_penalty = sampling.presence_penalty();
  if (sampling.has_frequency_penalty()) request.frequency_penalty = sampling.frequency_penalty();
  for (const auto& [id, bias] : sampling.logit_bias()) request.logit_bias.emplace_back(id, bias);
  // A protobuf map has no order; the engine should see one.
  std::sort(request.logit_bias.begin(), request.logit_bias.end());
}

}  // namespace

grpc::Status ToGrpcStatus(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {ToGrpcCode(status.code()), status.message()};
}

Status ParseMessage(const grpc::ByteBuffer& bytes, Message& message) {
  grpc::ByteBuffer copy(bytes);  // shares the slices: the reader wants a mutable buffer
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) {
    return Mismatch(message.GetTypeName(), "malformed bytes, or a string that is not UTF-8",
                    "a well-formed message");
  }
  return RefuseUnknownFields(message);
}

grpc::ByteBuffer SerializeMessage(const Message& message) {
  grpc::Slice slice(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return {&slice, 1};
}

ModelIdentity IdentityOf(const LoadedModel& model, std::string name) {
  const WindowTable& windows = model.config().windows;
  return {std::move(name), model.checkpoint->hash(), windows.Hash(), windows.source()};
}

Result<Generation> FromProto(const v1::GenerateRequest& request, const LoadedModel& model,
                             const std::string& served_name, const Limits& limits) {
  LOOKBACK_RETURN_IF_ERROR(CheckModel(request.model(), served_name));
  Generation generation;
  GenerateRequest& out = generation.request;
  LOOKBACK_ASSIGN_OR_RETURN(out.prompt_ids, PromptIds(request, model, limits));
  out.request_id = request.request_id();
  if (request.has_sampling()) ReadSampling(request.sampling(), out);
  if (request.has_n()) out.n = request.n();
  if (request.has_max_new_tokens()) out.max_new_tokens = request.max_new_tokens();
  if (request.has_min_new_tokens()) out.min_new_tokens = request.min_new_tokens();
  out.stop.assign(request.stop().begin(), request.stop().end());
  out.stop_token_ids.assign(request.stop_token_ids().begin(), request.stop_token_ids().end());
  out.ignore_eos = request.ignore_eos();
  out.include_stop = request.include_stop();
  out.logprobs = request.logprobs();
  if (request.has_top_logprobs()) out.top_logprobs = request.top_logprobs();
  if (request.has_prompt_logprobs()) out.prompt_logprobs = request.prompt_logprobs();
  generation.echo = request.echo();
  if (request.echo() && request.has_text()) {
    generation.echo_text = request.text();
  } else if (request.echo() && model.tokenizer != nullptr) {
    generation.echo_text = model.tokenizer->Decode(out.prompt_ids, /*skip_special=*/true);
  }
  return generation;
}

Result<Generation> FromProto(const v1::ScoreRequest& request, const LoadedModel& model,
                             const std::string& served_name, const Limits& limits) {
  LOOKBACK_RETURN_IF_ERROR(CheckModel(request.model(), served_name));
  Generation generation;
  GenerateRequest& out = generation.request;
  LOOKBACK_ASSIGN_OR_RETURN(out.prompt_ids, PromptIds(request, model, limits));
  out.request_id = request.request_id();
  out.max_new_tokens = 0;
  // The engine would name its own field.
  const int64_t most = std::min(limits.max_top_logprobs, model.config().vocab_size);
  if (request.top_logprobs() < 0 || request.top_logprobs() > most) {
    return Mismatch("top_logprobs", request.top_logprobs(), StrCat("0 to ", most));
  }
  out.prompt_logprobs = request.top_logprobs();  // unset is 0: the given tokens alone
  return generation;
}

Status NamePromptField(Status status, bool from_text) {
  static constexpr std::string_view kEngineName = "prompt_ids";
  if (status.message().compare(0, kEngineName.size(), kEngineName) != 0) return status;
  return {status.code(), StrCat(from_text ? "text" : "token_ids",
                                std::string_view(status.message()).substr(kEngineName.size()))};
}

Result<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request, const LoadedModel& model,
                                      const std::string& served_name, const Limits& limits) {
  LOOKBACK_RETURN_IF_ERROR(CheckModel(request.model(), served_name));
  const bool special = !request.has_special() || request.special();
  LOOKBACK_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                            EncodeText(request.text(), model, limits, special));
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids.begin(), ids.end());
  for (const int32_t id : ids) {
    const std::string piece = model.tokenizer->Piece(id);
    response.add_pieces(IsValidUtf8(piece) ? piece : std::string(kReplacementCharacter));
  }
  return response;
}

Result<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                          const LoadedModel& model, const std::string& served_name,
                                          const Limits& limits) {
  LOOKBACK_RETURN_IF_ERROR(CheckModel(request.model(), served_name));
  LOOKBACK_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, NeedTokenizer(model));
  const auto& ids = request.token_ids();
  if (ids.size() > limits.max_prompt_bytes) {
    return Mismatch("token_ids", StrCat(ids.size(), " ids"),
                    StrCat("at most ", limits.max_prompt_bytes));
  }
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < tokenizer->vocab_size()) continue;
    return Mismatch(StrCat("token_ids[", i, "]"), ids[i],
                    StrCat("0 to ", tokenizer->vocab_size() - 1));
  }
  v1::DetokenizeResponse response;
  response.set_text(tokenizer->Decode({ids.data(), static_cast<size_t>(ids.size())},
                                      /*skip_special=*/!request.show_special()));
  return response;
}

std::optional<std::chrono::steady_clock::time_point> ToSteady(
    std::chrono::system_clock::time_point deadline) {
  using std::chrono::system_clock;
  // gRPC says "never" with the clock's last point; anything beyond a year may overflow
  // steady_clock's arithmetic and is as good as never.
  static constexpr std::chrono::hours kNever{24 * 366};
  const system_clock::time_point now = system_clock::now();
  if (deadline > now + kNever) return std::nullopt;
  const auto left = std::max(deadline - now, system_clock::duration::zero());
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(left);
}

}  // namespace lookback::server
