// halfstep-bench improve: looks for the settings of `train` that reach a target in the least time, and judges what it
// found against what it was given, in turns, with seeds that the search has not seen. Its record has "search"
// (runs, seconds, out_of_time), "changes" (kind, flags, ratio of times without and with it, and its interval) and
// "rows": as given, improved, and improved without each change; each with name, train_flags, seconds_all (of training
// to the target; null if a run missed it), seconds, reached_share and test_accuracy.
#include <cmath>
#include <limits>

#include "bench/commands/commands.h"
#include "bench/measure/comparison.h"
#include "bench/measure/improvement.h"
#include "bench/measure/row.h"
#include "bench/measure/techniques.h"

namespace hs::bench::commands {
namespace {

using measure::Trial;

struct Judged {
  std::string name;
  Json settings;
  std::vector<Trial> trials = {};

  std::vector<double> seconds() const { return measure::seconds_of(trials); }
  double accuracy() const { return measure::accuracy_of(trials); }
};

std::string times(const measure::SpeedUp& gain) {
  return std::isfinite(gain.ratio) ? gain.text() : "not reached in the time otherwise";
}

std::string claim(const std::vector<Judged>& rows, double challenge, double lose, size_t verdicts) {
  const Judged &given = rows[0], &best = rows[1];
  const bool is_as_good = given.accuracy() - best.accuracy() <= lose;
  const measure::Claim claim = measure::judge_claim(given.seconds(), best.seconds(), challenge, is_as_good, verdicts);
  return fmt::format(
      "Claim {}: at least {:g} times as fast (p = {:.3f}, wanted {:.2g}) at no more than {:.2f} points: accuracy "
      "{:.2f} % after {:.2f} %.",
      claim.verdict, challenge, claim.probability, claim.error, lose * 100, best.accuracy() * 100,
      given.accuracy() * 100);
}

report::Rows rows_of(const std::vector<Judged>& judged) {
  report::Rows rows{.table = {.left = 2}};
  for (const Judged& one : judged) {
    const std::vector<double> seconds = one.seconds();
    const auto reached = std::ranges::count_if(seconds, [](double value) { return std::isfinite(value); });
    const Interval interval = median_interval(seconds);
    rows.add({{"name", one.name, "settings"},
              {"train_flags", "train" + cli::words_of(one.settings), "flags of train"},
              {"seconds", median(seconds), "to target s", "{:.3f}"},
              {"seconds_low", interval.low, "from", "{:.3f}"},
              {"seconds_high", interval.high, "to", "{:.3f}"},
              {"seconds_all", finite_or_null(seconds)},
              {"reached_share", static_cast<double>(reached) / static_cast<double>(seconds.size()), "reached",
               "{:.0f} %", 100},
              {"test_accuracy", one.accuracy(), "accuracy", "{:.2f} %", 100}});
  }
  return rows;
}

class ImproveCommand : public RecordingCommand {
  std::string run_, target_, out_;
  double minutes_ = 20, lose_ = 0.002, challenge_ = 1.5;
  int64_t repeat_ = 5;
  uint64_t seed_ = 1;
  bool quick_ = false, quiet_ = false;
  Json last_record_;  // of a training, for the machine and the data

  void say(const std::string& line) const {
    if (!quiet_) cli::write_stderr(line + "\n");
  }
  double judged_seconds() const { return minutes_ * 60 / 6; }  // of training, at most, of a run that is judged

  void declare(cli::Flags& flags) override {
    flags.examples({"improve --target accuracy=0.98 --out recipe.json    # then: train --recipe recipe.json",
                    "improve --run \"--model mlp --batch 8 --validation 0.1\" --target loss=0.2 --minutes 5"},
                   "docs/chapters/09_recipes.md says what it tries, and in which order.");
    flags.text("--run", own(), run_, "FLAGS", "The flags of train to begin with; without, its defaults");
    flags.text("--target", common(Group::training), target_, "METRIC=VALUE",
               "What to reach sooner, as train has it: accuracy=0.98 or loss=1.6");
    flags.real("--lose", own(), lose_, 0, 1, "How much of the test accuracy may be lost");
    flags.real("--challenge", own(), challenge_, 1, 1000, "How many times as fast the claim at the end is about");
    flags.real("--minutes", own(), minutes_, 0.01, 10000,
               "When to stop; a third of it is for the judgement at the end");
    flags.repeat(repeat_);
    flags.seed(seed_);
    flags.on_off("--quick", own(), quick_, "A look in half a minute: --minutes 0.5 --repeat 3");
    flags.text("--out", own().writes(), out_, "FILE", "Write what was found as a recipe");
    flags.quiet(quiet_);
  }

