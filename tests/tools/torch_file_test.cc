#include "tools/convert/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/support.h"
#include "tests/tools/torch_bytes.h"

namespace lookback::tools {
namespace {

namespace fs = std::filesystem;
namespace pickle = testing::pickle;
using pickle::Dict;
using pickle::Tensor;
using pickle::Text;
using testing::TempDir;
using testing::ZipPart;

constexpr float kValues[] = {1, 2, 3, 4, 5, 6};

/// The entries of a file whose storage 0 holds kValues.
std::vector<ZipPart> Parts(const std::string& body) {
  const std::string data(reinterpret_cast<const char*>(kValues), sizeof kValues);
  return {{.name = "m/data.pkl", .data = pickle::Document(body)},
          {.name = "m/byteorder", .data = "little"},
          {.name = "m/data/0", .data = data}};
}

Result<TorchFile> Open(const TempDir& dir, const std::vector<ZipPart>& parts) {
  testing::WriteFile(dir / "m.pt", testing::ZipBytes(parts));
  return TorchFile::Open(dir / "m.pt");
}

void ExpectRefused(const std::vector<ZipPart>& parts, const std::string& says) {
  const TempDir dir;
  const Result<TorchFile> file = Open(dir, parts);
  ASSERT_FALSE(file.ok()) << says;
  EXPECT_NE(file.status().message().find(says), std::string::npos)
      << file.status().message() << "\nshould say: " << says;
  EXPECT_NE(file.status().message().find(dir / "m.pt"), std::string::npos);
}

std::string One(const Tensor& tensor) { return Dict({Text("w"), tensor.Bytes()}); }

std::vector<float> Floats(const TorchFile& file, std::string_view name) {
  const Result<const TorchTensor*> tensor = file.Find(name);
  EXPECT_TRUE(tensor.ok()) << tensor.status().message();
  if (!tensor.ok()) return {};
  std::vector<float> out(static_cast<size_t>((*tensor)->bytes) / sizeof(float));
  EXPECT_TRUE(file.Read(**tensor, 0, std::as_writable_bytes(std::span(out))).ok());
  return out;
}

TEST(TorchFile, ReadsTensorsAtAnOffsetAndAliases) {
  const TempDir dir;
  const auto file =
      Open(dir, Parts(Dict({Text("w"), Tensor().Bytes(), Text("alias"), Tensor().Bytes(),
                            Text("part"), Tensor{.offset = 4, .shape = {2}, .strides = {1}}.Bytes(),
                            Text("scalar"), Tensor{.offset = 5, .shape = {}, .strides = {}}.Bytes(),
                            Text("none"), Tensor{.shape = {0, 3}}.Bytes()})));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 5U);
  EXPECT_EQ((*file->Find("w"))->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*file->Find("w"))->offset, (*file->Find("alias"))->offset);
  EXPECT_EQ(Floats(*file, "w"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Floats(*file, "part"), (std::vector<float>{5, 6}));
  EXPECT_EQ(Floats(*file, "scalar"), (std::vector<float>{6}));
  EXPECT_EQ(Floats(*file, "none"), std::vector<float>());
  EXPECT_EQ(file->Find("v").status().code(), StatusCode::kNotFound);
}

TEST(TorchFile, FindsTheStateDictInWrappersAndStripsPrefixes) {
  const std::string inner = Dict({Text("_orig_mod.module._orig_mod.w"), Tensor().Bytes()});
  for (const std::string& body :
       {inner, Dict({Text("step"), "K\x05", Text("model_state_dict"), inner}),
        Dict({Text("state_dict"), inner}),
        Dict({Text("model"), Dict({Text("module"), inner}), Text("optimizer"), "}"})}) {
    const TempDir dir;
    const auto file = Open(dir, Parts(body));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(Floats(*file, "w").size(), 6U);
  }
}

TEST(TorchFile, GivesPlainMetadataAsJson) {
  const TempDir dir;
  const std::string metadata =
      Dict({Text("regime"), Text("grouping_off"), Text("seq_len"), "K\x60", Text("list"),
            "](K\x01N\x88"
            "e"});
  const auto file =
      Open(dir, Parts(Dict({Text("state_dict"), One({}), Text("metadata"), metadata})));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Result<Json> json = file->Metadata("metadata");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(*json, Json::parse(R"({"regime": "grouping_off", "seq_len": 96,
                                   "list": [1, null, true]})"));
  EXPECT_TRUE(file->Metadata("none")->is_null());
  EXPECT_NE(file->Metadata("state_dict").status().message().find("got a tensor, expected numbers"),
            std::string::npos);
}

TEST(TorchFile, RefusesTensorsThatLie) {
  ExpectRefused(Parts(One({.shape = {3, 2}, .strides = {1, 3}})), "tensor \"w\" in ");
  ExpectRefused(Parts(One({.shape = {3, 2}, .strides = {1, 3}})),
                "got shape [3,2] with strides [1,3], expected a contiguous tensor");
  ExpectRefused(Parts(One({.offset = 1})), "got shape [2,3] from element 1, expected a range");
  ExpectRefused(Parts(One({.offset = 7, .shape = {0}, .strides = {1}})), "from element 7");
  ExpectRefused(Parts(One({.shape = {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}, .strides = {1, 1, 1}})),
                "a range within the 6 of its storage");
  ExpectRefused(Parts(One({.storage_elements = 7})), "got a storage of 24 bytes, expected 7 F32");
  ExpectRefused(Parts(One({.type = "DoubleStorage"})), "got a storage of 24 bytes, expected 6 F64");
  ExpectRefused(Parts(One({.key = "1"})), "got the storage \"1\" that is not in the file");
  ExpectRefused(Parts(One({.key = "../data.pkl"})), "that is not in the file");
}

TEST(TorchFile, RefusesCompressedTensorsByName) {
  std::vector<ZipPart> parts = Parts(One({}));
  parts[2].method = 8;
  ExpectRefused(parts, "tensor \"w\" in ");
  ExpectRefused(parts, "got a compressed entry, expected a stored one");
}

TEST(TorchFile, RefusesWhatIsNoStateDict) {
  ExpectRefused(Parts("}"), "got no tensors, expected a state_dict");
  ExpectRefused(Parts("K\x01"), "got the integer 1, expected a state_dict");
  ExpectRefused(Parts(Dict({Text("w"), Tensor().Bytes(), Text("n"), "K\x01"})),
                "got the integer 1 under the string \"n\", expected a tensor under a name");
  ExpectRefused(Parts(Dict({Text("w"), Tensor().Bytes(), Text("module.w"), Tensor().Bytes()})),
                "got \"w\" twice, once its prefixes are gone");
  ExpectRefused(Parts(Dict({Text("model"), One({}), Text("state_dict"), One({})})),
                "got one under \"state_dict\" and one under \"model\", expected one alone");
}

TEST(TorchFile, RefusesOtherArchives) {
  std::vector<ZipPart> parts = Parts(One({}));
  parts[1].data = "big";
  ExpectRefused(parts, "got \"big\", expected \"little\"");
  parts = Parts(One({}));
  parts.push_back({.name = "m/constants.pkl", .data = "x"});
  ExpectRefused(parts, "got a TorchScript archive (entry \"m/constants.pkl\")");
  parts.back() = {.name = "n/data.pkl", .data = "x"};
  ExpectRefused(parts, "got two entries */data.pkl");
  ExpectRefused({{.name = "a/b", .data = "x"}}, "got no entry */data.pkl");
  const TempDir dir;
  testing::WriteFile(dir / "old.pt",
                     "\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.rest");
  EXPECT_NE(TorchFile::Open(dir / "old.pt").status().message().find("the form before 1.6"),
            std::string::npos);
}

/// The release's own files: names, shapes and every weight inside its file.
TEST(TorchFile, ReadsTheReleasesFiles) {
  const auto fixtures = testing::FixturesDir();
  if (!fixtures) GTEST_SKIP() << "LOOKBACK_FIXTURES is not set";
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(*fixtures + "/aah")) {
    if (entry.path().extension() != ".pt") continue;
    const auto file = TorchFile::Open(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    ++files;
    if (entry.path().filename() == "adapter.pt") {
      const Result<Json> metadata = file->Metadata("metadata");
      ASSERT_TRUE(metadata.ok()) << metadata.status().message();
      EXPECT_TRUE(metadata->is_object()) << DumpJson(*metadata);
      continue;
    }
    const auto wte = file->Find("wte.weight");
    const auto head = file->Find("lm_head.weight");
    ASSERT_TRUE(wte.ok() && head.ok()) << entry.path();
    EXPECT_EQ((*wte)->offset, (*head)->offset);
    EXPECT_EQ((*wte)->shape[0], 320);
    for (const auto& [name, tensor] : file->tensors()) {
      EXPECT_EQ(tensor.dtype, DType::kF32) << name;
      for (const float value : Floats(*file, name)) {
        ASSERT_TRUE(std::abs(value) <= 100.0F) << name << " in " << entry.path();
      }
    }
  }
  EXPECT_EQ(files, 34);
}

}  // namespace
}  // namespace lookback::tools
