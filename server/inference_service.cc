#include "server/inference_service.h"

#include <exception>
#include <memory>

#include "server/calls.h"
#include "server/unary.h"

namespace lookback::server {
namespace {

template <typename Request>
Status ParseAndSubmit(ServingState& state, const grpc::ByteBuffer& bytes, GenerationCall& call) {
  try {
    Request request;
    LOOKBACK_RETURN_IF_ERROR(ParseMessage(bytes, request));
    LOOKBACK_RETURN_IF_ERROR(state.CheckNotDraining());
    LOOKBACK_ASSIGN_OR_RETURN(
        Generation generation,
        FromProto(request, *state.model, state.identity.name, state.engine->options().limits));
    return call.Submit(std::move(generation), request.has_text());
  } catch (const std::exception& error) {  // out of memory
    return {StatusCode::kResourceExhausted, error.what()};
  }
}

/// Starts `call` from the request's bytes, or ends it with what is wrong with them.
template <typename Request, typename Call>
Call* Start(ServingState& state, const grpc::ByteBuffer& bytes, const std::shared_ptr<Call>& call) {
  HoldUntilDone(call);
  const Status status = ParseAndSubmit<Request>(state, bytes, *call);
  if (!status.ok()) call->Fail(status);
  return call.get();
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  const auto finish = [](v1::GenerateResponse whole, std::vector<int32_t> /*prompt*/) {
    return SerializeMessage(whole);
  };
  return Start<v1::GenerateRequest>(
      state_, *request,
      std::make_shared<GatherCall>(state_, *context, "Generate", *response, finish));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::GenerateStream(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return Start<v1::GenerateRequest>(
      state_, *request, std::make_shared<StreamCall>(state_, *context, "GenerateStream"));
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  const auto finish = [](v1::GenerateResponse whole, std::vector<int32_t> prompt) {
    return SerializeMessage(ToScoreResponse(std::move(whole), std::move(prompt)));
  };
  return Start<v1::ScoreRequest>(
      state_, *request, std::make_shared<GatherCall>(state_, *context, "Score", *response, finish));
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Answer<v1::TokenizeRequest>(
      context, request, response,
      [this](const v1::TokenizeRequest& parsed) -> Result<v1::TokenizeResponse> {
        LOOKBACK_RETURN_IF_ERROR(state_.CheckNotDraining());
        return server::Tokenize(parsed, *state_.model, state_.identity.name,
                                state_.engine->options().limits);
      });
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return Answer<v1::DetokenizeRequest>(
      context, request, response,
      [this](const v1::DetokenizeRequest& parsed) -> Result<v1::DetokenizeResponse> {
        LOOKBACK_RETURN_IF_ERROR(state_.CheckNotDraining());
        return server::Detokenize(parsed, *state_.model, state_.identity.name,
                                  state_.engine->options().limits);
      });
}

}  // namespace lookback::server
