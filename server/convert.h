// Proto <-> engine: the only place that knows both, and that maps Status to gRPC.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "lookback/v1/control.pb.h"
#include "lookback/v1/inference.pb.h"

namespace lookback::server {

struct ServerOptions;

grpc::Status ToGrpcStatus(const Status& status);

/// Parses `bytes` strictly: a malformed message, invalid UTF-8 in a string or a field that this
/// version does not know is InvalidArgument. (gRPC's own parsing would answer INTERNAL, and nothing
/// would tell the client that a newer field of its request was ignored.)
Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

/// Serializes into one slice.
grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message);

/// What identifies the served model in answers.
struct ModelIdentity {
  std::string name;
  std::string model_hash;
  std::string window_table_hash;
  std::string window_source;
};
ModelIdentity IdentityOf(const LoadedModel& model, std::string name);

/// What a request means to the engine, and how to word the answer.
struct Generation {
  GenerateRequest request;
  std::string echo_text;  ///< to put before the first text of every choice; "" without echo
  bool echo = false;
};

/// Everything that needs the tokenizer and the served name is checked here; numbers are left to
/// Engine::Resolve. NotFound: another model's name; FailedPrecondition: text without a tokenizer.
Result<Generation> FromProto(const v1::GenerateRequest& request, const LoadedModel& model,
                             const std::string& served_name, const Limits& limits);
/// Scoring is a generation of no tokens that asks for the prompt's log-probabilities.
Result<Generation> FromProto(const v1::ScoreRequest& request, const LoadedModel& model,
                             const std::string& served_name, const Limits& limits);
Result<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request, const LoadedModel& model,
                                      const std::string& served_name, const Limits& limits);
Result<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request,
                                          const LoadedModel& model, const std::string& served_name,
                                          const Limits& limits);

/// Names of the fields in GenerateRequest's errors are the engine's (`prompt_ids`); for a request
/// that came as text or token_ids the client's own field is named instead.
Status NamePromptField(Status status, bool from_text);

v1::ServerInfo ServerInfoToProto(const Engine& engine, const ServerOptions& options,
                                 const ModelIdentity& identity, double uptime_seconds);
v1::ModelInfo ModelInfoToProto(const LoadedModel& model, const ModelIdentity& identity);
v1::Windows WindowsToProto(const LoadedModel& model, const Engine& engine,
                           const ModelIdentity& identity);
v1::Load LoadToProto(const EngineLoad& load, const EngineCounters& counters);
v1::MemoryReport MemoryToProto(const MemoryReport& memory);

/// The steady-clock form of a gRPC deadline; nothing for "never".
std::optional<std::chrono::steady_clock::time_point> ToSteady(
    std::chrono::system_clock::time_point deadline);

}  // namespace lookback::server
