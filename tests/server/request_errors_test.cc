// Every way to ask for something wrong: the code, and the field that the text names.
#include <cmath>
#include <limits>

#include "tests/server/fixture.h"

namespace lookback::server::testing {
namespace {

using v1::GenerateRequest;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct BadRequest {
  const char* field;  // begins the text
  std::function<void(GenerateRequest&)> change;
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

v1::Sampling& S(GenerateRequest& r) { return *r.mutable_sampling(); }

std::vector<BadRequest> BadRequests() {
  return {
      {"text, token_ids", [](auto& r) { r.clear_prompt(); }},
      {"token_ids", [](auto& r) { r.mutable_token_ids()->clear_ids(); }},
      {"token_ids[2]", [](auto& r) { r.mutable_token_ids()->set_ids(2, -1); }},
      {"token_ids[0]", [](auto& r) { r.mutable_token_ids()->set_ids(0, 1 << 30); }},
      {"token_ids",
       [](auto& r) {
         for (int i = 0; i < 5000; ++i) r.mutable_token_ids()->add_ids(5);
       }},
      {"text", [](auto& r) { r.set_text(std::string((2 << 20) + 1, 'a')); }},
      {"model", [](auto& r) { r.set_model("other"); }, grpc::StatusCode::NOT_FOUND},
      {"request_id", [](auto& r) { r.set_request_id(std::string(257, 'x')); }},
      {"request_id", [](auto& r) { r.set_request_id("line\nbreak"); }},
      {"temperature", [](auto& r) { S(r).set_temperature(-0.5); }},
      {"temperature", [](auto& r) { S(r).set_temperature(kNan); }},
      {"temperature", [](auto& r) { S(r).set_temperature(kInf); }},
      {"top_k", [](auto& r) { S(r).set_top_k(-1); }},
      {"top_p", [](auto& r) { S(r).set_top_p(0.0); }},
      {"top_p", [](auto& r) { S(r).set_top_p(1.5); }},
      {"min_p", [](auto& r) { S(r).set_min_p(-0.1); }},
      {"typical_p", [](auto& r) { S(r).set_typical_p(kNan); }},
      {"repetition_penalty", [](auto& r) { S(r).set_repetition_penalty(0.0); }},
      {"presence_penalty", [](auto& r) { S(r).set_presence_penalty(kInf); }},
      {"frequency_penalty", [](auto& r) { S(r).set_frequency_penalty(-1e300); }},
      {"logit_bias", [](auto& r) { (*S(r).mutable_logit_bias())[-3] = 1.0; }},
      {"logit_bias", [](auto& r) { (*S(r).mutable_logit_bias())[3] = kNan; }},
      {"n", [](auto& r) { r.set_n(0); }},
      {"n", [](auto& r) { r.set_n(9); }},
      {"max_new_tokens", [](auto& r) { r.set_max_new_tokens(0); }},
      {"max_new_tokens", [](auto& r) { r.set_max_new_tokens(-7); }},
      {"max_new_tokens",
       [](auto& r) { r.set_max_new_tokens(std::numeric_limits<int64_t>::max()); }},
      {"min_new_tokens", [](auto& r) { r.set_min_new_tokens(-1); }},
      {"min_new_tokens", [](auto& r) { r.set_min_new_tokens(1 << 20); }},
      {"stop",
       [](auto& r) {
         for (int i = 0; i < 17; ++i) r.add_stop(std::string(1, 'x'));
       }},
      {"stop[0]", [](auto& r) { r.add_stop(""); }},
      {"stop[0]", [](auto& r) { r.add_stop(std::string(257, 'x')); }},
      {"stop_token_ids[0]", [](auto& r) { r.add_stop_token_ids(-1); }},
      {"top_logprobs", [](auto& r) { r.set_top_logprobs(21); }},
      {"top_logprobs", [](auto& r) { r.set_top_logprobs(-1); }},
      {"prompt_logprobs", [](auto& r) { r.set_prompt_logprobs(21); }},
  };
}

void ExpectRefused(const grpc::Status& status, const BadRequest& bad, size_t row) {
  EXPECT_EQ(status.error_code(), bad.code) << "row " << row << ": " << status.error_message();
  EXPECT_EQ(status.error_message().rfind(bad.field, 0), 0U)
      << "row " << row << ", expected " << bad.field << ": " << status.error_message();
  EXPECT_NE(status.error_message().find("got "), std::string::npos) << status.error_message();
  EXPECT_NE(status.error_message().find("expected "), std::string::npos) << status.error_message();
}

TEST(RequestErrors, EveryBadFieldIsNamedByBothCalls) {
  TestServer server;
  const std::vector<BadRequest> table = BadRequests();
  for (size_t row = 0; row < table.size(); ++row) {
    GenerateRequest request = LongRequest(4);
    table[row].change(request);
    v1::GenerateResponse response;
    ExpectRefused(server.Generate(request, &response), table[row], row);
    const Gathered stream = server.Stream([&] {
      GenerateRequest copy = request;
      return copy;
    }());
    ExpectRefused(stream.status, table[row], row);
    EXPECT_TRUE(stream.messages.empty());
  }
  EXPECT_EQ(server.engine().memory().kv_held_bytes, 0);
}

TEST(RequestErrors, ScoreAndTokenizeNameTheirFields) {
  TestServer server;
  v1::ScoreRequest score;
  v1::ScoreResponse scored;
  {
    grpc::ClientContext context;
    const grpc::Status status = server.inference().Score(&context, score, &scored);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message().rfind("text, token_ids", 0), 0U) << status.error_message();
  }
  {
    grpc::ClientContext context;
    score.set_text("a");
    score.set_top_logprobs(21);
    const grpc::Status status = server.inference().Score(&context, score, &scored);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message().rfind("top_logprobs", 0), 0U) << status.error_message();
  }
  {
    grpc::ClientContext context;
    v1::DetokenizeRequest request;
    v1::DetokenizeResponse response;
    request.add_token_ids(5);
    request.add_token_ids(-5);
    const grpc::Status status = server.inference().Detokenize(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message().rfind("token_ids[1]", 0), 0U) << status.error_message();
  }
  {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    v1::TokenizeResponse response;
    request.set_text(std::string((2 << 20) + 1, 'a'));
    const grpc::Status status = server.inference().Tokenize(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST(RequestErrors, MalformedBytesInvalidUtf8AndUnknownFieldsAreInvalidArgument) {
  TestServer server;
  const std::string cases[] = {
      std::string("\x1a\x01\xff", 3),          // text: one byte that is no UTF-8
      std::string("\x1a\x7f", 2),              // a length beyond the end
      std::string("\xff\xff\xff\xff\xff", 5),  // no tag
      std::string("\x1a\x01"
                  "a\xc0\x0c\x01",
                  6),                      // field 200
      std::string("\x2a\x02\x78\x01", 4),  // sampling.15
  };
  for (const char* method : {"Generate", "GenerateStream", "Score", "Tokenize"}) {
    for (const std::string& bytes : cases) {
      const grpc::Status status =
          server.Raw(std::string("/lookback.v1.Inference/") + method, bytes);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << method << ": " << status.error_message();
    }
  }
  const grpc::Status abort =
      server.Raw("/lookback.v1.Control/Abort", std::string("\x0a\x01\xff", 3));
  EXPECT_EQ(abort.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(RequestErrors, AMessageThatIsTooLargeSaysSo) {
  TestServer server;
  v1::TokenizeRequest request;
  v1::TokenizeResponse response;
  request.set_text(std::string(17 << 20, 'a'));
  grpc::ClientContext context;
  const grpc::Status status = server.inference().Tokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_NE(status.error_message().find("larger than max"), std::string::npos)
      << status.error_message();
}

}  // namespace
}  // namespace lookback::server::testing
