#include "server/control_service.h"

#include <chrono>

#include "server/unary.h"

namespace lookback::server {

grpc::ServerUnaryReactor* ControlService::GetServerInfo(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Answer<v1::GetServerInfoRequest>(
      context, request, response, [this](const auto&) -> Result<v1::ServerInfo> {
        const std::chrono::duration<double> up = std::chrono::steady_clock::now() - state_.started;
        v1::ServerInfo info =
            ServerInfoToProto(*state_.engine, state_.options, state_.identity, up.count());
        info.set_draining(state_.draining.load());
        return info;
      });
}

grpc::ServerUnaryReactor* ControlService::GetModelInfo(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return Answer<v1::GetModelInfoRequest>(context, request, response,
                                         [this](const auto&) -> Result<v1::ModelInfo> {
                                           return ModelInfoToProto(*state_.model, state_.identity);
                                         });
}

grpc::ServerUnaryReactor* ControlService::GetWindows(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request,
                                                     grpc::ByteBuffer* response) {
  return Answer<v1::GetWindowsRequest>(
      context, request, response, [this](const auto&) -> Result<v1::Windows> {
        return WindowsToProto(*state_.model, *state_.engine, state_.identity);
      });
}

grpc::ServerUnaryReactor* ControlService::GetLoad(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return Answer<v1::GetLoadRequest>(
      context, request, response, [this](const auto&) -> Result<v1::Load> {
        return LoadToProto(state_.engine->load(), state_.engine->counters());
      });
}

grpc::ServerUnaryReactor* ControlService::GetMemoryReport(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request,
                                                          grpc::ByteBuffer* response) {
  return Answer<v1::GetMemoryReportRequest>(context, request, response,
                                            [this](const auto&) -> Result<v1::MemoryReport> {
                                              return MemoryToProto(state_.engine->memory());
                                            });
}

grpc::ServerUnaryReactor* ControlService::Abort(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Answer<v1::AbortRequest>(context, request, response,
                                  [this](const auto& parsed) -> Result<v1::AbortResponse> {
                                    if (parsed.request_id().empty()) {
                                      return Mismatch("request_id", "none", "the id of a request");
                                    }
                                    v1::AbortResponse out;
                                    out.set_found(state_.engine->Abort(parsed.request_id()));
                                    return out;
                                  });
}

grpc::ServerUnaryReactor* ControlService::Drain(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Answer<v1::DrainRequest>(
      context, request, response, [this](const auto& parsed) -> Result<v1::DrainResponse> {
        static constexpr int64_t kDayMs = 86'400'000;
        std::optional<std::chrono::milliseconds> timeout;
        if (parsed.has_timeout_ms()) {
          if (parsed.timeout_ms() < 0 || parsed.timeout_ms() > kDayMs) {
            return Mismatch("timeout_ms", parsed.timeout_ms(), StrCat("0 to ", kDayMs));
          }
          timeout = std::chrono::milliseconds(parsed.timeout_ms());
        }
        const EngineLoad load = state_.engine->load();
        v1::DrainResponse out;
        out.set_running(load.running);
        out.set_waiting(load.waiting);
        state_.request_drain(timeout);
        return out;
      });
}

}  // namespace lookback::server
