#include "tools/convert/pickle_names.h"

#include <cstdio>

#include "engine/status.h"

namespace lookback::tools {

namespace {

struct OpcodeName {
  unsigned char opcode;
  std::string_view name;
};

constexpr OpcodeName kOpcodes[] = {
    {'(', "MARK"},
    {'.', "STOP"},
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'F', "FLOAT"},
    {'I', "INT"},
    {'J', "BININT"},
    {'K', "BININT1"},
    {'L', "LONG"},
    {'M', "BININT2"},
    {'N', "NONE"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {'R', "REDUCE"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},
    {'X', "BINUNICODE"},
    {'a', "APPEND"},
    {'b', "BUILD"},
    {'c', "GLOBAL"},
    {'d', "DICT"},
    {'}', "EMPTY_DICT"},
    {'e', "APPENDS"},
    {'g', "GET"},
    {'h', "BINGET"},
    {'i', "INST"},
    {'j', "LONG_BINGET"},
    {'l', "LIST"},
    {']', "EMPTY_LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {'q', "BINPUT"},
    {'r', "LONG_BINPUT"},
    {'s', "SETITEM"},
    {'t', "TUPLE"},
    {')', "EMPTY_TUPLE"},
    {'u', "SETITEMS"},
    {'G', "BINFLOAT"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {0x80, "PROTO"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x85, "TUPLE1"},
    {0x86, "TUPLE2"},
    {0x87, "TUPLE3"},
    {0x88, "NEWTRUE"},
    {0x89, "NEWFALSE"},
    {0x8A, "LONG1"},
    {0x8B, "LONG4"},
    {0x8C, "SHORT_BINUNICODE"},
    {0x8D, "BINUNICODE8"},
    {0x8E, "BINBYTES8"},
    {0x8F, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"},
    {0x94, "MEMOIZE"},
    {0x95, "FRAME"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
};

constexpr PickleGlobal kGlobals[] = {
    {PickleGlobal::kOrderedDict, "collections.OrderedDict"},
    {PickleGlobal::kRebuildTensor, "torch._utils._rebuild_tensor_v2"},
    {PickleGlobal::kRebuildParameter, "torch._utils._rebuild_parameter"},
    {PickleGlobal::kSize, "torch.Size"},
    {PickleGlobal::kStorageType, "torch.DoubleStorage", DType::kF64},
    {PickleGlobal::kStorageType, "torch.FloatStorage", DType::kF32},
    {PickleGlobal::kStorageType, "torch.HalfStorage", DType::kF16},
    {PickleGlobal::kStorageType, "torch.BFloat16Storage", DType::kBF16},
    {PickleGlobal::kStorageType, "torch.LongStorage", DType::kI64},
    {PickleGlobal::kStorageType, "torch.IntStorage", DType::kI32},
    {PickleGlobal::kStorageType, "torch.ShortStorage", DType::kI16},
    {PickleGlobal::kStorageType, "torch.CharStorage", DType::kI8},
    {PickleGlobal::kStorageType, "torch.ByteStorage", DType::kU8},
    {PickleGlobal::kStorageType, "torch.BoolStorage", DType::kBool},
    {PickleGlobal::kDType, "torch.float64"},
    {PickleGlobal::kDType, "torch.float32"},
    {PickleGlobal::kDType, "torch.float16"},
    {PickleGlobal::kDType, "torch.bfloat16"},
    {PickleGlobal::kDType, "torch.int64"},
    {PickleGlobal::kDType, "torch.int32"},
    {PickleGlobal::kDType, "torch.int16"},
    {PickleGlobal::kDType, "torch.int8"},
    {PickleGlobal::kDType, "torch.uint8"},
    {PickleGlobal::kDType, "torch.bool"},
};

}  // namespace

std::string PickleOpcodeName(unsigned char opcode) {
  for (const OpcodeName& known : kOpcodes) {
    if (known.opcode == opcode) return std::string(known.name);
  }
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", opcode);
  return text;
}

std::optional<PickleGlobal> FindPickleGlobal(std::string_view module, std::string_view name) {
  // Piece by piece: module "torch" with name "_utils.f" is another global to Python.
  for (const PickleGlobal& global : kGlobals) {
    const size_t dot = global.name.rfind('.');
    if (global.name.substr(0, dot) == module && global.name.substr(dot + 1) == name) return global;
  }
  return std::nullopt;
}

}  // namespace lookback::tools
