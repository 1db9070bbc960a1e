// lookback.v1.Control.
#pragma once

#include <grpcpp/grpcpp.h>

#include "lookback/v1/control.grpc.pb.h"
#include "server/serving_state.h"

namespace lookback::server {

using RawControl = v1::Control::WithRawCallbackMethod_GetServerInfo<
    v1::Control::WithRawCallbackMethod_GetModelInfo<
        v1::Control::WithRawCallbackMethod_GetWindows<v1::Control::WithRawCallbackMethod_GetLoad<
            v1::Control::WithRawCallbackMethod_GetMemoryReport<
                v1::Control::WithRawCallbackMethod_Abort<
                    v1::Control::WithRawCallbackMethod_Drain<v1::Control::Service>>>>>>>;

class ControlService final : public RawControl {
 public:
  /// `state` outlives the service.
  explicit ControlService(ServingState& state) : state_(state) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetWindows(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetMemoryReport(grpc::CallbackServerContext* context,
                                            const grpc::ByteBuffer* request,
                                            grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  ServingState& state_;
};

}  // namespace lookback::server
