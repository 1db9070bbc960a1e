// `lookback client ADDRESS …`: every RPC of the server from the command line.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/commands.h"

#ifdef LOOKBACK_HAVE_CLIENT
#include <unistd.h>

#include "engine/windows.h"
#include "tools/client_calls.h"
#include "tools/client_generate.h"
#include "tools/windows_view.h"
#endif

namespace lookback::tools {

#ifndef LOOKBACK_HAVE_CLIENT

void AddClient(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("client", "Talk to a server (not in this build)");
  command->prefix_command();  // whatever follows, the answer is the same
  command->callback([&exit_code] {
    exit_code = Report({StatusCode::kFailedPrecondition,
                        "client: this build has no gRPC (configured with LOOKBACK_SERVER=OFF)"});
  });
}

#else

namespace {

struct ClientFlags {
  ClientTarget target;
  bool json = false;
  ClientGenerateFlags generate;
  GenerateFlags score;  // its prompt and top_logprobs alone
  std::string text;
  std::vector<int32_t> ids;
  bool special = true;
  bool show_special = false;
  std::string service = "lookback.v1.Inference";
  std::string request_id;
  std::optional<int64_t> drain_timeout_ms;
};

void Print(const google::protobuf::Message& message, bool json) {
  const std::string text = json ? MessageToJson(message).dump(2, ' ', /*ensure_ascii=*/true) + "\n"
                                : MessageToText(message);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// One unary call through the stub's method `call`.
template <typename Service, typename Request, typename Response>
Status Call(const ClientFlags& flags,
            grpc::Status (Service::Stub::*call)(grpc::ClientContext*, const Request&, Response*),
            const Request& request, Response& response) {
  grpc::ClientContext context;
  SetDeadline(flags.target, context);
  const std::unique_ptr<typename Service::Stub> stub = Service::NewStub(OpenChannel(flags.target));
  return FromGrpc((stub.get()->*call)(&context, request, &response), context);
}

/// A call without arguments whose answer is printed as it is.
template <typename Service, typename Request, typename Response>
Status Show(const ClientFlags& flags,
            grpc::Status (Service::Stub::*call)(grpc::ClientContext*, const Request&, Response*)) {
  Response response;
  LOOKBACK_RETURN_IF_ERROR((Call<Service>(flags, call, Request(), response)));
  Print(response, flags.json);
  return {};
}

Status Score(const ClientFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const GenerateRequest asked, flags.score.Resolve());
  v1::ScoreRequest request;
  SetPrompt(flags.score.prompt, asked.prompt_ids, request);
  if (asked.top_logprobs) request.set_top_logprobs(*asked.top_logprobs);
  v1::ScoreResponse response;
  LOOKBACK_RETURN_IF_ERROR(
      (Call<v1::Inference>(flags, &v1::Inference::Stub::Score, request, response)));
  if (flags.json) {
    Print(response, true);
    return {};
  }
  for (const v1::TokenLogprobs& token : response.logprobs()) {
    std::printf("%d\t%.6f", token.id(), static_cast<double>(token.logprob()));
    for (const v1::TokenLogprob& top : token.top()) {
      std::printf("\t%d:%.6f", top.id(), static_cast<double>(top.logprob()));
    }
    std::printf("\n");
  }
  const int count = response.logprobs_size();
  std::printf("total %.6f over %d tokens, mean NLL %.6f\n", response.total_logprob(), count,
              count > 0 ? -response.total_logprob() / count : 0.0);
  return {};
}

Status TokenizeText(const ClientFlags& flags) {
  v1::TokenizeRequest request;
  request.set_text(flags.text);
  request.set_special(flags.special);
  v1::TokenizeResponse response;
  LOOKBACK_RETURN_IF_ERROR(
      (Call<v1::Inference>(flags, &v1::Inference::Stub::Tokenize, request, response)));
  if (flags.json) {
    Print(response, true);
    return {};
  }
  std::string line;
  for (const int32_t id : response.token_ids()) line += StrCat(line.empty() ? "" : ",", id);
  std::printf("%s\n", line.c_str());
  return {};
}

Status DetokenizeIds(const ClientFlags& flags) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Add(flags.ids.begin(), flags.ids.end());
  request.set_show_special(flags.show_special);
  v1::DetokenizeResponse response;
  LOOKBACK_RETURN_IF_ERROR(
      (Call<v1::Inference>(flags, &v1::Inference::Stub::Detokenize, request, response)));
  if (flags.json) {
    Print(response, true);
  } else {
    std::printf("%s\n", response.text().c_str());
  }
  return {};
}

Status Info(const ClientFlags& flags) {
  v1::ServerInfo server;
  v1::ModelInfo model;
  LOOKBACK_RETURN_IF_ERROR((Call<v1::Control>(flags, &v1::Control::Stub::GetServerInfo,
                                              v1::GetServerInfoRequest(), server)));
  LOOKBACK_RETURN_IF_ERROR((Call<v1::Control>(flags, &v1::Control::Stub::GetModelInfo,
                                              v1::GetModelInfoRequest(), model)));
  if (flags.json) {
    const Json both = {{"server", MessageToJson(server)}, {"model", MessageToJson(model)}};
    std::printf("%s\n", both.dump(2, ' ', true).c_str());
    return {};
  }
  model.mutable_config()->clear_json();  // in --json
  std::printf("server\n%smodel\n%s", MessageToText(server, 2).c_str(),
              MessageToText(model, 2).c_str());
  return {};
}

/// The table of the message in the engine's form, checked as one from a file is.
Result<WindowTable> ToTable(const v1::Windows& windows) {
  Json rows = Json::array();
  Json sinks = Json::array();
  for (const v1::LayerWindows& layer : windows.layers()) {
    Json row = Json::array();
    Json sink_row = Json::array();
    for (const v1::HeadWindow& head : layer.heads()) {
      row.push_back(head.has_window() ? Json(head.window()) : Json(nullptr));
      sink_row.push_back(head.sinks());
    }
    rows.push_back(std::move(row));
    sinks.push_back(std::move(sink_row));
  }
  if (windows.layers_size() == 0) return InvalidArgument("windows: the server sent no layers");
  const Json json = {{"windows", rows},
                     {"sinks", sinks},
                     {"train_context", windows.train_context()},
                     {"source", windows.source()}};
  return WindowTable::FromJson(json, windows.layers_size(), windows.layers(0).heads_size(),
                               "windows of the server");
}

Status ShowWindows(const ClientFlags& flags) {
  v1::Windows windows;
  LOOKBACK_RETURN_IF_ERROR(
      (Call<v1::Control>(flags, &v1::Control::Stub::GetWindows, v1::GetWindowsRequest(), windows)));
  if (flags.json) {
    Print(windows, true);
    return {};
  }
  LOOKBACK_ASSIGN_OR_RETURN(const WindowTable table, ToTable(windows));
  const std::string map = HeatMap(table, windows.train_context(), isatty(STDOUT_FILENO) == 1);
  std::printf("%s\n%s\n", map.c_str(), WindowText(table).c_str());
  const auto held = static_cast<double>(windows.kv_full_context_bytes());
  const auto full = static_cast<double>(windows.kv_full_attention_bytes());
  std::printf("source %s\nhash %s\nACR %.4f at %lld tokens\n", windows.source().c_str(),
              windows.hash().c_str(), windows.acr(),
              static_cast<long long>(windows.train_context()));
  std::printf("KV of one sequence of %lld tokens: %.0f bytes, %.0f with full attention (%.1f %%)\n",
              static_cast<long long>(windows.max_context()), held, full,
              full > 0 ? held / full * 100.0 : 0.0);
  return {};
}

Status AbortRequest(const ClientFlags& flags) {
  v1::AbortRequest request;
  request.set_request_id(flags.request_id);
  v1::AbortResponse response;
  LOOKBACK_RETURN_IF_ERROR(
      (Call<v1::Control>(flags, &v1::Control::Stub::Abort, request, response)));
  Print(response, flags.json);
  return {};
}

Status DrainServer(const ClientFlags& flags) {
  v1::DrainRequest request;
  if (flags.drain_timeout_ms) request.set_timeout_ms(*flags.drain_timeout_ms);
  v1::DrainResponse response;
  LOOKBACK_RETURN_IF_ERROR(
      (Call<v1::Control>(flags, &v1::Control::Stub::Drain, request, response)));
  Print(response, flags.json);
  return {};
}

/// Exit code 0 for SERVING, 1 for any other answer, 2 if there is none.
int Health(const ClientFlags& flags) {
  const Result<std::string> health = CheckHealth(flags.target, flags.service);
  if (!health.ok()) return Report(health.status());
  if (flags.json) {
    std::printf("%s\n", Json({{"status", *health}}).dump().c_str());
  } else {
    std::printf("%s\n", health->c_str());
  }
  return *health == "SERVING" ? 0 : 1;
}

using Action = Status (*)(const ClientFlags&);

CLI::App* AddAction(CLI::App& client, const std::shared_ptr<ClientFlags>& flags, int& exit_code,
                    const char* name, const char* help, Action action) {
  CLI::App* command = client.add_subcommand(name, help);
  command->fallthrough();  // --json, --timeout after the command too
  command->callback([flags, &exit_code, action] { exit_code = Report(action(*flags)); });
  return command;
}

void AddInferenceCommands(CLI::App& client, const std::shared_ptr<ClientFlags>& flags,
                          int& exit_code) {
  CLI::App* generate = AddAction(
      client, flags, exit_code, "generate", "Generate and stream to the terminal",
      [](const ClientFlags& f) { return RunClientGenerate(f.target, f.generate, f.json); });
  AddClientGenerateFlags(*generate, flags->generate);
  CLI::App* score =
      AddAction(client, flags, exit_code, "score", "Log-probabilities of a given text", &Score);
  score->add_option("--prompt", flags->score.prompt, "Text");
  score->add_option("--ids", flags->score.request.prompt_ids, "Token ids, comma-separated")
      ->delimiter(',');
  score->add_option("--top-logprobs", flags->score.request.top_logprobs, "Alternatives a token");
  CLI::App* tokenize =
      AddAction(client, flags, exit_code, "tokenize", "Text to token ids", &TokenizeText);
  tokenize->add_option("--text,TEXT", flags->text, "Text")->required();
  tokenize->add_flag("--special,!--no-special", flags->special, "With BOS and EOS (default)");
  CLI::App* detokenize =
      AddAction(client, flags, exit_code, "detokenize", "Token ids to text", &DetokenizeIds);
  detokenize->add_option("--ids,IDS", flags->ids, "Token ids, comma-separated")
      ->delimiter(',')
      ->required();
  detokenize->add_flag("--show-special", flags->show_special, "Show special tokens");
}

void AddControlCommands(CLI::App& client, const std::shared_ptr<ClientFlags>& flags,
                        int& exit_code) {
  AddAction(client, flags, exit_code, "info", "What the server and its model are", &Info);
  AddAction(client, flags, exit_code, "windows", "How far back every head looks", &ShowWindows);
  AddAction(client, flags, exit_code, "load", "What runs, and totals since start",
            [](const ClientFlags& f) { return Show<v1::Control>(f, &v1::Control::Stub::GetLoad); });
  AddAction(client, flags, exit_code, "memory", "Where the memory is", [](const ClientFlags& f) {
    return Show<v1::Control>(f, &v1::Control::Stub::GetMemoryReport);
  });
  CLI::App* abort = AddAction(client, flags, exit_code, "abort", "End a request", &AbortRequest);
  abort->add_option("REQUEST_ID", flags->request_id, "Its id")->required();
  CLI::App* drain = AddAction(client, flags, exit_code, "drain",
                              "Refuse new work, finish what runs, exit", &DrainServer);
  drain->add_option("--drain-timeout-ms", flags->drain_timeout_ms,
                    "Time for what runs; default: the server's");
  CLI::App* health =
      client.add_subcommand("health", "Exit 0 if the server says SERVING, 1 if it says otherwise");
  health->fallthrough();
  health->add_option("--service", flags->service, "Service to ask about; \"\" = the server");
  health->callback([flags, &exit_code] { exit_code = Health(*flags); });
}

}  // namespace

void AddClient(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ClientFlags>();
  CLI::App* client = app.add_subcommand("client", "Talk to a running lookback-server");
  client->add_option("ADDRESS", flags->target.address, "HOST:PORT or unix:PATH")->required();
  client->add_option("--timeout", flags->target.timeout_seconds, "Seconds for one call; 0 = none")
      ->check(CLI::Range(0.0, 1e6));
  client->add_flag("--json", flags->json, "One JSON document on stdout");
  client->require_subcommand(1);
  AddInferenceCommands(*client, flags, exit_code);
  AddControlCommands(*client, flags, exit_code);
  client->footer(
      "Examples:\n"
      "  lookback client 127.0.0.1:50051 generate --prompt 'The LORD is my' --stats\n"
      "  lookback client 127.0.0.1:50051 windows");
}

#endif

}  // namespace lookback::tools
