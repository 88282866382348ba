#include "tests/golden/interpreted.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/import/gguf/file.h"
#include "compiler/ir/interpreter.h"

namespace cuvil::golden {

absl::StatusOr<Logits> Interpret(const engine::Model& model, const std::vector<int32_t>& tokens) {
  using ir::interp::Tensor;
  ASSIGN_OR_RETURN(const ir::Graph graph, engine::StepGraphOf(model.file(), model.config()));
  const auto rows = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  ir::interp::Arguments arguments;
  arguments.inputs["ids"] = Tensor::I32({rows}, tokens);
  arguments.inputs["positions"] = Tensor::I32({rows}, positions);
  arguments.inputs["out_rows"] = Tensor::I32({rows}, positions);
  arguments.step = {{std::vector<int32_t>(tokens.size(), 0)}, {positions}};
  for (const gguf::Tensor& t : model.file().tensors())
    arguments.weights[std::string(t.name)] = {t.dtype, t.shape(), t.data};
  ASSIGN_OR_RETURN(const ir::interp::Results results, ir::interp::Evaluate(graph, arguments));
  const std::vector<double> flat = results.tensors.at("logits").ToDoubles();
  const size_t width = flat.size() / tokens.size();
  Logits logits;
  for (size_t row = 0; row < tokens.size(); ++row) {
    const auto from = flat.begin() + static_cast<int64_t>(row * width);
    logits.emplace_back(from, from + static_cast<int64_t>(width));
  }
  return logits;
}

double LargestDifference(const Logits& a, const Logits& b) {
  CUVIL_CHECK(a.size() == b.size(), "as many rows");
  double worst = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    CUVIL_CHECK(a[row].size() == b[row].size(), "rows of one width");
    for (size_t i = 0; i < a[row].size(); ++i)
      worst = std::max(worst, std::abs(double{a[row][i]} - b[row][i]));
  }
  return worst;
}

}  // namespace cuvil::golden
