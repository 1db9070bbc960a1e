#include "tests/golden/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/golden.h"
#include "tests/support/support.h"

namespace lookback::testing {

std::shared_ptr<const LoadedModel> ConvertAndOpen(tools::ConvertOptions options) {
  const TempDir dir;
  options.out = dir / "model.safetensors";
  const auto report = tools::Convert(options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (!report.ok()) return nullptr;
  auto model = LoadedModel::Open(options.out);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

std::shared_ptr<const LoadedModel> ConvertAndOpen(const std::string& folder,
                                                  const std::string& windows) {
  tools::ConvertOptions options;
  options.source = folder;
  if (!windows.empty()) options.windows = tools::WindowRequest{windows, std::nullopt};
  return ConvertAndOpen(std::move(options));
}

void ExpectVerifiesInEveryType(const tools::ConvertOptions& options) {
  for (const auto type :
       {tools::WeightType::kBF16, tools::WeightType::kQ8, tools::WeightType::kQ4}) {
    if (testing::kSanitized && type != tools::WeightType::kQ4) continue;  // which has q8 tables too
    tools::ConvertOptions typed = options;
    typed.weights = type;
    const auto model = ConvertAndOpen(std::move(typed));
    ASSERT_NE(model, nullptr);
    const auto golden = ReadGolden(*model->checkpoint);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    const auto error = CheckGolden(model, *golden, {});
    ASSERT_TRUE(error.ok()) << error.status().message();
    EXPECT_GT(error->range, 0.0);
    // Of verify: the sets sum in other orders, and sharp routing makes more of it than rounding
    // does.
    EXPECT_TRUE(error->Within(1e-4)) << error->worst;
  }
}

std::vector<float> LogitsOf(const std::shared_ptr<const LoadedModel>& model,
                            std::span<const int32_t> ids, const EngineOptions& options) {
  const auto evaluator = Evaluator::Create(model, options);
  EXPECT_TRUE(evaluator.ok()) << evaluator.status().message();
  std::vector<float> all;
  const Status status = (*evaluator)->Run(ids, [&](int64_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

std::vector<int32_t> GreedyIds(const std::shared_ptr<const LoadedModel>& model,
                               std::vector<int32_t> prompt, int64_t count, int64_t others) {
  EngineOptions options;
  options.limits.max_requests = 1 + others;
  options.max_chunk = 13;
  const auto engine = Engine::Create(model, options).value();
  const auto submit = [&](std::vector<int32_t> ids) {
    GenerateRequest request;
    request.prompt_ids = std::move(ids);
    request.temperature = 0.0;
    request.repetition_penalty = 1.0;
    request.max_new_tokens = count;
    request.ignore_eos = true;
    const auto params = engine->Resolve(std::move(request));
    EXPECT_TRUE(params.ok()) << params.status().message();
    return engine->Submit(*params).value();
  };
  std::vector<std::shared_ptr<RequestStream>> streams;
  for (int64_t i = 0; i < others; ++i) {
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < 5 + 7 * i; ++t) {
      ids.push_back(static_cast<int32_t>((t * 31 + i) % model->config().vocab_size));
    }
    streams.push_back(submit(std::move(ids)));
  }
  const auto stream = submit(std::move(prompt));
  std::vector<int32_t> ids;
  StreamBatch batch;
  do {
    stream->WaitAndTake(batch);
    for (const TokenEvent& token : batch.tokens) ids.push_back(token.id);
  } while (!batch.done);
  return ids;
}

std::vector<GoldenFolder> GoldenFolders(const std::string& kind, const std::string& marker) {
  std::vector<GoldenFolder> folders;
  const auto add = [&](const std::string& root, const std::string& prefix) {
    if (!std::filesystem::is_directory(root)) return;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      const std::string name = entry.path().filename().string();
      if (!std::filesystem::exists(entry.path() / marker)) continue;
      folders.push_back({entry.path().string(), name, prefix + name});
    }
  };
  add(GoldenPath(kind), "core_");
  if (const auto fixtures = FixturesDir()) add(StrCat(*fixtures, "/", kind), "more_");
  std::sort(folders.begin(), folders.end(),
            [](const auto& a, const auto& b) { return a.label < b.label; });
  return folders;
}

void ExpectSameBitsHoweverItRuns(const std::shared_ptr<const LoadedModel>& model,
                                 std::span<const int32_t> ids, std::span<const float> whole) {
  for (const int64_t chunk : {1, 7, 33}) {
    EngineOptions options;
    options.max_chunk = chunk;
    options.threads = chunk == 7 ? 2 : 1;
    options.block_tokens = chunk == 33 ? 16 : 32;
    const auto other = LogitsOf(model, ids, options);
    ASSERT_EQ(other.size(), whole.size());
    // The block size is part of the order of summation: there only the values agree.
    if (options.block_tokens != EngineOptions().block_tokens) {
      EXPECT_TRUE(WorstError(other, whole).error <= 1e-3);
      continue;
    }
    EXPECT_EQ(std::memcmp(other.data(), whole.data(), whole.size_bytes()), 0) << "chunk " << chunk;
  }
}

}  // namespace lookback::testing
