#include "bench/report/checklist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/report/record.h"

namespace hs::bench::report {
namespace {

using Answer = Check::Answer;
Answer answer(bool yes) { return yes ? Answer::yes : Answer::no; }

// What the checks look at, read once. Rows of `techniques` have their own settings, others those of the record.
struct Facts {
  const Json& config;
  const Json& rows;
  bool has_target, has_price, is_techniques;
  double batch, learning_rate, warmup, epochs, runs = 0, worst_stall = NAN;
  std::string schedule, optimizer;
  bool uses_16_bits = false, uses_f16 = false, unstable = false, evaluates = true;
  bool for_memory = false, has_bytes = true, unscaled_f16 = false;
  double skipped = 0, steps = 0;

  explicit Facts(const Json& record)
      : config(part(record, "config")),
        rows(objects(record, "rows")),
        has_target(!std::isnan(number(config, "target_accuracy"))),
        has_price(!std::isnan(number(config, "price_per_hour"))),
        is_techniques(text(record, "command") == "techniques"),
        batch(number(config, "batch") *
              (is_techniques || std::isnan(number(config, "accumulate")) ? 1 : number(config, "accumulate"))),
        learning_rate(number(config, "learning_rate")),
        warmup(number(config, "warmup")),
        epochs(number(config, "epochs")),
        schedule(text(config, "schedule")),
        optimizer(text(config, "optimizer")) {
    for (const Json& row : rows) {
      runs = std::max(runs, static_cast<double>(numbers(row, "seconds_all").size()));
      // The baseline of `techniques` waits on purpose: what counts is the last row, with everything on.
      if (const double stall = number(row, "stall_share"); !(stall <= worst_stall) || is_techniques)
        worst_stall = stall;
      if (flag(row, "for_memory")) {
        for_memory = true;
        has_bytes = has_bytes && !std::isnan(number(row, "peak_bytes"));
      }
      const std::string own = text(part(row, "experiment"), "precision");
      const std::string precision = own.empty() ? text(config, "precision") : own;
      uses_16_bits = uses_16_bits || precision == "f16" || precision == "bf16";
      uses_f16 = uses_f16 || precision == "f16";
      unstable = unstable || row.contains("error");
      for (const Json& run : objects(row, "runs")) {
        skipped += std::max(0.0, number(run, "skipped_steps"));  // 0 of NaN
        steps += std::max(0.0, number(run, "steps"));
        unscaled_f16 = unscaled_f16 || (precision == "f16" && number(run, "loss_scale") == 1);
      }
      for (const Json& epoch : objects(row, "epochs")) {
        evaluates = evaluates && !std::isnan(number(epoch, "test_accuracy"));
      }
    }
  }

  // The settings that the models' learning rates were chosen for.
  static constexpr double usual_batch = 64, usual_rate = 1e-3;
  bool scaled_batch() const { return batch >= 2 * usual_batch; }
  bool scaled_rate() const { return learning_rate > usual_rate; }
};

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", share * 100) : "not measured";
}

bool is_dirty(const Json& record) {
  const std::string commit = text(part(record, "environment"), "commit");
  return commit.empty() || commit == "unknown" || commit.ends_with("-dirty");
}

}  // namespace