  // A training that diverges, or that these settings do not allow, is no candidate; of what was given it is an error.
  Trial train(const Json& settings, uint64_t seed, double limit, bool is_given) {
    Json with = settings;
    with["--target"] = Json::array({target_});
    with["--max-minutes"] = Json::array({fmt::format("{:.6f}", std::max(limit, 0.01) / 60)});
    try {
      const Json record = train_once(with, seed);
      if (last_record_.is_null()) last_record_ = record;
      const Json &row = record["rows"][0], &seconds = report::member(report::part(row, "target"), "seconds");
      return {seconds.is_number() ? seconds.get<double>() : std::numeric_limits<double>::infinity(),
              report::number(row, "test_accuracy"), report::number(row, "stall_share")};
    } catch (const Error& error) {
      if (is_given || (error.code() != ExitCode::numeric && error.code() != ExitCode::usage)) throw;
      say(error.what());
      return {};
    }
  }

  // What was given, what was found, and that without each of its changes.
  std::vector<Judged> judge(const measure::Found& found, const Json& given) {
    std::vector<Judged> rows = {{"as given", given}};
    if (!found.changes.empty()) rows.push_back({"improved", found.settings});
    for (size_t without = 0; found.changes.size() > 1 && without < found.changes.size(); ++without) {
      Json settings = given;
      for (size_t i = 0; i < found.changes.size(); ++i) {
        if (i != without) settings = changed(settings, found.changes[i]);
      }
      rows.push_back({"without " + found.changes[without].text(), settings});
    }
    constexpr uint64_t unseen = 1000;
    const auto run = [&](size_t i, int64_t turn) {
      rows[i].trials.push_back(
          train(rows[i].settings, seed_ + unseen + static_cast<uint64_t>(turn), judged_seconds(), i == 0));
      return true;
    };
    measure::in_turns(rows.size(), repeat_, run,
                      [&](int64_t turn) { say(fmt::format("judging: turn {} of {}", turn + 1, repeat_)); });
    return rows;
  }

  void write_recipe(const Json& settings, OutputFile& file) const {
    if (!file.is_wanted()) return;
    Json recipe = Json::object();
    for (const auto& [flag, words] : settings.items()) {
      if (flag == "--plugin") continue;  // recipes run no code; `train` asks for it
      recipe[flag.substr(2)] = words.size() == 1 ? words[0] : words;
    }
    file.write(to_text(recipe));
    file.keep();
  }

  // For two thirds of --minutes at most.
  measure::Found search(const Json& given, Clock::time_point start) {
    const double limit = minutes_ * 60 * 2 / 3;
    const measure::SearchRules rules = {.lose = lose_,
                                        .first_limit = limit / 4,
                                        .seed = seed_,
                                        .may_go_on = [&] { return seconds_since(start) < limit; },
                                        .say = [&](const std::string& line) { say(line); }};
    const auto trainer = [&](const Json& settings, uint64_t seed, double most) {
      return train(settings, seed, most, settings == given);
    };
    return measure::improve(given, trainer, rules);
  }

