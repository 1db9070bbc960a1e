#include "tools/client_calls.h"

#include <grpc/support/log.h>
#include <grpcpp/generic/generic_stub.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

namespace lookback::tools {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxMessageBytes = 64 << 20;

const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= 0 && code <= 16 ? kNames[code] : "UNKNOWN";
}

/// While it lives, SIGINT cancels an RPC instead of ending the process: a cancelled call gives its
/// memory on the server back at once.
class CancelOnInterrupt {
 public:
  explicit CancelOnInterrupt(grpc::ClientContext& context) : context_(context) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    thread_ = std::thread([this] { Loop(); });
  }
  ~CancelOnInterrupt() {
    stopping_.store(true);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;

 private:
  void Loop() {
    const timespec tick{0, 50'000'000};
    while (!stopping_.load()) {
      if (sigtimedwait(&signals_, nullptr, &tick) == SIGINT) context_.TryCancel();
    }
  }

  grpc::ClientContext& context_;
  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

/// One value of `field`: `index` of a repeated one, −1 of a single one.
Json ValueToJson(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(message, &field) : r.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(message, &field) : r.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r.GetUInt32(message, &field) : r.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r.GetUInt64(message, &field) : r.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r.GetDouble(message, &field) : r.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r.GetFloat(message, &field) : r.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (one ? r.GetEnum(message, &field) : r.GetRepeatedEnum(message, &field, index))->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? r.GetString(message, &field) : r.GetRepeatedString(message, &field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(one ? r.GetMessage(message, &field)
                               : r.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const ClientTarget& target) {
  // gRPC's own log lines would stand beside our one line.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(target.address, grpc::InsecureChannelCredentials(), arguments);
  // On a busy machine a first attempt may fail for nothing; a call would fail with it. Where nobody
  // listens, the call itself says so afterwards.
  constexpr double kConnectSeconds = 1.0;
  const double wait = target.timeout_seconds > 0.0
                          ? std::min(target.timeout_seconds, kConnectSeconds)
                          : kConnectSeconds;
  channel->WaitForConnected(std::chrono::system_clock::now() +
                            std::chrono::milliseconds(static_cast<int64_t>(wait * 1000.0)));
  return channel;
}

void SetDeadline(const ClientTarget& target, grpc::ClientContext& context) {
  if (target.timeout_seconds <= 0.0) return;
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::milliseconds(static_cast<int64_t>(target.timeout_seconds * 1000.0)));
}

Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return {};
  std::string line = StrCat(CodeName(status.error_code()), ": ", status.error_message());
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto hint = trailers.find("retry-after-ms"); hint != trailers.end()) {
    line += StrCat(" (retry after ", std::string_view(hint->second.data(), hint->second.size()),
                   " ms)");
  }
  return {StatusCode::kIo, line};
}

Status StreamGeneration(const ClientTarget& target, const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_message) {
  grpc::ClientContext context;
  SetDeadline(target, context);
  // Before the channel: gRPC's threads inherit the blocked signal.
  const CancelOnInterrupt interrupt(context);
  const auto stub = v1::Inference::NewStub(OpenChannel(target));
  const auto reader = stub->GenerateStream(&context, request);
  v1::GenerateResponse message;
  while (reader->Read(&message)) on_message(message);
  return FromGrpc(reader->Finish(), context);
}

Result<std::string> CheckHealth(const ClientTarget& target, const std::string& service) {
  // The health protocol is one string in (field 1) and one enum out (field 1): encoded by hand, its
  // generated code is not installed with gRPC.
  if (service.size() > 127) return Mismatch("--service", Quoted(service), "a service's name");
  std::string bytes;
  if (!service.empty()) bytes = StrCat('\x0a', static_cast<char>(service.size()), service);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  SetDeadline(target, context);
  grpc::GenericStub stub(OpenChannel(target));
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  LOOKBACK_RETURN_IF_ERROR(FromGrpc(done.get_future().get(), context));
  grpc::Slice answer;
  if (!response.DumpToSingleSlice(&answer).ok())
    return Status(StatusCode::kIo, "health: no answer");
  static constexpr const char* kNames[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
  const bool enum_field = answer.size() == 2 && answer.begin()[0] == 0x08;
  const size_t value = enum_field ? answer.begin()[1] : 0;
  return std::string(kNames[value < 4 ? value : 0]);
}

Json MessageToJson(const Message& message) {
  Json out = Json::object();
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) {
      Json items = Json::array();
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        items.push_back(ValueToJson(message, field, k));
      }
      out[field.name()] = std::move(items);
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      out[field.name()] = ValueToJson(message, field, -1);
    }
  }
  return out;
}

std::string MessageToText(const Message& message, int indent) {
  std::string out;
  const std::string margin(static_cast<size_t>(indent), ' ');
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!field.is_repeated() && field.has_presence() && !reflection.HasField(message, &field)) {
      continue;
    }
    if (!field.is_repeated() && is_message) {
      out += StrCat(margin, field.name(), ":\n",
                    MessageToText(reflection.GetMessage(message, &field), indent + 2));
    } else if (!field.is_repeated()) {
      const Json value = ValueToJson(message, field, -1);
      out += StrCat(margin, field.name(), ": ",
                    value.is_string() ? value.get<std::string>() : value.dump(), "\n");
    } else {
      const int size = reflection.FieldSize(message, &field);
      for (int k = 0; k < size; ++k) {
        out += StrCat(margin, field.name(), "[", k, "]: ", ValueToJson(message, field, k).dump(),
                      "\n");
      }
    }
  }
  return out;
}

}  // namespace lookback::tools
