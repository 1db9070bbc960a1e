// `lookback logits`: logits of every position of given ids, without a server.
#include <CLI/CLI.hpp>
#include <cstring>

#include "engine/safetensors.h"
#include "tools/commands.h"
#include "tools/engine_flags.h"

namespace lookback::tools {
namespace {

struct LogitsFlags {
  std::string file;
  std::string ids_file;
  std::string out;
  EngineFlags engine;
};

struct IdBatch {
  std::vector<int32_t> ids;  // [batch][length]
  int64_t batch = 0;
  int64_t length = 0;
};

Result<IdBatch> ReadIds(const std::string& path) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file->Tensor("input_ids"));
  const std::string what = StrCat("input_ids in ", path);
  if (view.dtype != DType::kI32 && view.dtype != DType::kI64) {
    return Mismatch(StrCat("dtype of ", what), DTypeName(view.dtype), "I32 or I64");
  }
  if (view.shape.size() != 2 || view.elements() == 0) {
    return Mismatch(StrCat("shape of ", what), ShapeString(view.shape), "[B,T], neither of them 0");
  }
  IdBatch batch{{}, view.shape[0], view.shape[1]};
  for (int64_t i = 0; i < view.elements(); ++i) {
    int64_t id = 0;
    if (view.dtype == DType::kI64) {
      std::memcpy(&id, view.data.data() + i * 8, 8);
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, view.data.data() + i * 4, 4);
      id = narrow;
    }
    if (id < 0 || id > INT32_MAX) return Mismatch(StrCat(what, "[", i, "]"), id, "a token id");
    batch.ids.push_back(static_cast<int32_t>(id));
  }
  return batch;
}

Status Run(const LogitsFlags& flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto model, LoadedModel::Open(flags.file));
  LOOKBACK_ASSIGN_OR_RETURN(const IdBatch batch, ReadIds(flags.ids_file));
  const EngineOptions options = flags.engine.Resolve();
  WarnBeyondTraining(model->config(), options);
  LOOKBACK_ASSIGN_OR_RETURN(const auto evaluator, Evaluator::Create(model, options));

  SafetensorsWriter writer(flags.out);
  writer.Declare("logits", DType::kF32, {batch.batch, batch.length, model->config().vocab_size});
  LOOKBACK_RETURN_IF_ERROR(writer.Begin());
  for (int64_t row = 0; row < batch.batch; ++row) {
    const std::span<const int32_t> ids = std::span(batch.ids).subspan(
        static_cast<size_t>(row * batch.length), static_cast<size_t>(batch.length));
    Status status = evaluator->Run(ids, [&](int64_t, std::span<const float> logits) {
      return writer.Append(std::as_bytes(logits));
    });
    LOOKBACK_RETURN_IF_ERROR(
        std::move(status).WithPrefix(StrCat("input_ids[", row, "] in ", flags.ids_file)));
  }
  return writer.Finish();
}

}  // namespace

void AddLogits(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command =
      app.add_subcommand("logits", "Write the logits of every position of given token ids");
  command->add_option("FILE", flags->file, "Converted checkpoint")->required();
  command->add_option("--ids-file", flags->ids_file, "safetensors file with input_ids [B,T]")
      ->required();
  command->add_option("--out", flags->out, "safetensors file to write: logits [B,T,V], f32")
      ->required();
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "Example:\n  lookback logits demo.safetensors --ids-file ids.safetensors --out "
      "logits.safetensors");
  command->callback([flags, &exit_code] { exit_code = Report(Run(*flags)); });
}

}  // namespace lookback::tools
