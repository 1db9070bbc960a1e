// Methods that answer at once, from one function.
#pragma once

#include <grpcpp/grpcpp.h>

#include <exception>
#include <utility>

#include "engine/status.h"
#include "server/convert.h"

namespace lookback::server {

/// Parses `request`, calls `handle(const Request&) -> Result<Response>` and finishes the call.
template <typename Request, typename Handle>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                 Handle&& handle) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  try {
    Request parsed;
    if (Status status = ParseMessage(*request, parsed); !status.ok()) {
      reactor->Finish(ToGrpcStatus(status));
      return reactor;
    }
    auto result = handle(std::as_const(parsed));
    if (result.ok()) *response = SerializeMessage(*result);
    reactor->Finish(ToGrpcStatus(std::move(result).status()));
  } catch (const std::exception& error) {  // out of memory
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, error.what()});
  }
  return reactor;
}

}  // namespace lookback::server
