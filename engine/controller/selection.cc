#include "engine/controller/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/controller/inputs.h"

namespace lookback::controller {
namespace {

void Scale(double factor, std::vector<float>& values) {
  for (float& value : values) value *= static_cast<float>(factor);
}

/// [a, b, a − b, b − a]
std::vector<float> PairInput(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> input = a;
  input.insert(input.end(), b.begin(), b.end());
  for (size_t i = 0; i < a.size(); ++i) input.push_back(a[i] - b[i]);
  for (size_t i = 0; i < a.size(); ++i) input.push_back(b[i] - a[i]);
  return input;
}

void ScoreJointly(const Mlp& scorer, double scale, const Rows& inputs, const Groups& families,
                  Rows& logits) {
  for (const std::vector<int64_t>& family : families) {
    for (size_t i = 0; i + 1 < family.size(); i += 2) {
      const auto a = static_cast<size_t>(family[i]), b = static_cast<size_t>(family[i + 1]);
      std::vector<float> both = scorer(PairInput(inputs[a], inputs[b]));
      Scale(scale, both);
      const auto half = both.begin() + std::ssize(both) / 2;
      logits[a].assign(both.begin(), half);
      logits[b].assign(half, both.end());
    }
  }
}

void AddSiblingBias(const Mlp& network, double scale, const Rows& inputs, const Groups& families,
                    Rows& logits) {
  for (const std::vector<int64_t>& family : families) {
    for (const int64_t node : family) {
      const auto n = static_cast<size_t>(node);
      const std::vector<float> others = MeanOfOthers(inputs, family, node);
      std::vector<float> difference(inputs[n].size(), 0.0F);
      for (size_t i = 0; i < others.size(); ++i) difference[i] = inputs[n][i] - others[i];
      std::vector<float> bias = network(difference);
      Scale(scale, bias);
      for (size_t i = 0; i < bias.size(); ++i) logits[n][i] += bias[i];
    }
  }
}

}  // namespace

Rows LevelLogits(const Networks& networks, const NativeConfig& config, const Rows& inputs,
                 const Groups& families) {
  Rows logits;
  for (const std::vector<float>& input : inputs) {
    logits.push_back(networks.controller(input));
    Scale(config.controller_logit_scale, logits.back());
  }
  if (networks.joint) {
    ScoreJointly(*networks.joint, config.joint_output_scale, inputs, families, logits);
  }
  if (networks.sibling_bias) {
    AddSiblingBias(*networks.sibling_bias, config.pairwise_bias_scale, inputs, families, logits);
  }
  return logits;
}

int64_t Argmax(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

double Margin(std::span<const float> logits) {
  const auto best = static_cast<size_t>(Argmax(logits));
  double margin = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i != best) margin = std::min(margin, static_cast<double>(logits[best]) - logits[i]);
  }
  return margin;
}

int64_t OracleChoice(int64_t node, int64_t choices) {
  return std::min(node % 2 == 0 ? int64_t{1} : int64_t{2}, choices - 1);
}

void ConstrainToParents(const Groups& families, std::span<const int64_t> parents,
                        std::vector<int64_t>& choices) {
  for (size_t parent = 0; parent < families.size(); ++parent) {
    for (const int64_t node : families[parent]) {
      int64_t& choice = choices[static_cast<size_t>(node)];
      choice = std::min(choice, parents[parent]);
    }
  }
}

int64_t NearestChoice(std::span<const int64_t> windows, int64_t tokens) {
  // All are positive: the differences cannot overflow.
  const auto distance = [&](int64_t window) {
    return std::max(window, tokens) - std::min(window, tokens);
  };
  return std::min_element(windows.begin(), windows.end(),
                          [&](int64_t a, int64_t b) { return distance(a) < distance(b); }) -
         windows.begin();
}

int64_t UncontrolledChoice(std::span<const int64_t> windows, int64_t tokens) {
  const auto found = std::find(windows.begin(), windows.end(), tokens);
  if (found != windows.end()) return found - windows.begin();
  return std::min_element(windows.begin(), windows.end()) - windows.begin();
}

int64_t RoundedChoice(float mean, int64_t choices) {
  // The rounding mode is never changed from the default, which takes halves to even.
  return std::clamp<int64_t>(std::llrint(mean), 0, choices - 1);
}

void UpdateResolution(std::span<const int64_t> chosen, double share, std::vector<float>& mean) {
  if (mean.empty()) {
    for (const int64_t choice : chosen) mean.push_back(static_cast<float>(choice));
    return;
  }
  const auto old_share = static_cast<float>(share), new_share = static_cast<float>(1.0 - share);
  for (size_t i = 0; i < mean.size(); ++i) {
    mean[i] = old_share * mean[i] + new_share * static_cast<float>(chosen[i]);
  }
}

}  // namespace lookback::controller
