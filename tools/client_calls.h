// One RPC each for the client's subcommands, without stubs in the callers' way.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "engine/json.h"
#include "engine/status.h"
#include "lookback/v1/control.grpc.pb.h"
#include "lookback/v1/inference.grpc.pb.h"

namespace lookback::tools {

/// A server and how long it may take.
struct ClientTarget {
  std::string address;
  double timeout_seconds = 0.0;  ///< of one RPC; 0 = as long as it takes
};

/// A channel, connected if the server answers within a second. Nothing is sent yet.
std::shared_ptr<grpc::Channel> OpenChannel(const ClientTarget& target);

/// Sets the deadline of one RPC.
void SetDeadline(const ClientTarget& target, grpc::ClientContext& context);

/// "CODE: message", with the server's retry hint where it gave one.
Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);

/// Streams a generation; `on_message` sees every element. SIGINT cancels the RPC.
Status StreamGeneration(const ClientTarget& target, const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_message);

/// grpc.health.v1.Health/Check of `service` ("" = the server): "SERVING", "NOT_SERVING", ….
Result<std::string> CheckHealth(const ClientTarget& target, const std::string& service);

/// Every field that is set or has no presence, under its proto name; 64-bit numbers as numbers.
Json MessageToJson(const google::protobuf::Message& message);

/// The same for people: "name: value" lines, messages indented.
std::string MessageToText(const google::protobuf::Message& message, int indent = 0);

}  // namespace lookback::tools
