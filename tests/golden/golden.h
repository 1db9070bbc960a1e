// Goldens: what the papers' own code computed, through our converter and engine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tools/convert/convert.h"

namespace lookback::testing {

/// Converts to a temporary file and opens it; a failure fails the test and returns null.
std::shared_ptr<const LoadedModel> ConvertAndOpen(tools::ConvertOptions options);
/// The same for a folder, with `windows` as --windows has it.
std::shared_ptr<const LoadedModel> ConvertAndOpen(const std::string& folder,
                                                  const std::string& windows = "");

/// Converted with bf16, q8 and q4 matrices the file loads, and its own golden agrees.
void ExpectVerifiesInEveryType(const tools::ConvertOptions& options);

/// Logits of all positions of one sequence, [T][V].
std::vector<float> LogitsOf(const std::shared_ptr<const LoadedModel>& model,
                            std::span<const int32_t> ids, const EngineOptions& options = {});

/// The argmax continuation of `prompt`, `count` ids, while `others` more sequences of random tokens
/// run in the same engine.
std::vector<int32_t> GreedyIds(const std::shared_ptr<const LoadedModel>& model,
                               std::vector<int32_t> prompt, int64_t count, int64_t others = 0);

/// A folder with a case in it. Those of the repository are labelled core_NAME, those of
/// LOOKBACK_FIXTURES more_NAME.
struct GoldenFolder {
  std::string path;
  std::string name;
  std::string label;
};

/// Folders under KIND ("mhar", "aah") that hold the file `marker`, in both places.
std::vector<GoldenFolder> GoldenFolders(const std::string& kind, const std::string& marker);

/// Every way to run a golden's ids gives the bits of the run in one chunk: token by token, in odd
/// chunks, on two threads.
void ExpectSameBitsHoweverItRuns(const std::shared_ptr<const LoadedModel>& model,
                                 std::span<const int32_t> ids, std::span<const float> whole);

}  // namespace lookback::testing
