// lookback.v1.Inference.
#pragma once

#include <grpcpp/grpcpp.h>

#include "lookback/v1/inference.grpc.pb.h"
#include "server/serving_state.h"

namespace lookback::server {

// Raw methods: we parse ourselves (ParseMessage says why), and the pump serializes.
using RawInference = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_GenerateStream<
        v1::Inference::WithRawCallbackMethod_Score<v1::Inference::WithRawCallbackMethod_Tokenize<
            v1::Inference::WithRawCallbackMethod_Detokenize<v1::Inference::Service>>>>>;

class InferenceService final : public RawInference {
 public:
  /// `state` outlives the service.
  explicit InferenceService(ServingState& state) : state_(state) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  ServingState& state_;
};

}  // namespace lookback::server
