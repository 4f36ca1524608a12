#include "bench/measure/evaluation.h"

#include <cmath>
#include <numbers>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "data/loader/loader.h"
#include "engine/check.h"
#include "kernels/split_windows/split_windows.h"
#include "models/training/train.h"

namespace hs::bench::measure {

TextEvaluation evaluate_text(Module& model, const SampleSource& test, Device device) {
  const SampleInfo& info = test.info();
  const ParameterArena arena(model, device);
  Loader loader(test, {.batch = 64, .shuffle = false, .device = device});
  const Clock::time_point start = Clock::now();
  const auto is_interrupted = [] { return cli::check_signals("while evaluating; no results were written"), false; };
  const Evaluation result = hs::evaluate(model, loader, device, is_interrupted);
  const double rate = static_cast<double>(info.count) / seconds_since(start);
  if (!std::isfinite(result.loss)) {
    fail(ExitCode::numeric, "the loss is {}: the model's weights are damaged; train it again", result.loss);
  }
  int64_t symbols = 0, bytes = 0;
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    for (const int32_t symbol : split_windows(loader.next().images).labels.to_vector<int32_t>()) {
      ++symbols;
      bytes += std::ssize(info.vocabulary[static_cast<size_t>(symbol)]);
    }
  }
  const double bits = result.loss / std::numbers::ln2;
  const double bits_per_byte = bits * static_cast<double>(symbols) / static_cast<double>(bytes);
  report::Rows rows{.table = {.title = "the test, in which each symbol is predicted once"}};
  rows.add({{"name", info.name, "text"},
            {"symbols", symbols, "symbols"},
            {"bytes", bytes, "bytes"},
            {"accuracy", result.accuracy, "recognised", "{:.2f} %", 100},
            {"loss", result.loss, "loss", "{:.4f}"},
            {"perplexity", std::exp(result.loss), "perplexity", "{:.3f}"},
            {"bits_per_symbol", bits, "bits per symbol", "{:.4f}"},
            {"bits_per_byte", bits_per_byte, "bits per byte", "{:.4f}"},
            {"samples_per_second", rate, "samples/s", "{:.0f}"}});
  return {std::move(rows), fmt::format("loss {:.4f}, {:.4f} bits per symbol, {:.4f} per byte, {:.0f} samples/s",
                                       result.loss, bits, bits_per_byte, rate)};
}

}  // namespace hs::bench::measure
