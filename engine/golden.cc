#include "engine/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/kernels.h"

namespace lookback {
namespace {

/// Options that hold one golden and no more.
EngineOptions Small(EngineOptions options, const Golden& golden) {
  options.max_context = std::ssize(golden.ids);
  options.max_chunk = options.max_step_rows = kGoldenTokens;
  options.limits.max_requests = 1;
  return options;
}

/// Calls `sink(index of the position, logits)` for every position of the golden.
template <typename Sink>
Status RunGolden(const std::shared_ptr<const LoadedModel>& model, const Golden& golden,
                 const EngineOptions& options, const Sink& sink) {
  LOOKBACK_ASSIGN_OR_RETURN(const auto evaluator, Evaluator::Create(model, options));
  size_t next = 0;
  return evaluator->Run(golden.ids, [&](int64_t position, std::span<const float> logits) -> Status {
    if (next == golden.positions.size() || position != golden.positions[next]) return {};
    sink(next++, logits);
    return {};
  });
}

template <typename T>
Result<std::vector<T>> ReadTensor(const SafetensorsFile& file, std::string_view name, DType dtype,
                                  std::span<const int64_t> shape) {
  LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file.Tensor(name, dtype, shape));
  std::vector<T> values(static_cast<size_t>(view.elements()));
  std::memcpy(values.data(), view.data.data(), view.data.size());
  return values;
}

/// The length of a vector of 1 to `most` values.
Result<int64_t> ReadLength(const SafetensorsFile& file, std::string_view name, int64_t most) {
  LOOKBACK_ASSIGN_OR_RETURN(const TensorView view, file.Tensor(name));
  if (view.shape.size() == 1 && view.shape[0] >= 1 && view.shape[0] <= most) return view.shape[0];
  return Mismatch(StrCat("shape of ", name, " in ", file.path()), ShapeString(view.shape),
                  StrCat("[1] to [", most, "]"));
}

Status CheckRange(const SafetensorsFile& file, std::string_view name,
                  std::span<const int32_t> values, int64_t end) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && values[i] < end) continue;
    return Mismatch(StrCat(name, "[", i, "] in ", file.path()), values[i],
                    StrCat("0 to ", end - 1));
  }
  return {};
}

}  // namespace

Golden EmptyGolden(const ModelConfig& config) {
  Golden golden;
  const int64_t tokens = std::min(kGoldenTokens, config.train_context);
  for (int64_t i = 0; i < tokens; ++i) {
    golden.ids.push_back(static_cast<int32_t>((i * 7919 + 13) % config.vocab_size));
  }
  // Spread over the prompt, its last position among them.
  const int64_t count = std::min(kGoldenPositions, tokens);
  for (int64_t i = 1; i <= count; ++i) {
    golden.positions.push_back(static_cast<int32_t>(i * tokens / count - 1));
  }
  golden.top = std::min(kGoldenTop, config.vocab_size);
  golden.top_ids.resize(golden.positions.size() * static_cast<size_t>(golden.top));
  golden.top_logits.resize(golden.top_ids.size());
  return golden;
}

Status ComputeGolden(const std::shared_ptr<const LoadedModel>& model, Golden& golden) {
  EngineOptions options;
  options.kernels = kernels::ReferenceKernels().name;
  const auto top = static_cast<size_t>(golden.top);
  std::vector<int32_t> order(static_cast<size_t>(model->config().vocab_size));
  return RunGolden(
      model, golden, Small(options, golden), [&](size_t index, std::span<const float> logits) {
        std::iota(order.begin(), order.end(), 0);
        const auto larger = [&](int32_t a, int32_t b) {
          const float x = logits[static_cast<size_t>(a)];
          const float y = logits[static_cast<size_t>(b)];
          return x > y || (x == y && a < b);
        };
        std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top),
                          order.end(), larger);
        for (size_t i = 0; i < top; ++i) {
          golden.top_ids[index * top + i] = order[i];
          golden.top_logits[index * top + i] = logits[static_cast<size_t>(order[i])];
        }
      });
}

Result<Golden> ReadGolden(const Checkpoint& checkpoint) {
  const SafetensorsFile& file = checkpoint.file();
  const int64_t vocab = checkpoint.config().vocab_size;
  Golden golden;
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t tokens,
                            ReadLength(file, "lookback.golden.ids", kGoldenTokens));
  LOOKBACK_ASSIGN_OR_RETURN(const int64_t positions,
                            ReadLength(file, "lookback.golden.positions", kGoldenPositions));
  golden.top = std::min(kGoldenTop, vocab);
  const int64_t shape[] = {positions, golden.top};
  const auto ints = [&](std::string_view name, std::span<const int64_t> of) {
    return ReadTensor<int32_t>(file, name, DType::kI32, of);
  };
  LOOKBACK_ASSIGN_OR_RETURN(golden.ids, ints("lookback.golden.ids", {&tokens, 1}));
  LOOKBACK_ASSIGN_OR_RETURN(golden.positions, ints("lookback.golden.positions", {&positions, 1}));
  LOOKBACK_ASSIGN_OR_RETURN(golden.top_ids, ints("lookback.golden.top_ids", shape));
  LOOKBACK_ASSIGN_OR_RETURN(
      golden.top_logits, ReadTensor<float>(file, "lookback.golden.top_logits", DType::kF32, shape));
  LOOKBACK_RETURN_IF_ERROR(CheckRange(file, "lookback.golden.ids", golden.ids, vocab));
  LOOKBACK_RETURN_IF_ERROR(CheckRange(file, "lookback.golden.top_ids", golden.top_ids, vocab));
  LOOKBACK_RETURN_IF_ERROR(CheckRange(file, "lookback.golden.positions", golden.positions, tokens));
  if (std::adjacent_find(golden.positions.begin(), golden.positions.end(),
                         std::greater_equal<>()) != golden.positions.end()) {
    return Mismatch(StrCat("lookback.golden.positions in ", file.path()), "another order",
                    "positions in ascending order");
  }
  return golden;
}

void GoldenError::Add(int64_t at, int64_t token, double got, double expected) {
  low_ = any_ ? std::min(low_, expected) : expected;
  high_ = any_ ? std::max(high_, expected) : expected;
  any_ = true;
  range = high_ - low_;
  const double off = std::abs(got - expected);
  const double error = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
  if (error <= worst) return;
  worst = error;
  position = at;
  id = token;
}

Result<GoldenError> CheckGolden(const std::shared_ptr<const LoadedModel>& model,
                                const Golden& golden, EngineOptions options) {
  GoldenError error;
  const auto top = static_cast<size_t>(golden.top);
  LOOKBACK_RETURN_IF_ERROR(RunGolden(model, golden, Small(std::move(options), golden),
                                     [&](size_t index, std::span<const float> logits) {
                                       for (size_t i = index * top; i < (index + 1) * top; ++i) {
                                         const int32_t id = golden.top_ids[i];
                                         error.Add(golden.positions[index], id,
                                                   logits[static_cast<size_t>(id)],
                                                   golden.top_logits[i]);
                                       }
                                     }));
  return error;
}

}  // namespace lookback
