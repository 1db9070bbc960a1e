#include "tools/convert/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/safetensors.h"
#include "tools/convert/input_file.h"
#include "tools/convert/input_hash.h"

namespace lookback::tools {

namespace {

constexpr int64_t kNativeForwards = 8;
// An adapter updates every fifth forward, and its choices move from zero by 15 % an update.
constexpr int64_t kAdapterForwards = 125;
constexpr int64_t kMaxForwards = int64_t{1} << 20;
constexpr int64_t kBytesPerToken = 6;  // first guess of how much text is needed
constexpr int64_t kSpareTokens = 64;   // a cut word changes the last tokens of a piece of text
constexpr int64_t kMaxPieceBytes = int64_t{1} << 30;

/// Ids of text, in memory.
class TextIds : public CalibrationIds {
 public:
  explicit TextIds(std::vector<int32_t> ids) : ids_(std::move(ids)) {}
  std::vector<int32_t> Forward(int64_t index) const override {
    const auto begin = ids_.begin() + index * sequences * tokens;
    return {begin, begin + sequences * tokens};
  }

 private:
  std::vector<int32_t> ids_;
};

/// Ids of a mapped tensor [forwards][sequences][tokens].
class TensorIds : public CalibrationIds {
 public:
  TensorIds(std::unique_ptr<SafetensorsFile> file, TensorView view)
      : file_(std::move(file)), view_(std::move(view)) {
    forwards = view_.shape[0];
    sequences = view_.shape[1];
    tokens = view_.shape[2];
  }
  std::vector<int32_t> Forward(int64_t index) const override {
    std::vector<int32_t> ids(static_cast<size_t>(sequences * tokens));
    const std::byte* from =
        view_.data.data() + index * sequences * tokens * DTypeBytes(view_.dtype);
    if (view_.dtype == DType::kI32) {
      std::memcpy(ids.data(), from, ids.size() * sizeof(int32_t));
      return ids;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      int64_t wide = 0;
      std::memcpy(&wide, from + i * sizeof wide, sizeof wide);
      // What does not fit is no id of any vocabulary, and is refused as such.
      ids[i] = wide >= 0 && wide <= INT32_MAX ? static_cast<int32_t>(wide) : -1;
    }
    return ids;
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
  TensorView view_;
};

Result<std::unique_ptr<CalibrationIds>> OpenTensor(const CalibrationRequest& request) {
  LOOKBACK_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                            SafetensorsFile::Open(request.ids));
  LOOKBACK_ASSIGN_OR_RETURN(TensorView view, file->Tensor("calib_ids"));
  const std::string what = StrCat("calib_ids in ", request.ids);
  if (view.dtype != DType::kI32 && view.dtype != DType::kI64) {
    return Mismatch(StrCat("dtype of ", what), DTypeName(view.dtype), "I32 or I64");
  }
  if (view.shape.size() != 3 || view.elements() == 0) {
    return Mismatch(StrCat("shape of ", what), ShapeString(view.shape),
                    "[forwards,sequences,tokens]");
  }
  auto ids = std::make_unique<TensorIds>(std::move(file), std::move(view));
  if (request.batches > ids->forwards) {
    return Mismatch("--calibrate-batches", request.batches,
                    StrCat("at most the ", ids->forwards, " forwards of ", what));
  }
  if (request.batches > 0) ids->forwards = request.batches;
  return std::unique_ptr<CalibrationIds>(std::move(ids));
}

/// `bytes` without a character that is cut off at its end.
std::string_view WholeCharacters(std::string_view bytes) {
  size_t end = bytes.size();
  while (end > 0 && bytes.size() - end < 3 &&
         (static_cast<uint8_t>(bytes[end - 1]) & 0xC0) == 0x80) {
    --end;
  }
  if (end == 0 || static_cast<uint8_t>(bytes[end - 1]) < 0x80) return bytes;
  const auto lead = static_cast<uint8_t>(bytes[end - 1]);
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  return bytes.size() - (end - 1) >= length ? bytes : bytes.substr(0, end - 1);
}

/// The first `count` ids of the text. Only as much of the file is read as they need, so that memory
/// does not grow with the text.
Result<std::vector<int32_t>> FirstIds(const Tokenizer& tokenizer, const std::string& path,
                                      int64_t count, const std::string& needed) {
  LOOKBACK_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  for (int64_t piece = (count + kSpareTokens) * kBytesPerToken;; piece *= 2) {
    const bool all = piece >= file.bytes();
    const int64_t size = std::min(piece, file.bytes());
    if (size > kMaxPieceBytes) {
      return Mismatch(StrCat("text ", path), StrCat("more than ", size, " bytes to read"),
                      StrCat("at most ", kMaxPieceBytes, " for ", count, " tokens"));
    }
    LOOKBACK_ASSIGN_OR_RETURN(const std::string bytes, file.ReadString(0, size));
    Result<std::vector<int32_t>> ids =
        tokenizer.Encode(all ? std::string_view(bytes) : WholeCharacters(bytes), /*special=*/false);
    if (!ids.ok()) return std::move(ids).status().WithPrefix(StrCat("text ", path));
    if (std::ssize(*ids) >= count + (all ? 0 : kSpareTokens)) {
      ids->resize(static_cast<size_t>(count));
      return ids;
    }
    if (all) {
      return Mismatch(StrCat("text ", path), StrCat(ids->size(), " tokens"), needed);
    }
  }
}

int64_t TrainingTokens(const CalibrationText& text, const controller::Config& config) {
  const auto* adapter = std::get_if<controller::AdapterConfig>(&config);
  return adapter != nullptr && adapter->seq_len > 0 ? adapter->seq_len : text.train_context;
}

Result<std::unique_ptr<CalibrationIds>> OpenText(const CalibrationText& text,
                                                 const controller::Config& config,
                                                 const CalibrationRequest& request) {
  if (text.tokenizer == nullptr) {
    return Status(StatusCode::kFailedPrecondition,
                  StrCat("text ", request.text, ": got no tokenizer (", text.no_tokenizer_reason,
                         "), expected one in the model, or ids instead of text"));
  }
  const bool native = std::holds_alternative<controller::NativeConfig>(config);
  const int64_t forwards = request.batches > 0 ? request.batches
                           : native            ? kNativeForwards
                                               : kAdapterForwards;
  const int64_t tokens = request.context > 0 ? request.context : TrainingTokens(text, config);
  if (forwards > kMaxForwards || tokens > INT32_MAX) {
    return Mismatch("calibration", StrCat(forwards, " forwards of ", tokens, " tokens"),
                    StrCat("at most ", kMaxForwards, " of ", INT32_MAX));
  }
  const std::string needed =
      StrCat("at least ", forwards * tokens, ": ", forwards, " forwards of ", tokens,
             " (--calibrate-batches and --calibrate-context ask for less)");
  LOOKBACK_ASSIGN_OR_RETURN(std::vector<int32_t> first,
                            FirstIds(*text.tokenizer, request.text, forwards * tokens, needed));
  auto ids = std::make_unique<TextIds>(std::move(first));
  ids->forwards = forwards;
  ids->sequences = 1;
  ids->tokens = tokens;
  return std::unique_ptr<CalibrationIds>(std::move(ids));
}

}  // namespace

CalibrationText CalibrationText::Of(const LoadedModel& model) {
  return {model.tokenizer.get(), model.no_tokenizer_reason, model.config().train_context};
}

Result<std::unique_ptr<CalibrationIds>> OpenCalibrationIds(const CalibrationText& text,
                                                           const controller::Config& config,
                                                           const CalibrationRequest& request) {
  if (request.text.empty() == request.ids.empty()) {
    return Mismatch("calibration input", request.asked() ? "text and ids" : "nothing",
                    "either a text or a file of ids");
  }
  if (request.batches < 0) {
    return Mismatch("--calibrate-batches", request.batches, "a number of forwards");
  }
  if (request.context < 0 || (request.context > 0 && request.text.empty())) {
    return Mismatch("--calibrate-context", request.context,
                    "a number of tokens, with a text (ids have their own length)");
  }
  return request.text.empty() ? OpenTensor(request) : OpenText(text, config, request);
}

std::string DescribeRegime(const controller::Config& config) {
  if (const auto* adapter = std::get_if<controller::AdapterConfig>(&config)) {
    return StrCat("adapter, ", controller::NameOf(adapter->regime));
  }
  const auto& native = std::get<controller::NativeConfig>(config);
  switch (native.controller_choice_mode) {
    case controller::ChoiceMode::kFixedTokens:
      return StrCat("fixed_window_", native.fixed_choice);
    case controller::ChoiceMode::kFixedIndex:
      return StrCat("fixed_window_idx_", native.fixed_choice);
    case controller::ChoiceMode::kLearned:
    case controller::ChoiceMode::kOracleAlternating:
      break;
  }
  if (!native.apply_window_control) return "window control off";
  if (!native.build_hierarchy) return "grouping_off";
  std::string text(controller::NameOf(native.hierarchy_ablation_mode));
  if (native.hierarchy_ablation_mode == controller::HierarchyMode::kAdaptive &&
      native.reuse_group_hierarchy) {
    text = "reuse_group_hierarchy";
  }
  if (native.controller_choice_mode == controller::ChoiceMode::kOracleAlternating) {
    text += ", oracle_alternating";
  }
  return StrCat(text, ", depth ", native.max_depth);
}

Result<Calibration> Calibrate(const Checkpoint& checkpoint, const controller::Config& config,
                              const CalibrationRequest& request, const CalibrationIds& ids,
                              const AfterForward& after) {
  CalibrationOptions options;
  options.sequences = ids.sequences;
  options.tokens = ids.tokens;
  options.threads = request.threads;
  options.cpus = request.cpus;
  options.bf16_features = request.bf16_features;
  LOOKBACK_ASSIGN_OR_RETURN(const std::unique_ptr<Calibrator> calibrator,
                            Calibrator::Create(checkpoint, config, options));
  const auto start = std::chrono::steady_clock::now();
  for (int64_t k = 0; k < ids.forwards; ++k) {
    LOOKBACK_RETURN_IF_ERROR(calibrator->Forward(ids.Forward(k)).WithPrefix(StrCat("forward ", k)));
    if (after) LOOKBACK_RETURN_IF_ERROR(after(k, ids.forwards, *calibrator));
  }
  Calibration result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.forwards = ids.forwards;
  result.tokens = ids.forwards * ids.sequences * ids.tokens;
  LOOKBACK_ASSIGN_OR_RETURN(const std::string hash, HashFile(request.path()));
  LOOKBACK_ASSIGN_OR_RETURN(
      result.table,
      calibrator->Table(StrCat("controller (", DescribeRegime(config), "): ", ids.forwards,
                               " forwards of ", ids.sequences, " x ", ids.tokens, " tokens of ",
                               Quoted(std::filesystem::path(request.path()).filename().string()),
                               ", SHA-256 ", hash)));
  return result;
}

}  // namespace lookback::tools
