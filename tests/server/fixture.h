// A server in this process over the bundled demo model, and clients for it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lookback/v1/control.grpc.pb.h"
#include "lookback/v1/inference.grpc.pb.h"
#include "server/options.h"
#include "server/server.h"

namespace lookback::server::testing {

/// The demo checkpoint, converted once a process.
const std::string& ConvertedDemo();

/// Options for a small server on a free port: exact, one thread, rotary context of 4096 tokens.
ServerOptions DemoOptions();

/// What a stream said, joined.
struct Gathered {
  grpc::Status status;
  std::vector<v1::GenerateResponse> messages;
  std::vector<std::string> text;                ///< [choice]
  std::vector<std::vector<int32_t>> token_ids;  ///< [choice]
  std::vector<v1::Finish> finish;               ///< [choice]
};

/// A running server with stubs.
class TestServer {
 public:
  explicit TestServer(ServerOptions options = DemoOptions());

  Server& server() { return *server_; }
  Engine& engine() { return server_->engine(); }
  v1::Inference::Stub& inference() { return *inference_; }
  v1::Control::Stub& control() { return *control_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }

  Gathered Stream(const v1::GenerateRequest& request);
  grpc::Status Generate(const v1::GenerateRequest& request, v1::GenerateResponse* response);
  std::string Health(const std::string& service = "lookback.v1.Inference");
  /// The bytes as they are, to `method` ("/lookback.v1.Inference/Generate").
  grpc::Status Raw(const std::string& method, const std::string& bytes);

 private:
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Control::Stub> control_;
};

/// A greedy request over token ids that runs for exactly `tokens` tokens.
v1::GenerateRequest LongRequest(int64_t tokens);

/// Reads `reader` to its end.
Gathered Drain(grpc::ClientReader<v1::GenerateResponse>& reader, int64_t choices = 1);

/// Polls until `condition` holds; false after `timeout`.
bool Eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace lookback::server::testing