  // Adds what mattered to the record, and what to do.
  void answer(Json& record, const measure::Found& found, const std::vector<Judged>& judged) const {
    record["changes"] = Json::array();
    const size_t verdicts = 2 + found.changes.size();  // of the whole, of each change, and of the claim
    using Effect = std::pair<measure::SpeedUp, const measure::Change*>;
    std::vector<Effect> effects;  // by what the whole loses without the change, the largest first
    for (size_t i = 0; i < found.changes.size(); ++i) {
      const Judged& without = found.changes.size() == 1 ? judged[0] : judged[2 + i];
      effects.push_back({measure::speed_up(without.seconds(), judged[1].seconds(), verdicts), &found.changes[i]});
    }
    const auto loss = [](const Effect& e) { return std::isfinite(e.first.ratio) ? e.first.ratio : INFINITY; };
    std::ranges::stable_sort(effects, std::greater(), loss);
    std::vector<std::string> mattered, open;
    for (const auto& [gain, made] : effects) {
      Json& change = record["changes"].emplace_back(gain.to_json());
      change["kind"] = made->kind;
      change["flags"] = made->text();
      const std::string text = fmt::format("{} ({})", made->text(), times(gain));
      if (gain.verdict != "faster") {
        open.push_back(text + ", " + gain.verdict);
      } else if (mattered.size() < 3) {
        mattered.push_back(text);
      }
    }
    std::vector<std::string> answer;
    if (found.changes.empty()) {
      answer = {fmt::format("train{}: nothing that was tried reaches {} sooner.", cli::words_of(judged[0].settings),
                            target_)};
    } else {
      const measure::SpeedUp gain = measure::speed_up(judged[0].seconds(), judged[1].seconds(), verdicts);
      const bool is_told = gain.verdict == "faster" || gain.verdict == "slower";
      answer = {fmt::format("{} train{}: it reaches {} {} ({}).",
                            gain.verdict == "faster" ? "Use"
                            : is_told                ? "Do not use"
                                                     : "Perhaps",
                            cli::words_of(found.settings), target_,
                            is_told ? gain.verdict : "sooner or not, " + gain.verdict, times(gain))};
      measure::add_line(answer, "What mattered", mattered);
      measure::add_line(answer, "Not decided", open);
      answer.push_back(claim(judged, challenge_, lose_, verdicts));
    }
    if (!found.settings.contains("--validation")) {
      answer.emplace_back(
          "The search judged by the test set, so its accuracies are too good; --validation 0.1 in --run holds out "
          "samples to judge by.");
    }
    measure::put_answer(record, answer);
  }

  void run(const cli::Flags& flags) override {
    if (target_.empty())
      fail(ExitCode::usage, "improve: what is to be reached? give --target accuracy=0.98 or loss=1.6");
    if (quick_ && !flags.given("--minutes")) minutes_ = 0.5;
    if (quick_ && !flags.given("--repeat")) repeat_ = 3;
    Json given = train_settings(run_ + " --target " + cli::quoted(target_));
    given.erase("--target");
    OutputFile out(out_, "--out");
    outputs_.open({&out});
    cli::allow_to_finish();  // to end a training
    const Clock::time_point start = Clock::now();
    const measure::Found found = search(given, start);
    const double seconds = seconds_since(start);
    const std::vector<Judged> judged = judge(found, given);

    Json record = report::new_record(name(), Device::cpu, flags.config(), last_record_["data"]);
    record["environment"] = last_record_["environment"];
    const report::Rows rows = rows_of(judged);
    record["rows"] = rows.json;
    record["search"] = {{"runs", found.runs}, {"seconds", seconds}, {"out_of_time", found.out_of_time}};
    answer(record, found, judged);
    const std::string ended = found.out_of_time ? ", ended by --minutes" : "";
    outputs_.finish(record,
                    fmt::format("improve to {}: {} runs of search{}, {} to judge, {:.1f} minutes", target_, found.runs,
                                ended, std::ssize(judged) * repeat_, seconds_since(start) / 60),
                    {rows.table});
    write_recipe(found.settings, out);
    if (!std::isfinite(median(judged[0].seconds())) && found.changes.empty()) {
      fail(ExitCode::missed,
           "--target {}: not reached by half of the runs in {:.0f} s of training; give more --minutes", target_,
           judged_seconds());
    }
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_improve_command() { return std::make_unique<ImproveCommand>(); }

}  // namespace hs::bench::commands