std::vector<Check> checklist(const Json& record) {
  const Facts run(record);
  const std::string commit = text(part(record, "environment"), "commit");
  std::vector<Check> checks = {
      {"Is success defined before the run?", answer(run.has_target),
       run.has_target ? fmt::format("--target-accuracy {}", number(run.config, "target_accuracy"))
                      : "no --target-accuracy"},
      {"Is throughput logged?",
       answer(!std::isnan(number(run.rows.empty() ? Json() : run.rows[0], "samples_per_second"))),
       "samples per second in every row"},
      {"Is the cost logged?", answer(run.has_price), run.has_price ? "--price-per-hour" : "no --price-per-hour"},
      {"Is mixed precision tried?", answer(run.uses_16_bits), run.uses_16_bits ? "yes, 16 bits" : "f32 alone"},
      {"Is the learning rate warmed up and decayed?", answer(run.warmup > 0 && run.schedule != "constant"),
       fmt::format("warm-up {:.0f} steps, schedule {}", std::isnan(run.warmup) ? 0 : run.warmup, run.schedule)},
      {"Is the loader fast enough?", std::isnan(run.worst_stall) ? Answer::unknown : answer(run.worst_stall < 0.05),
       "training waits for it: " + percent(run.worst_stall)},
      {"Is a larger batch warmed up?", answer(!run.scaled_batch() || run.warmup > 0),
       run.scaled_batch() ? fmt::format("{:.0f} samples a step, warm-up {:.0f} steps", run.batch,
                                        std::isnan(run.warmup) ? 0 : run.warmup)
                          : fmt::format("{:.0f} samples a step: nothing to warm up", run.batch)},
      {"Is it seeded?", answer(!std::isnan(number(run.config, "seed"))),
       fmt::format("seed {:.0f}; the same seed gives the same weights", number(run.config, "seed"))},
      {"Is validation regular?", answer(run.evaluates), "after every epoch"},
      {"Is it numerically stable?", answer(!run.unstable),
       run.uses_f16 || run.skipped > 0
           ? fmt::format("{:.0f} of {:.0f} steps skipped", run.skipped, run.steps + run.skipped)
       : run.unstable ? "a run failed"
                      : "every loss is finite"},
      // From here on they are not the article's but follow from how one measures.
      {"Is evaluation outside of the timer?", Answer::yes, "seconds are those of training; evaluation has its own"},
      {"Are several seeds run?", answer(run.runs >= 3), fmt::format("{:.0f} runs", run.runs)},
      {"Is the code that ran known?", answer(!is_dirty(record)), "commit " + commit},
  };
  if (run.is_techniques) {
    checks.push_back({"Is there a baseline?", Answer::yes, "the first row"});
    checks.push_back({"Do all rows have the same samples in a step?", Answer::yes, fmt::format("{:.0f}", run.batch)});
    checks.push_back({"Are the rows run in turns?", answer(flag(run.config, "interleaved")), "A B C A B C"});
    const Json& base = run.rows.empty() ? Json() : run.rows[0];
    double worst = 0;
    for (const Json& row : run.rows) {
      const double less = number(base, "test_accuracy") - number(row, "test_accuracy");
      if (std::isfinite(less)) worst = std::max(worst, less);
    }
    checks.push_back({"Is the metric within 0.5 points of the baseline's?", answer(worst <= 0.005),
                      fmt::format("the largest loss is {:.2f} points", worst * 100)});
  }
  return checks;
}

std::vector<Mistake> mistakes(const Json& record) {
  const Facts run(record);
  return {
      {"Optimising the time of an epoch instead of the time to a target", true, !run.has_target,
       run.has_target ? "there is a target" : "no --target-accuracy: seconds alone do not say what they bought"},
      {"A hidden bottleneck in the data", true, run.worst_stall >= 0.2,
       "the longest wait for batches: " + percent(run.worst_stall)},
      {"A larger batch at the same learning rate", true, run.scaled_batch() && !run.scaled_rate(),
       fmt::format("{:.0f} samples a step, learning rate {}", run.batch, run.learning_rate)},
      {"Training without validation", true, !run.evaluates,
       run.evaluates ? "evaluated after every epoch" : "an epoch has no accuracy"},
      {"Unstable mixed precision", true, run.unstable || run.skipped * 20 > run.steps,
       run.unstable ? "a run failed"
                    : fmt::format("{:.0f} of {:.0f} steps skipped", run.skipped, run.steps + run.skipped)},
      {"Saving checkpoints too often", true, false, "this program saves none while it trains"},
      {"Keeping nothing to come back to", true, is_dirty(record),
       is_dirty(record) ? "the commit is unknown or had changes" : "commit, settings and figures are in the record"},
      {"One run, no interval", false, run.runs < 2, fmt::format("{:.0f} runs", run.runs)},
      {"Timing a cold start", false, !flag(run.config, "warmed_up"),
       run.config.contains("warmed_up") ? "two steps before the timer" : "the record does not say"},
      {"f16 without loss scaling", false, run.unscaled_f16,
       run.uses_f16 ? "judged by the scale at the end of the runs" : "no f16"},
      {"Judging a memory technique by its seconds", false, run.for_memory && !run.has_bytes,
       run.for_memory ? "what to judge them by is the column of peak bytes" : "no such technique"},
  };
}

}  // namespace hs::bench::report
