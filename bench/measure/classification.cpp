#include "bench/measure/evaluation.h"

#include <array>

namespace hs::bench::measure {

report::Rows classes_of(const Classification& result, const ModelDescription& model) {
  report::Rows rows{.table = {.title = "classes"}};
  for (size_t c = 0; c < result.confusion.size(); ++c) {
    int64_t samples = 0, predicted = 0;
    for (const int64_t count : result.confusion[c]) samples += count;
    for (const std::vector<int64_t>& row : result.confusion) predicted += row[c];
    const auto right = static_cast<double>(result.confusion[c][c]);
    rows.add({{"name", model.class_name(c), "class"},
              {"samples", samples, "samples"},
              {"", right / static_cast<double>(samples), "recognised", "{:.2f} %", 100},
              {"predicted", predicted, "predicted"},
              {"right", result.confusion[c][c]},
              {"", right / static_cast<double>(predicted), "of these right", "{:.2f} %", 100}});
  }
  return rows;
}

report::Table table_of_confusion(const Classification& result, const ModelDescription& model) {
  constexpr size_t max_matrix = 20;  // classes; of more, the table has the most frequent mistakes
  const size_t classes = result.confusion.size();
  report::Table table;
  if (classes <= max_matrix) {
    table.title = "confusion: labels down, predictions across";
    table.heads = {"label"};
    for (size_t c = 0; c < classes; ++c) table.heads.push_back(model.class_name(c));
    for (size_t label = 0; label < classes; ++label) {
      auto& line = table.lines.emplace_back(1, model.class_name(label));
      for (const int64_t count : result.confusion[label]) line.push_back(std::to_string(count));
    }
    return table;
  }
  table.title = "the most frequent mistakes";
  table.heads = {"label", "predicted", "times"};
  std::vector<std::array<int64_t, 3>> pairs;
  for (size_t label = 0; label < classes; ++label) {
    for (size_t c = 0; c < classes; ++c) {
      const int64_t count = result.confusion[label][c];
      if (c != label && count > 0) pairs.push_back({count, static_cast<int64_t>(label), static_cast<int64_t>(c)});
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), [](const auto& pair) { return pair[0]; });
  pairs.resize(std::min(pairs.size(), max_matrix));
  for (const auto& [count, label, c] : pairs) {
    table.lines.push_back({model.class_name(static_cast<size_t>(label)), model.class_name(static_cast<size_t>(c)),
                           std::to_string(count)});
  }
  return table;
}

report::Rows mistakes_of(const Classification& result, const ModelDescription& model, const SampleSource& test) {
  report::Rows rows{.table = {.title = "worst mistakes"}};
  for (const auto& [sample, label, predicted, probability] : result.mistakes) {
    const bool is_image = test.info().type == DType::u8;
    std::vector<uint8_t> pixels(is_image ? static_cast<size_t>(test.info().image_bytes()) : 0);
    if (is_image) test.read(sample, pixels.data());
    rows.add({{"sample", sample, "sample"},
              {"label", label},
              {"", model.class_name(label), "label"},
              {"predicted", predicted},
              {"", model.class_name(predicted), "predicted"},
              {"probability", probability, "with", "{:.2f} %", 100},
              {"columns", is_image ? test.info().columns : 0},
              {"channels", test.info().channels},
              {"pixels", pixels}});
  }
  return rows;
}

}  // namespace hs::bench::measure
