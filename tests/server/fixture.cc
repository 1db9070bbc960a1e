#include "tests/server/fixture.h"

#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <stdexcept>

#include "tests/support/support.h"
#include "tools/client_calls.h"
#include "tools/convert/convert.h"

namespace lookback::server::testing {

const std::string& ConvertedDemo() {
  static const lookback::testing::TempDir folder;
  static const std::string path = [] {
    tools::ConvertOptions options;
    options.source = lookback::testing::DemoDir();
    options.out = folder / "demo.safetensors";
    const auto report = tools::Convert(options);
    if (!report.ok()) throw std::runtime_error(report.status().message());
    return options.out;
  }();
  return path;
}

ServerOptions DemoOptions() {
  ServerOptions options;
  options.model_path = ConvertedDemo();
  options.listen = "127.0.0.1:0";
  options.engine.compute = ComputeMode::kExact;
  options.engine.threads = 1;
  options.engine.max_context = 4096;
  options.engine.kv_memory_bytes = int64_t{64} << 20;
  return options;
}

TestServer::TestServer(ServerOptions options) {
  auto server = Server::Start(std::move(options));
  if (!server.ok()) throw std::runtime_error(server.status().message());
  server_ = std::move(server).value();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  channel_ =
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments);
  inference_ = v1::Inference::NewStub(channel_);
  control_ = v1::Control::NewStub(channel_);
}

Gathered Drain(grpc::ClientReader<v1::GenerateResponse>& reader, int64_t choices) {
  Gathered out;
  out.text.resize(static_cast<size_t>(choices));
  out.token_ids.resize(static_cast<size_t>(choices));
  out.finish.resize(static_cast<size_t>(choices));
  v1::GenerateResponse message;
  while (reader.Read(&message)) {
    const auto choice = static_cast<size_t>(message.index());
    out.text.at(choice) += message.text();
    out.token_ids.at(choice).insert(out.token_ids.at(choice).end(), message.token_ids().begin(),
                                    message.token_ids().end());
    if (message.has_finish()) out.finish.at(choice) = message.finish();
    out.messages.push_back(message);
  }
  out.status = reader.Finish();
  return out;
}

Gathered TestServer::Stream(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  return Drain(*inference_->GenerateStream(&context, request), request.has_n() ? request.n() : 1);
}

grpc::Status TestServer::Generate(const v1::GenerateRequest& request,
                                  v1::GenerateResponse* response) {
  grpc::ClientContext context;
  return inference_->Generate(&context, request, response);
}

std::string TestServer::Health(const std::string& service) {
  const auto health = tools::CheckHealth({server_->address(), 10.0}, service);
  return health.ok() ? *health : health.status().message();
}

grpc::Status TestServer::Raw(const std::string& method, const std::string& bytes) {
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  grpc::GenericStub stub(channel_);
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

v1::GenerateRequest LongRequest(int64_t tokens) {
  v1::GenerateRequest request;
  for (const int32_t id : {1, 20, 30, 40}) request.mutable_token_ids()->add_ids(id);
  request.mutable_sampling()->set_temperature(0.0);
  request.set_ignore_eos(true);
  request.set_max_new_tokens(tokens);
  return request;
}

bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace lookback::server::testing
