// The weights of a Hugging Face folder: model.safetensors, or shards behind an index.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/safetensors.h"
#include "engine/status.h"

namespace lookback::tools {

/// Opened and checked weight files. Views stay valid while this lives.
class HfSource {
 public:
  /// Opens what is in `folder`. A shard's name may not leave the folder, no tensor may lie in two
  /// shards, and the index must say the truth.
  static Result<HfSource> Open(const std::string& folder);

  struct Located {
    const SafetensorsFile* file;
    TensorView view;
  };
  /// The tensor and the file it lies in. NotFound names tensor and folder.
  Result<Located> Find(std::string_view name) const;
  /// Name → file of every tensor.
  const std::map<std::string, const SafetensorsFile*, std::less<>>& tensors() const {
    return tensors_;
  }
  /// Names in the folder of all files that were read, the index included.
  const std::vector<std::string>& file_names() const { return file_names_; }

 private:
  Status OpenShard(const std::string& name);
  Status OpenIndex();

  std::string folder_;
  std::vector<std::string> file_names_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> tensors_;
};

}  // namespace lookback::tools
