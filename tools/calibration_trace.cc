#include "tools/calibration_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lookback::tools {

namespace {

using controller::LevelTrace;
using controller::Update;

Json Tokens(std::span<const int64_t> windows, std::span<const int64_t> indices) {
  Json out = Json::array();
  for (const int64_t index : indices) out.push_back(windows[static_cast<size_t>(index)]);
  return out;
}

Json LevelJson(const LevelTrace& level, std::span<const int64_t> windows) {
  Json nodes = Json::array();
  for (size_t n = 0; n < level.heads.size(); ++n) {
    const auto window = [&](int64_t index) { return windows[static_cast<size_t>(index)]; };
    nodes.push_back({{"heads", level.heads[n]},
                     {"children", level.children[n]},
                     {"logits", level.logits[n]},
                     {"raw_index", level.raw_index[n]},
                     {"index", level.index[n]},
                     {"raw_window", window(level.raw_index[n])},
                     {"window", window(level.index[n])}});
  }
  Json out = {{"nodes", std::move(nodes)}};
  // One choice has no margin.
  out["margin"] = std::isfinite(level.margin) ? Json(level.margin) : Json();
  return out;
}

Json LayerJson(int64_t layer, const Calibrator& calibrator) {
  const Update& update = calibrator.update(layer);
  const auto& controller = calibrator.controller(layer);
  Json levels = Json::array();
  for (const LevelTrace& level : update.levels) {
    levels.push_back(LevelJson(level, controller.windows()));
  }
  Json clusterings = Json::array();
  for (const controller::LevelClustering& pass : update.clusterings) {
    clusterings.push_back({{"before_merge", pass.before_merge},
                           {"after_merge", pass.after_merge},
                           {"forced", pass.forced}});
  }
  Json groups;
  if (!update.levels.empty()) {
    groups = controller::GroupOf(update.levels[0].heads, std::ssize(update.index));
  }
  return {{"layer", layer},
          {"regime", std::string(update.path)},
          {"cached", update.cached},
          {"groups", std::move(groups)},
          {"levels", std::move(levels)},
          {"clusterings", std::move(clusterings)},
          {"chosen_windows", Tokens(controller.windows(), update.chosen)},
          {"mean_index", update.mean.empty() ? Json() : Json(update.mean)},
          {"index", update.index},
          {"windows", Tokens(controller.windows(), update.index)}};
}

std::string Fixed2(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string Padded(std::string text, size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string NodeText(const LevelTrace& level, size_t node, std::span<const int64_t> windows) {
  const int64_t index = level.index[node], raw = level.raw_index[node];
  std::string text = StrCat("window ", windows[static_cast<size_t>(index)]);
  if (raw != index) text += StrCat(" (alone ", windows[static_cast<size_t>(raw)], ")");
  text += level.heads[node].size() == 1 ? ", head" : ", heads";
  for (const int64_t head : level.heads[node]) text += StrCat(" ", head);
  return text;
}

/// The nodes `nodes` of `level` and all below them, `stem` in front of every line.
void AddTree(const Update& update, size_t level, std::span<const int64_t> nodes,
             std::span<const int64_t> windows, const std::string& stem, std::string& out) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool last = i + 1 == nodes.size();
    const auto node = static_cast<size_t>(nodes[i]);
    out += StrCat(stem, last ? "└─ " : "├─ ", "level ", level, ": ",
                  NodeText(update.levels[level], node, windows), "\n");
    if (level == 0) continue;
    AddTree(update, level - 1, update.levels[level].children[node], windows,
            stem + (last ? "   " : "│  "), out);
  }
}

template <typename Value>
std::string HeadLine(std::string_view name, size_t heads, const Value& value) {
  std::string line = StrCat("  ", name, std::string(8 - name.size(), ' '));
  for (size_t head = 0; head < heads; ++head) line += Padded(value(head), 6);
  return line + "\n";
}

std::string LayerText(int64_t layer, const Calibrator& calibrator) {
  const Update& update = calibrator.update(layer);
  const std::span<const int64_t> windows = calibrator.controller(layer).windows();
  std::string out = StrCat("layer ", layer, ": ", update.path);
  for (size_t i = 0; i < update.clusterings.size(); ++i) {
    const controller::LevelClustering& pass = update.clusterings[i];
    out += StrCat(i == 0 ? "; clusters " : ", ", pass.before_merge);
    if (pass.after_merge != pass.before_merge) out += StrCat(" merged to ", pass.after_merge);
    if (pass.forced) out += " by force";
  }
  out += "\n";
  if (!update.levels.empty()) {
    const size_t top = update.levels.size() - 1;
    std::vector<int64_t> nodes(update.levels[top].heads.size());
    for (size_t n = 0; n < nodes.size(); ++n) nodes[n] = static_cast<int64_t>(n);
    AddTree(update, top, nodes, windows, "  ", out);
  }
  const size_t heads = update.index.size();
  const auto window = [&](const std::vector<int64_t>& index) {
    return [&](size_t head) { return StrCat(windows[static_cast<size_t>(index[head])]); };
  };
  out += HeadLine("head", heads, [](size_t head) { return StrCat(head); });
  out += HeadLine("chosen", heads, window(update.chosen));
  if (!update.mean.empty()) {
    out += HeadLine("mean", heads, [&](size_t head) { return Fixed2(update.mean[head]); });
  }
  return out + HeadLine("window", heads, window(update.index));
}

}  // namespace

Json TraceJson(int64_t forward, const Calibrator& calibrator) {
  Json layers = Json::array();
  for (int64_t layer = 0; layer < calibrator.layers(); ++layer) {
    layers.push_back(LayerJson(layer, calibrator));
  }
  return {{"forward", forward}, {"layers", std::move(layers)}};
}

std::string TraceText(int64_t forward, const Calibrator& calibrator) {
  if (calibrator.update(0).cached) {
    return StrCat("forward ", forward, ": no update, windows as before\n");
  }
  std::string out = StrCat("forward ", forward, "\n");
  for (int64_t layer = 0; layer < calibrator.layers(); ++layer) {
    out += LayerText(layer, calibrator);
  }
  return out;
}

}  // namespace lookback::tools
