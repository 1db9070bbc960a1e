#include "server/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/cpus.h"
#include "server/control_service.h"
#include "server/inference_service.h"
#include "server/log.h"
#include "server/serving_state.h"
#include "server/watchdog.h"

namespace lookback::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Time for the last messages of cancelled calls to leave when the ports close.
constexpr milliseconds kCloseGrace{1000};
constexpr const char* kServices[] = {"lookback.v1.Inference", "lookback.v1.Control"};

/// Process-wide settings of gRPC, once.
void InitGrpc() {
  static const bool done = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // gRPC logs a bind failure in its own words, several lines long, before we report it in one.
    // GRPC_VERBOSITY brings its logs back.
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
    // Protobuf logs every malformed message; the client gets the error, the log would be flooded.
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  static_cast<void>(done);
}

void ConfigureTransport(grpc::ServerBuilder& builder, const ServerOptions& options,
                        const grpc::ResourceQuota& quota) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetResourceQuota(quota);
  const auto set = [&builder](const char* name, int64_t value) {
    builder.AddChannelArgument(name, static_cast<int>(value));
  };
  set(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  // Finds a peer that vanished within 40 s, idle or not.
  set(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients may ping every 10 s, with some jitter, while a long prefill sends nothing.
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 9'000);
  // Otherwise a second server on the same port starts, and gets half of the connections.
  set(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::string WithPort(const std::string& address, int port) {
  if (address.starts_with("unix:")) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

/// Runs one token through the engine, so that the first client does not pay for cold caches and a
/// broken engine never becomes SERVING.
Status WarmUp(Engine& engine) {
  GenerateRequest request;
  request.request_id = "warm-up";
  request.prompt_ids = {engine.model().checkpoint->tokenizer().bos_id.value_or(0)};
  request.temperature = 0.0;
  request.max_new_tokens = 1;
  LOOKBACK_ASSIGN_OR_RETURN(GenerateParams params, engine.Resolve(std::move(request)));
  LOOKBACK_ASSIGN_OR_RETURN(const std::shared_ptr<RequestStream> stream,
                            engine.Submit(std::move(params)));
  StreamBatch batch;
  while (!batch.done) {
    stream->WaitAndTake(batch);
    if (!batch.error.ok()) return std::move(batch.error).WithPrefix("warm-up");
  }
  return {};
}

/// Written beside and renamed: a reader sees the whole number or no file.
Status WritePortFile(const std::string& path, int port) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return IoError("--port-file", path, errno);
  std::fprintf(file, "%d\n", port);
  if (std::fclose(file) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return IoError("--port-file", path, errno);
  }
  return {};
}

std::string Mebibytes(int64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
  return text;
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(ServerOptions options) : quota_("lookback"), inference_(state_), control_(state_) {
    state_.options = std::move(options);
    quota_.Resize(static_cast<size_t>(state_.options.transport_memory_bytes));
  }
  ~Impl();

  Status Load();
  Status Serve();
  void BeginDrain(std::optional<milliseconds> timeout);
  void WaitDrained();
  std::string Banner() const;

  ServingState state_;
  std::string address_;
  std::string control_address_;
  int port_ = 0;

 private:
  Result<int> Bind(const std::string& flag, const std::string& address, bool inference,
                   bool control);
  void SetHealth(bool serving);
  void Watch();
  void CancelAll();
  void Close(milliseconds grace);

  grpc::ResourceQuota quota_;
  InferenceService inference_;
  ControlService control_;
  std::vector<std::unique_ptr<grpc::Server>> servers_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool draining_ = false;  // health says so
  bool refusing_ = false;  // and the engine refuses
  bool serving_ = false;
  bool stopping_ = false;
  milliseconds drain_timeout_{};
  std::thread watchdog_;
};

Status Server::Impl::Load() {
  const ServerOptions& options = state_.options;
  LOOKBACK_ASSIGN_OR_RETURN(state_.model, LoadedModel::Open(options.model_path));
  std::string name = options.name;
  if (name.empty()) name = std::filesystem::path(options.model_path).stem().string();
  state_.identity = IdentityOf(*state_.model, std::move(name));
  LOOKBACK_ASSIGN_OR_RETURN(state_.engine, Engine::Create(state_.model, options.engine));
  return WarmUp(*state_.engine);
}

Result<int> Server::Impl::Bind(const std::string& flag, const std::string& address, bool inference,
                               bool control) {
  grpc::ServerBuilder builder;
  ConfigureTransport(builder, state_.options, quota_);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  if (inference) builder.RegisterService(&inference_);
  if (control) builder.RegisterService(&control_);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return Mismatch(flag, Quoted(address), "an address of this machine that nothing listens on");
  }
  servers_.push_back(std::move(server));
  return port;
}

Status Server::Impl::Serve() {
  const ServerOptions& options = state_.options;
  state_.request_drain = [this](std::optional<milliseconds> timeout) { BeginDrain(timeout); };
  const bool apart = !options.control_listen.empty();
  LOOKBACK_ASSIGN_OR_RETURN(const int port, Bind("--listen", options.listen, true, !apart));
  address_ = control_address_ = WithPort(options.listen, port);
  if (apart) {
    LOOKBACK_ASSIGN_OR_RETURN(const int control_port,
                              Bind("--control-listen", options.control_listen, false, true));
    control_address_ = WithPort(options.control_listen, control_port);
  }
  port_ = options.listen.starts_with("unix:") ? 0 : port;
  {
    const std::lock_guard lock(mutex_);
    if (!draining_) SetHealth(true);
  }
  watchdog_ = std::thread([this] { Watch(); });
  if (!options.port_file.empty()) return WritePortFile(options.port_file, port_);
  return {};
}

/// Callers hold mutex_, so that no late SERVING follows a drain's NOT_SERVING.
void Server::Impl::SetHealth(bool serving) {
  serving_ = serving;
  for (const std::unique_ptr<grpc::Server>& server : servers_) {
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    for (const char* name : kServices) health->SetServingStatus(name, serving);
    health->SetServingStatus("", serving);
  }
}

void Server::Impl::Watch() {
  StallDetector detector{milliseconds(state_.options.stall_timeout_ms)};
  const milliseconds interval{std::clamp<int64_t>(state_.options.stall_timeout_ms / 4, 10, 1000)};
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return stopping_; })) {
    lock.unlock();
    const EngineLoad load = state_.engine->load();
    lock.lock();
    const bool healthy =
        detector.Observe(steady_clock::now(), load.running + load.waiting > 0, load.steps);
    if (draining_ || healthy == serving_) continue;
    LogLine(healthy ? "engine_moves_again" : "engine_stalled",
            {{"running", load.running}, {"waiting", load.waiting}, {"steps", load.steps}});
    SetHealth(healthy);
  }
}

