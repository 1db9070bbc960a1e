// `lookback verify` and the golden that every converted file carries.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/golden.h"
#include "engine/json.h"
#include "tests/support/command_line.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/support.h"
#include "tools/convert/convert.h"
#include "tools/expected.h"

namespace lookback::tools {
namespace {

using testing::SafetensorsParts;
using testing::TempDir;

using testing::Outcome;

Outcome Verify(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "verify");
  return testing::RunLookback(arguments);
}

/// The demo, converted once.
const std::string& DemoFile() {
  static const auto* dir = new TempDir;
  static const auto* file = new std::string([] {
    ConvertOptions options;
    options.source = testing::DemoDir();
    options.out = *dir / "demo.safetensors";
    EXPECT_TRUE(Convert(options).ok());
    return options.out;
  }());
  return *file;
}

TEST(Verify, AgreesOnTheFileAsItWasWritten) {
  const Outcome text = Verify({DemoFile()});
  EXPECT_EQ(text.code, 0) << text.out << text.err;
  EXPECT_NE(text.out.find("ok       golden: worst error"), std::string::npos) << text.out;
  const Outcome json = Verify({DemoFile(), "--json", "--compute", "fast"});
  EXPECT_EQ(json.code, 0);
  const Json document = Json::parse(json.out);
  EXPECT_TRUE(document["passed"].get<bool>());
  EXPECT_GT(document["checks"][0]["worst_error"].get<double>(), 0.0) << "a bf16 cache rounds";
}

TEST(Verify, AllowsQuantizedActivationsMoreThanABf16Cache) {
  const TempDir dir;
  ConvertOptions options;
  options.source = testing::DemoDir();
  options.out = dir / "q4.safetensors";
  options.weights = WeightType::kQ4;
  ASSERT_TRUE(Convert(options).ok());
  const Outcome fast = Verify({options.out, "--json", "--compute", "fast"});
  EXPECT_EQ(fast.code, 0) << fast.out;
  const Json check = Json::parse(fast.out)["checks"][0];
  // Exact arithmetic of the same file: 1e-4 of the same range.
  const Json exact = Json::parse(Verify({options.out, "--json"}).out)["checks"][0];
  EXPECT_NEAR(check["limit"].get<double>(), 1e3 * exact["limit"].get<double>(), 1e-9);
  EXPECT_GT(check["worst_error"].get<double>(), 10 * exact["limit"].get<double>())
      << "activations are not quantized";
}

TEST(Verify, AWeightThatChangedIsAMismatchWithExitCode1) {
  const TempDir dir;
  SafetensorsParts parts = SafetensorsParts::Read(DemoFile());
  const Json& entry = parts.header["model.layers.3.mlp.down_proj.weight"];
  // The upper byte of a bf16 is its sign and most of its exponent.
  const auto begin = entry["data_offsets"][0].get<size_t>();
  for (size_t i = 0; i < 64; ++i) parts.data[begin + 2 * i + 1] = '\x40';
  parts.Write(dir / "spoilt");
  const Outcome outcome = Verify({dir / "spoilt"});
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_NE(outcome.out.find("MISMATCH golden: worst error"), std::string::npos) << outcome.out;
}

TEST(Verify, ComparesWithExpectedResultsAndTellsOtherWindowsFromThem) {
  const std::string expected = testing::DemoDir() + "/expected.safetensors";
  const Outcome good = Verify({DemoFile(), "--expected", expected});
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_NE(good.out.find("greedy_2_ids: 64 of 64 greedy ids equal"), std::string::npos);
  const TempDir dir;
  ConvertOptions options;
  options.source = testing::DemoDir();
  options.out = dir / "full.safetensors";
  options.windows.windows = "full";
  ASSERT_TRUE(Convert(options).ok());
  const Outcome bad = Verify({options.out, "--expected", expected});
  EXPECT_EQ(bad.code, 1) << bad.out;
  EXPECT_NE(bad.out.find("MISMATCH logits: "), std::string::npos) << bad.out;
}

TEST(Verify, RefusesWhatItCannotCompare) {
  const TempDir dir;
  const Outcome nothing = Verify({DemoFile(), "--expected", DemoFile()});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_NE(nothing.err.find("none that can be checked"), std::string::npos) << nothing.err;
  SafetensorsParts parts = SafetensorsParts::Read(testing::DemoDir() + "/expected.safetensors");
  parts.header["logits"]["shape"] = {8, 8192};
  parts.Write(dir / "shape");
  const Outcome shape = Verify({DemoFile(), "--expected", dir / "shape"});
  EXPECT_EQ(shape.code, 2) << shape.out;
  EXPECT_NE(shape.err.find("shape of logits in "), std::string::npos) << shape.err;
  parts = SafetensorsParts::Read(DemoFile());
  parts.header["lookback.golden.ids"]["dtype"] = "F32";
  parts.Write(dir / "dtype");
  const Outcome dtype = Verify({dir / "dtype"});
  EXPECT_EQ(dtype.code, 2) << dtype.out;
  EXPECT_NE(dtype.err.find("lookback.golden.ids"), std::string::npos) << dtype.err;
}

TEST(GoldenError, CountsNanAsInfinite) {
  GoldenError error;
  error.Add(0, 0, 1.0, 1.0);
  error.Add(3, 7, std::nan(""), 2.0);
  EXPECT_FALSE(error.Within(1e9));
  EXPECT_EQ(error.position, 3);
  EXPECT_EQ(error.id, 7);
}

}  // namespace
}  // namespace lookback::tools
