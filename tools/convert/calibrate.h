// Windows from an AAH controller: runs it over text or ids, as the release does in evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/calibration.h"
#include "engine/engine.h"

namespace lookback::tools {

/// What the command line asks for.
struct CalibrationRequest {
  std::string text;     ///< a UTF-8 file, or ""
  std::string ids;      ///< a safetensors file with calib_ids [K,B,T], or ""
  int64_t batches = 0;  ///< forwards; 0 = all of `ids`, or of text 8 (native) or 125 (adapter)
  int64_t context =
      0;  ///< tokens of a sequence of `text`; 0 = what the controller was trained with
  int64_t threads = 0;  ///< these two: see EngineOptions
  std::vector<int> cpus;
  bool bf16_features = false;  ///< see CalibrationOptions

  bool asked() const { return !text.empty() || !ids.empty(); }
  const std::string& path() const { return text.empty() ? ids : text; }
};

/// The inputs of a calibration, one forward after the other. Holds the ids of text, at most those
/// that are needed; a file of ids is read forward by forward.
class CalibrationIds {
 public:
  virtual ~CalibrationIds() = default;
  virtual std::vector<int32_t> Forward(int64_t index) const = 0;  ///< [sequences][tokens]

  int64_t forwards = 0;
  int64_t sequences = 0;
  int64_t tokens = 0;
};

/// What text is made into ids with.
struct CalibrationText {
  const Tokenizer* tokenizer = nullptr;
  std::string no_tokenizer_reason;  ///< why it is null
  int64_t train_context = 0;        ///< of the model, tokens

  static CalibrationText Of(const LoadedModel& model);
};

/// Errors: both or neither of text and ids, a model without tokenizer, too little text (says how
/// many tokens there are and how many are needed), a tensor of another dtype or shape, more
/// forwards than it has.
Result<std::unique_ptr<CalibrationIds>> OpenCalibrationIds(const CalibrationText& text,
                                                           const controller::Config& config,
                                                           const CalibrationRequest& request);

/// The regime in a few words: "adaptive", "grouping_off", "adapter, shallow_freeze".
std::string DescribeRegime(const controller::Config& config);

/// Called after forward `index` of `forwards`. An error ends the calibration.
using AfterForward =
    std::function<Status(int64_t index, int64_t forwards, const Calibrator& calibrator)>;

struct Calibration {
  WindowTable table;  ///< of the last forward; says what it was made from
  int64_t forwards = 0;
  int64_t tokens = 0;  ///< in all
  double seconds = 0.0;
};

/// Runs the controller that `checkpoint` carries, with `config`, over `ids`, which were made from
/// `request`.
Result<Calibration> Calibrate(const Checkpoint& checkpoint, const controller::Config& config,
                              const CalibrationRequest& request, const CalibrationIds& ids,
                              const AfterForward& after);

}  // namespace lookback::tools