void Server::Impl::BeginDrain(std::optional<milliseconds> timeout) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return;
    draining_ = true;
    drain_timeout_ = timeout.value_or(milliseconds(state_.options.drain_timeout_ms));
    SetHealth(false);
  }
  state_.draining.store(true);
  state_.engine->BeginDrain();
  {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
  }
  changed_.notify_all();
}

void Server::Impl::CancelAll() {
  state_.cut_short.store(true);
  for (const std::string& id : state_.live.All()) state_.engine->Abort(id);
}

void Server::Impl::WaitDrained() {
  milliseconds timeout{};
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return refusing_; });
    timeout = drain_timeout_;
  }
  const steady_clock::time_point deadline = steady_clock::now() + timeout;
  if (state_.engine->WaitIdle(timeout)) {
    state_.live.WaitEmpty(deadline);  // slow readers still have messages to come
  } else {
    CancelAll();
    state_.live.WaitEmpty(steady_clock::now() + kCloseGrace);
  }
  Close(kCloseGrace);
}

/// Ends the servers; calls still open after `grace` are cancelled by gRPC.
void Server::Impl::Close(milliseconds grace) {
  const auto deadline = std::chrono::system_clock::now() + grace;
  for (const std::unique_ptr<grpc::Server>& server : servers_) server->Shutdown(deadline);
  for (const std::unique_ptr<grpc::Server>& server : servers_) server->Wait();
}

std::string Server::Impl::Banner() const {
  const EngineInfo& info = state_.engine->info();
  const ModelConfig& config = state_.model->config();
  const MemoryReport memory = state_.engine->memory();
  const std::string cpus = CpuList(state_.engine->options().cpus);
  std::string line =
      StrCat("serving ", state_.identity.name, " (", FamilyName(config.family), " ",
             ResidualModeName(config.residual), ", ", config.layers, " layers, context ",
             info.max_context, ") compute ", info.compute, ", kernels ", info.kernels, ", ",
             info.threads, " threads", cpus.empty() ? "" : " on CPUs ", cpus, ", KV ", info.kv,
             " pool ", Mebibytes(memory.kv_pool_bytes), " (",
             Mebibytes(memory.kv_full_context_bytes), " a full context, ",
             Mebibytes(memory.kv_full_attention_bytes), " without windows) on ", address_);
  if (control_address_ != address_) line += StrCat(", control on ", control_address_);
  return line;
}

Server::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  if (!servers_.empty()) {
    CancelAll();
    Close(milliseconds(0));
    servers_.clear();
  }
}

Result<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  InitGrpc();
  auto impl = std::make_unique<Impl>(std::move(options));
  LOOKBACK_RETURN_IF_ERROR(impl->Load());
  LOOKBACK_RETURN_IF_ERROR(impl->Serve());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

const std::string& Server::address() const { return impl_->address_; }
const std::string& Server::control_address() const { return impl_->control_address_; }
int Server::port() const { return impl_->port_; }
std::string Server::Banner() const { return impl_->Banner(); }
Engine& Server::engine() { return *impl_->state_.engine; }
void Server::BeginDrain(std::optional<milliseconds> timeout) { impl_->BeginDrain(timeout); }
void Server::WaitDrained() { impl_->WaitDrained(); }

}  // namespace lookback::server
