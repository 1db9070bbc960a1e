// How a sublayer's input is read and its output written: the residual stream of a mode (mhar.md).
// The forward pass only says Read(site) and Write(site); every mode is one implementation of this.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/config.h"
#include "engine/ops.h"
#include "engine/weights.h"

namespace lookback {

/// A place in the network where the stream is read.
struct Site {
  enum Kind : uint8_t { kAttention, kMlp, kFinal } kind;
  int64_t layer;  ///< unused by kFinal
};

/// A normalized sublayer input: `groups` inputs [rows][D] one after another. There is one, except
/// where a mode routes a separate input to every KV head: then group g feeds KV head g.
struct SublayerInput {
  const float* data;
  int64_t groups;
};

/// Sees what a stream reads: for checks against a reference.
class ResidualProbe {
 public:
  virtual ~ResidualProbe() = default;
  /// The depth softmax of a routing read, [rows][heads][sources], the null source first. `input`
  /// counts the inputs of a site that has several.
  virtual void OnShares(Site site, int64_t input, int64_t rows, int64_t heads, int64_t sources,
                        const float* shares) = 0;
  /// What enters the last norm, [rows][D].
  virtual void OnFinalState(int64_t rows, const float* state) = 0;
};

/// Lives as long as the model; its contents live for one step of `rows` rows. Pointers that it
/// hands out are valid until the next call.
class ResidualStream {
 public:
  virtual ~ResidualStream() = default;

  /// Starts a step. The caller writes the embeddings, [rows][D], to the returned array.
  virtual float* Begin(int64_t rows) = 0;
  /// Call once the embeddings are written.
  virtual void BeginDone() = 0;
  /// The input of `site`, through `norm`.
  virtual SublayerInput Read(Site site, const Norm& norm) = 0;
  /// Where the sublayer at `site` is to write its output, [rows][D].
  virtual float* Output(Site site) = 0;
  /// The output at `site` has been written.
  virtual void Write(Site site) = 0;

  virtual int64_t bytes() const = 0;

  /// Tells `probe` of every read from now on; null for nobody. Allocates.
  virtual void SetProbe(ResidualProbe* probe) = 0;
};

/// The stream of config.residual, for steps of at most max_rows rows. Keeps references to all of
/// its arguments.
std::unique_ptr<ResidualStream> MakeResidualStream(const ModelConfig& config,
                                                   const Weights& weights, Ops& ops,
                                                   int64_t max_rows);

/// Most sources any read of the mode has (1 at least), the null source not counted: what Ops must
/// have scratch for.
int64_t MaxRoutingSources(const ModelConfig& config);

}  // namespace lookback
