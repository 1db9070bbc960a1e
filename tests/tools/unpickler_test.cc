#include "tools/convert/unpickler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/torch_bytes.h"

namespace lookback::tools {
namespace {

using std::string_literals::operator""s;
namespace pickle = testing::pickle;
using testing::LittleEndian;

PickleTree Unpickled(const std::string& body) {
  Result<PickleTree> tree = Unpickle(pickle::Document(body), "data.pkl");
  EXPECT_TRUE(tree.ok()) << tree.status().message();
  return tree.ok() ? *std::move(tree) : *Unpickle("\x80\x02N."s, "none");
}

void ExpectPickleRefused(const std::string& body, const std::string& says) {
  const Result<PickleTree> tree = Unpickle(pickle::Document(body), "data.pkl");
  ASSERT_FALSE(tree.ok()) << says;
  EXPECT_NE(tree.status().message().find(says), std::string::npos)
      << tree.status().message() << "\nshould say: " << says;
  EXPECT_NE(tree.status().message().find("data.pkl"), std::string::npos);
}

TEST(Unpickler, ReadsPlainValues) {
  const PickleTree tree = Unpickled(
      "(N\x88\x89K\x07M\x01\x02J\xFE\xFF\xFF\xFF"s
      "\x8A\x02\x00\x80G\x3F\xF8\x00\x00\x00\x00\x00\x00"s +
      pickle::Text("héllo") + "C\x02zz\x8C\x01qt"s);
  const auto& items = std::get<PickleTuple>(tree.root()).items;
  ASSERT_EQ(items.size(), 11U);
  EXPECT_EQ(std::get<std::string>(tree.at(items[10])), "q");
  EXPECT_TRUE(std::holds_alternative<PickleNone>(tree.at(items[0])));
  EXPECT_EQ(std::get<bool>(tree.at(items[1])), true);
  EXPECT_EQ(std::get<bool>(tree.at(items[2])), false);
  EXPECT_EQ(std::get<int64_t>(tree.at(items[3])), 7);
  EXPECT_EQ(std::get<int64_t>(tree.at(items[4])), 513);
  EXPECT_EQ(std::get<int64_t>(tree.at(items[5])), -2);
  EXPECT_EQ(std::get<int64_t>(tree.at(items[6])), -32768);
  EXPECT_EQ(std::get<double>(tree.at(items[7])), 1.5);
  EXPECT_EQ(std::get<std::string>(tree.at(items[8])), "héllo");
  EXPECT_EQ(std::get<PickleBytes>(tree.at(items[9])).bytes, "zz");
}

TEST(Unpickler, ReadsEveryWayToMakeAContainer) {
  const std::vector<std::pair<std::string, std::string>> made = {
      {"](K\x01K\x02"
       "eK\x03"
       "a",
       "a list of 3"},
      {"(K\x03l", "a list of 1"},
      {")", "a tuple of 0"},
      {"K\x04\x85", "a tuple of 1"},
      {"K\x05K\x06\x86", "a tuple of 2"},
      {"K\x01K\x02K\x03\x87", "a tuple of 3"},
      {"(K\x01K\x02K\x03K\x04t", "a tuple of 4"},
      {"(K\x01K\x02K\x03Nd", "a dict of 2 keys"},
      {"}K\x08Ns(K\x01Nu", "a dict of 2 keys"},
      {"]N0(NN1", "a list of 0"}};  // POP and POP_MARK
  for (const auto& [body, described] : made) {
    EXPECT_EQ(DescribePickle(Unpickled(body).root()), described);
  }
}

TEST(Unpickler, SharesMemoizedValues) {
  const PickleTree tree =
      Unpickled("]q\x05(h\x05r\x00\x01\x00\x00j\x00\x01\x00\x00]\x94h\x02t\x86"s);
  const auto& outer = std::get<PickleTuple>(tree.root()).items;
  const auto& inner = std::get<PickleTuple>(tree.at(outer[1])).items;
  ASSERT_EQ(inner.size(), 4U);
  EXPECT_EQ(inner[0], outer[0]);
  EXPECT_EQ(inner[1], outer[0]);
  EXPECT_EQ(inner[2], inner[3]);
}

TEST(Unpickler, RebuildsTensors) {
  const pickle::Tensor tensor{.key = "12", .type = "BFloat16Storage", .offset = 4, .shape = {2}};
  std::string bytes = tensor.Bytes();
  pickle::Tensor made = tensor;
  made.strides = {1};
  const PickleTree tree = Unpickled(made.Bytes());
  const auto& read = std::get<PickleTensor>(tree.root());
  EXPECT_EQ(read.storage.key, "12");
  EXPECT_EQ(read.storage.dtype, DType::kBF16);
  EXPECT_EQ(read.storage.elements, 6);
  EXPECT_EQ(read.offset, 4);
  EXPECT_EQ(read.shape, std::vector<int64_t>{2});
  const PickleTree parameter = Unpickled("ctorch._utils\n_rebuild_parameter\n(" + made.Bytes() +
                                         "\x89" + "ccollections\nOrderedDict\n)RtR");
  EXPECT_TRUE(std::holds_alternative<PickleTensor>(parameter.root()));
  ExpectPickleRefused(bytes,
                      "arguments of _rebuild_tensor_v2 of other types");  // one size, two strides
}

TEST(Unpickler, ReadsAnOrderedDictWithAttributes) {
  const PickleTree tree =
      Unpickled("ccollections\nOrderedDict\n)R(" + pickle::Text("b") + "K\x01" + pickle::Text("a") +
                "K\x02" + "K\x07K\x03u}" + pickle::Text("_metadata") + "}sb");
  const auto& dict = std::get<PickleDict>(tree.root());
  ASSERT_EQ(dict.items.size(), 3U);
  EXPECT_EQ(std::get<std::string>(tree.at(dict.items[0].first)), "b");
  ASSERT_NE(tree.Find(tree.root(), "a"), nullptr);
  EXPECT_EQ(std::get<int64_t>(*tree.Find(tree.root(), "a")), 2);
  EXPECT_EQ(tree.Find(tree.root(), "_metadata"), nullptr);
  EXPECT_EQ(std::get<int64_t>(tree.at(dict.by_key.at(int64_t{7}))), 3);
}

TEST(Unpickler, ReadsStackGlobalsSizesAndDtypes) {
  const PickleTree tree = Unpickled(
      "\x95\x01\x00\x00\x00\x00\x00\x00\x00\x8C\x05torch\x8C\x07"s
      "float32\x93"s
      "ctorch\nSize\n(K\x02K\x03t\x85R\x86"s);
  const auto& items = std::get<PickleTuple>(tree.root()).items;
  EXPECT_EQ(std::get<PickleName>(tree.at(items[0])).name, "torch.float32");
  EXPECT_EQ(DescribePickle(tree.at(items[1])), "a tuple of 2");
}

TEST(Unpickler, RefusesGlobalsByNameAndPlace) {
  ExpectPickleRefused("cposix\nsystem\n" + pickle::Text("true") + "\x85R",
                      "byte 2 of data.pkl: got the global \"posix.system\"");
  ExpectPickleRefused("Nccollections\nOrderedDict2\n)R", "byte 3 of data.pkl");
  ExpectPickleRefused("ctorch\n_utils._rebuild_tensor_v2\n)R",
                      "\"torch._utils._rebuild_tensor_v2\"");
  ExpectPickleRefused(
      "\x8C\x08"
      "builtins\x8C\x04"
      "eval\x93",
      "\"builtins.eval\"");
  ExpectPickleRefused("ctorch.jit\n_load\n", "\"torch.jit._load\"");
  ExpectPickleRefused("c" + std::string(100, 'a') + "\n" + std::string(100000, 'b') + "\n",
                      "the global");
  ExpectPickleRefused("cposix", "got GLOBAL without its names");
  ExpectPickleRefused("K\x01K\x02\x93", "got STACK_GLOBAL without strings");
}

TEST(Unpickler, RefusesOpcodesByName) {
  for (const auto& [body, name] :
       std::vector<std::pair<std::string, std::string>>{{"(iposix\nsystem\n", "INST"},
                                                        {"(o", "OBJ"},
                                                        {"N)\x81", "NEWOBJ"},
                                                        {"N)}\x92", "NEWOBJ_EX"},
                                                        {"\x82\x01", "EXT1"},
                                                        {"Pid\n", "PERSID"},
                                                        {"I1\n", "INT"},
                                                        {"S'a'\n", "STRING"},
                                                        {"U\x01"
                                                         "a",
                                                         "SHORT_BINSTRING"},
                                                        {"N2", "DUP"},
                                                        {"\x8F", "EMPTY_SET"},
                                                        {"\x97", "NEXT_BUFFER"},
                                                        {"\xFF", "0xFF"}}) {
    ExpectPickleRefused(body, "got opcode " + name + ", expected only those of plain values");
  }
}

TEST(Unpickler, RefusesReduceAndBuildOfAnythingElse) {
  ExpectPickleRefused("N)R", "REDUCE of None");
  ExpectPickleRefused("ccollections\nOrderedDict\nNR", "REDUCE of collections.OrderedDict");
  ExpectPickleRefused("ccollections\nOrderedDict\n(]tR",
                      "REDUCE of collections.OrderedDict with 1");
  ExpectPickleRefused("ctorch\nFloatStorage\n)R", "REDUCE of torch.FloatStorage with 0 arguments");
  ExpectPickleRefused("ctorch\nfloat32\n)R", "REDUCE of torch.float32");
  ExpectPickleRefused("ctorch._utils\n_rebuild_parameter\n(NN\x89tR", "_rebuild_parameter with 3");
  ExpectPickleRefused("}}b", "BUILD of a dict of 0 keys with a dict of 0 keys");
  ExpectPickleRefused("ccollections\nOrderedDict\n)RNb", "with None, expected an OrderedDict with");
  ExpectPickleRefused("ccollections\nOrderedDict\n}b", "BUILD of collections.OrderedDict");
  ExpectPickleRefused(pickle::Text("0") + "Q", "a persistent id that is the string \"0\"");
}

TEST(Unpickler, RefusesTensorsWithWrongArguments) {
  const auto expect = [](const pickle::Tensor& tensor, const std::string& says) {
    ExpectPickleRefused(tensor.Bytes(), says);
  };
  expect({.shape = {-1, 3}}, "none negative");
  expect({.strides = {-3, 1}}, "none negative");
  expect({.offset = -1}, "none negative");
  expect({.storage_elements = -1}, "expected ('storage', type, key, location, elements)");
  expect({.type = "float32"}, "a persistent id");
  expect({.key = std::string(65, '0')}, "a persistent id");
  expect({.shape = std::vector<int64_t>(17, 1), .strides = std::vector<int64_t>(17, 1)},
         "at most 16");
}

TEST(Unpickler, RefusesCyclesDepthAndSharingThatExplodes) {
  ExpectPickleRefused(
      "]q\x01h\x01"
      "a",
      "got a container that contains itself");
  ExpectPickleRefused("}q\x01" + pickle::Text("k") +
                          "](h\x01"
                          "es",
                      "contains itself");
  ExpectPickleRefused(std::string(40, ']') + std::string(39, 'a'), "got more than 32 levels");
  ExpectPickleRefused(std::string(200000, ']') + std::string(199999, 'a'),
                      "got more than 32 levels");
  Unpickled(std::string(32, ']') + std::string(31, 'a'));
  std::string doubling = "K\x01";
  for (int level = 0; level < 30; ++level) {
    const std::string index(1, static_cast<char>(level));
    doubling += "q" + index + "h" + index + "\x86";
  }
  ExpectPickleRefused(doubling, "shared values that unfold to more than the limit");
}

TEST(Unpickler, RefusesMoreThanItsLimits) {
  ExpectPickleRefused("(" + std::string(1'000'001, 'N') + "t", "got more values than the limit");
  std::string opcodes;
  for (int i = 0; i < 5'000'001; ++i) opcodes += "h\x01";
  ExpectPickleRefused("Nq\x01(" + opcodes + opcodes + "t", "got more opcodes than the limit");
}

TEST(Unpickler, RefusesBrokenStreams) {
  ExpectPickleRefused(
      "X\xFF\xFF\xFF\xFF"
      "abc",
      "BINUNICODE with 4294967295 bytes to follow");
  ExpectPickleRefused("\x8E" + LittleEndian(~uint64_t{0}, 8),
                      "BINBYTES8 with 18446744073709551615");
  ExpectPickleRefused("X\x01\x00\x00\x00\xFF"s,
                      "got the string \"\\xFF\", expected a string in UTF-8");
  ExpectPickleRefused(
      "\x8A\x09"
      "123456789",
      "an integer of 9 bytes");
  ExpectPickleRefused("\x80\x01", "got pickle protocol 1");
  ExpectPickleRefused("\x95" + LittleEndian(1000, 8), "got a frame beyond the end");
  ExpectPickleRefused("h\x07", "got memo 7, expected one that was stored before");
  ExpectPickleRefused("q\x01", "an operand that is not on the stack");
  ExpectPickleRefused("N(q\x01", "an operand that is not on the stack");  // not below the mark
  ExpectPickleRefused("t", "an opcode that needs a MARK");
  ExpectPickleRefused("NNa", "items for None, expected a list");
  ExpectPickleRefused("]K\x01Ns", "items for a list of 0, expected a dict");
  ExpectPickleRefused("}(K\x01u", "a key without a value");
  ExpectPickleRefused("}NNs", "got the key None, expected a string or an integer");
  ExpectPickleRefused("}(K\x01NK\x01Nu", "got the key the integer 1 twice");
  ExpectPickleRefused("NN", "got 2 values and 0 marks at STOP");
  ExpectPickleRefused("N.N", "and 2 bytes after it");
  EXPECT_FALSE(Unpickle("", "data.pkl").ok());
  EXPECT_FALSE(Unpickle("\x80\x02N"s, "data.pkl").ok());
  EXPECT_FALSE(Unpickle("N.", "data.pkl").ok());  // protocol 0
}

TEST(Unpickler, SurvivesEveryTruncationAndEveryChangedByte) {
  const std::string whole = pickle::Document(
      pickle::Dict({pickle::Text("w"), pickle::Tensor().Bytes(), pickle::Text("n"), "K\x01"}));
  ASSERT_TRUE(Unpickle(whole, "data.pkl").ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(Unpickle(std::string_view(whole).substr(0, length), "data.pkl").ok()) << length;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = whole;
      changed[i] = static_cast<char>(byte);
      const Result<PickleTree> tree = Unpickle(changed, "data.pkl");
      EXPECT_TRUE(tree.ok() || !tree.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace lookback::tools
