#include "engine/controller/inputs.h"

#include <algorithm>

namespace lookback::controller {
namespace {

using Row = std::vector<float>;

Row RowOf(const Features& features) { return {features.begin(), features.end()}; }

/// a − b, or zeros where there is no b.
Row Difference(const Row& a, const Row& b) {
  Row out(a.size(), 0.0F);
  for (size_t i = 0; i < b.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

void Append(const Row& part, Row& row) { row.insert(row.end(), part.begin(), part.end()); }

Row MeanOfLevel(const std::vector<Row>& rows) {
  std::vector<double> sum(rows[0].size(), 0.0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
  }
  const auto count = static_cast<double>(rows.size());
  Row mean;
  for (const double value : sum) mean.push_back(static_cast<float>(value / count));
  return mean;
}

/// Everything that a node's input is made of.
struct NodeView {
  Row base;
  Row parent;    ///< empty at the top
  Row siblings;  ///< their mean, empty where there are none
  Row level_mean;
  float level_share;
  float child_share;
  float position[3];
};

Row InputOf(const NodeView& node, InputMode mode) {
  Row row = node.base;
  if (mode == InputMode::kBase) return row;
  // Unlike every other difference, this one is 0 and not b where there is nothing to take away.
  const Row to_siblings = Difference(node.base, node.siblings);
  const Row to_parent = Difference(node.base, node.parent);
  if (mode == InputMode::kRelativeSiblingMean) {
    Append(to_siblings, row);
    Append(to_parent, row);
    row.push_back(node.level_share);
    return row;
  }
  row.push_back(node.level_share);
  Append(to_parent, row);
  Append(Difference(node.base, node.level_mean), row);
  row.push_back(node.child_share);
  if (mode == InputMode::kContrastive) Append(to_siblings, row);
  if (mode == InputMode::kPositionAware) {
    row.insert(row.end(), std::begin(node.position), std::end(node.position));
  }
  return row;
}

}  // namespace

int64_t InputWidth(InputMode mode) {
  switch (mode) {
    case InputMode::kBase:
      return 9;
    case InputMode::kEnriched:
      return 29;
    case InputMode::kContrastive:
      return 38;
    case InputMode::kPositionAware:
      return 32;
    case InputMode::kRelativeSiblingMean:
      return 28;
  }
  return 0;
}

std::vector<float> MeanOfOthers(const std::vector<std::vector<float>>& rows,
                                const std::vector<int64_t>& family, int64_t node) {
  std::vector<Row> others;
  for (const int64_t member : family) {
    if (member != node) others.push_back(rows[static_cast<size_t>(member)]);
  }
  return others.empty() ? Row() : MeanOfLevel(others);
}

std::vector<std::vector<float>> ControllerInputs(const Hierarchy& hierarchy, size_t level,
                                                 InputMode mode, int64_t heads) {
  const Level& nodes = hierarchy[level];
  const bool top = level + 1 == hierarchy.size();
  std::vector<Row> bases;
  for (const Features& features : nodes.features) bases.push_back(RowOf(features));
  const auto below = static_cast<float>(level == 0 ? heads : hierarchy[level - 1].nodes());
  const Groups families = FamiliesOf(hierarchy, level);
  std::vector<Row> inputs(bases.size());
  for (size_t f = 0; f < families.size(); ++f) {
    const std::vector<int64_t>& family = families[f];
    for (size_t p = 0; p < family.size(); ++p) {
      const auto n = static_cast<size_t>(family[p]);
      NodeView node;
      node.base = bases[n];
      if (!top) node.parent = RowOf(hierarchy[level + 1].features[f]);
      node.siblings = MeanOfOthers(bases, family, family[p]);
      node.level_mean = MeanOfLevel(bases);
      node.level_share =
          static_cast<float>(level) / static_cast<float>(std::max<size_t>(1, hierarchy.size() - 1));
      node.child_share = static_cast<float>(nodes.children[n].size()) / below;
      const bool alone = bases.size() == 1;
      node.position[0] =
          static_cast<float>(p) / static_cast<float>(std::max<size_t>(1, family.size() - 1));
      node.position[1] = !alone && p == 0 ? 1.0F : 0.0F;
      node.position[2] = !alone && p > 0 ? 1.0F : 0.0F;
      inputs[n] = InputOf(node, mode);
    }
  }
  return inputs;
}

}  // namespace lookback::controller
