// halfstep-bench compare: tests whether the second of two records, or of two configurations that it trains in turns, is
// slower, or less accurate. Its own record has the environment of the second.
#include <cmath>

#include "bench/cli/environment.h"
#include "bench/commands/commands.h"
#include "bench/measure/comparison.h"
#include "bench/measure/row.h"
#include "engine/parsed_number.h"

namespace hs::bench::commands {
namespace {

using Words = std::vector<std::string>;

class CompareCommand : public RecordingCommand {
  Words paths_, runs_;
  std::string limit_;
  int64_t repeat_ = 5;
  uint64_t seed_ = 1;
  double challenge_ = 1, lose_ = 0.002;
  bool why_ = false, quiet_ = false;

  void declare(cli::Flags& flags) override {
    flags.examples({"compare before.json after.json", "compare before.json after.json --fail-if-slower 3%",
                    "compare --run \"--batch 64\" --run \"--batch 256 --lr 2e-3\" --challenge 1.5 --why",
                    "compare before.json after.json --md -"},
                   "docs/chapters/12_benchmarks.md says which differences count.");
    flags.words("RECORD", paths_, 0, 2, "BEFORE and AFTER, two records; or one that compare --run wrote");
    flags.list("--run", own(), runs_, "FLAGS",
               "Train with these flags of train; given twice, for BEFORE and AFTER, in turns");
    flags.repeat(repeat_);
    flags.seed(seed_);
    flags.text("--fail-if-slower", own(), limit_, "P%", "Exit code 1 if a row is more than P percent slower");
    flags.real("--challenge", own(), challenge_, 0.01, 1000,
               "Exit code 1 unless AFTER reaches the target, or without one ends, this many times as fast");
    flags.real("--lose", own(), lose_, 0, 1, "With --challenge: how much of the mean accuracy AFTER may lose");
    flags.on_off("--why", own(), why_, "Say which phase, kernel or count made the most of the difference");
    flags.quiet(quiet_);
  }

  void check_combinations(const cli::Flags& flags) const {
    if (runs_.empty()) {
      for (const char* flag : {"--repeat", "--seed"}) {
        if (flags.given(flag)) fail(ExitCode::usage, "{}: is for --run FLAGS, and there is none", flag);
      }
      if (paths_.empty()) fail(ExitCode::usage, "compare RECORD: 0 given, expected 2, or --run FLAGS twice");
    } else if (runs_.size() != 2) {
      fail(ExitCode::usage, "--run: given {} times, expected twice", runs_.size());
    } else if (!paths_.empty()) {
      fail(ExitCode::usage, "--run: trains both, and {} is a record; give one or the other", paths_[0]);
    }
    // Three figures at least are judged in both directions, or beside a claim.
    const auto fewest = static_cast<int64_t>(fewest_runs(page_error / 6));
    if (!runs_.empty() && (flags.given("--challenge") || flags.given("--fail-if-slower")) && repeat_ < fewest) {
      fail(ExitCode::usage, "--repeat {}: too few runs to tell; expected {} or more", repeat_, fewest);
    }
    if (flags.given("--lose") && !flags.given("--challenge")) {
      fail(ExitCode::usage, "--lose {}: is for --challenge X, and there is none", lose_);
    }
  }

  // "3%" and "3" are three percent.
  double limit() const {
    const auto percent = parsed_number<double>(limit_.substr(0, limit_.size() - limit_.ends_with('%')));
    if (!percent || !(*percent >= 0 && *percent <= 1000)) {
      fail(ExitCode::usage, "--fail-if-slower {}: expected percent from 0 to 1000, for example 3%", limit_);
    }
    return *percent / 100;
  }

  std::vector<Json> train_sides() const {
    const std::vector<Json> settings = {train_settings(runs_[0]), train_settings(runs_[1])};
    std::vector<Json> sides(2), rows(2, Json::array());
    const auto start = Clock::now();
    std::vector<std::vector<Error>> lost(2);
    // A run that diverges is a result; the others still run.
    const auto run = [&](size_t i, int64_t turn) {
      try {
        const Json record = train_once(settings[i], seed_ + static_cast<uint64_t>(turn));
        if (sides[i].is_null()) sides[i] = record;
        rows[i].push_back(record["rows"][0]);
      } catch (const Error& error) {
        if (error.code() != ExitCode::numeric) throw;
        lost[i].push_back(error);
      }
      return true;
    };
    const auto last = [](const Json& rows) { return rows.empty() ? NAN : report::number(rows.back(), "seconds"); };
    measure::in_turns(2, repeat_, run, [&](int64_t turn) {
      if (quiet_) return;
      cli::write_stderr(fmt::format("turn {} of {}, {:.0f} s: {:.3f} and {:.3f} s\n", turn + 1, repeat_,
                                    seconds_since(start), last(rows[0]), last(rows[1])));
    });
    for (size_t i = 0; i < 2; ++i) {
      if (rows[i].empty()) throw lost[i].back();
      sides[i]["rows"] = Json::array({measure::merge_rows(rows[i])});
      if (!lost[i].empty()) {
        sides[i]["rows"][0].update({{"error", lost[i].back().what()}, {"lost_runs", lost[i].size()}});
      }
      sides[i]["config"]["repeat"] = repeat_;
      sides[i]["config"]["interleaved"] = true;
    }
    return sides;
  }

  // Two records, or the two sides of one, whose names then are those of its configurations.
  std::vector<Json> read_sides() {
    std::vector<Json> sides = {report::read_record(paths_[0])};
    if (paths_.size() == 2) {
      sides.push_back(report::read_record(paths_[1]));
      return sides;
    }
    const std::string path = paths_[0];
    const Json record = sides[0];
    if (report::objects(record, "sides").size() != 2) {
      fail(ExitCode::usage, "compare RECORD: 1 given, expected 2, or one that compare --run wrote; {} is none", path);
    }
    sides.assign(record["sides"].begin(), record["sides"].end());
    for (const Json& side : sides) report::check_record(side, path + ": one of its sides");
    runs_ = {report::text(report::part(record, "config"), "before"),
             report::text(report::part(record, "config"), "after")};
    return sides;
  }

  // "challenge: met: ...", or missed, or why nobody can tell.
  std::string judge(const measure::Comparison& comparison) const {
    const measure::RowComparison& row = comparison.rows[0];
    const bool has_target = !row.target.empty();
    const measure::Tested& time = has_target ? row.to_target : row.seconds;
    if (comparison.rows.size() > 1) return "challenge: is for one row, and the records have more in common";
    if (!has_target && !std::isnan(row.to_target.before + row.to_target.after)) {
      return "challenge: the two have different targets, expected one";
    }
    const double lost = -row.accuracy_change;
    constexpr double rounding = 1e-12;
    const size_t verdicts = static_cast<size_t>(std::lround(page_error / time.error));
    const measure::Claim claim =
        measure::judge_claim(time.values_before, time.values_after, challenge_, lost <= lose_ + rounding, verdicts);
    return fmt::format(
        "challenge: {}: the second {} {:.2f} times as fast as the first (wanted: {:g}), {:.3f} and {:.3f} s, p = "
        "{:.3f} (wanted: {:.2g}), and its accuracy changes by {:+.4f} (allowed: -{:g})",
        claim.verdict, has_target ? "reaches " + row.target : "ends", claim.ratio, challenge_, time.before, time.after,
        claim.probability, claim.error, row.accuracy_change, lose_);
  }

  void check_regressions(const measure::Comparison& comparison) const {
    const double allowed = limit();
    for (const measure::RowComparison& row : comparison.rows) {
      if (!row.is_regression(allowed)) continue;
      fail(ExitCode::missed, "{}: {:.1f} % slower, more than {}, p = {:.3f}", row.name, row.change * 100, limit_,
           row.seconds.probability);
    }
    for (const measure::RowComparison& row : comparison.rows) {
      if (row.seconds.can_tell() && !std::isnan(row.change)) continue;
      fail(ExitCode::usage, "--fail-if-slower: {} has {} and {} runs, too few to tell; expected {} or more (--repeat)",
           row.name, row.runs_before, row.runs_after, fewest_runs(row.seconds.error / 2));
    }
    if (comparison.gone > 0) {
      fail(ExitCode::usage, "--fail-if-slower: {}; expected each row of the first record in both",
           comparison.only_one[0]);
    }
  }

  void run(const cli::Flags& flags) override {
    check_combinations(flags);
    if (flags.given("--fail-if-slower")) limit();
    outputs_.open();
    const bool trains = !runs_.empty();
    if (trains) cli::allow_to_finish();  // to end a run
    const std::vector<Json> sides = trains ? train_sides() : read_sides();
    const Json &before = sides[0], &after = sides[1];
    const bool took_turns = !runs_.empty();
    const std::vector<std::string>& names = took_turns ? runs_ : paths_;
    const TrainFlags train;
    const measure::Comparison comparison =
        measure::compare(train, before, after, names[0], names[1], took_turns, flags.given("--challenge") ? 1 : 0);
    if (comparison.rows.empty()) fail(ExitCode::bad_input, "{} and {}: have no row in common", names[0], names[1]);
    Json record = report::new_record(name(), Device::cpu);
    if (report::text(after, "schema") == report::schema_name) record["environment"] = after["environment"];
    record["config"] = {{"before", names[0]}, {"after", names[1]}, {"interleaved", took_turns}};
    if (took_turns) record["sides"] = sides;
    const report::Rows rows = rows_of(comparison);
    record["rows"] = rows.json;
    std::vector<std::string> sentences = comparison.only_one;
    sentences.insert(sentences.end(), comparison.lost.begin(), comparison.lost.end());
    for (const std::string& line : comparison.differences) sentences.push_back("different " + line);
    const auto date = [](const Json& side) { return report::text(report::part(side, "environment"), "date"); };
    if (!took_turns && before != after) {
      sentences.push_back(fmt::format(
          "not interleaved: one was measured after the other ({} and {}), so that a drift of the machine counts as a "
          "difference; compare --run FLAGS --run FLAGS trains both in turns",
          date(before), date(after)));
    }
    std::string challenge;
    if (flags.given("--challenge")) sentences.push_back(challenge = judge(comparison));
    if (why_) {
      sentences.push_back("why: " + measure::why(train, before, after, names[0], names[1]));
      if (!comparison.rows[0].seconds.significant())
        sentences.back() += " (whether the seconds differ at all: cannot tell)";
    }
    const std::string headline =
        took_turns ? fmt::format("train {} and train {}, in turns, on {}", names[0], names[1], report::data_line(after))
                   : fmt::format("{} and then {}", names[0], names[1]);
    outputs_.finish(record, headline, {rows.table, learned_by(comparison)}, sentences);
    if (!challenge.empty() && !challenge.starts_with("challenge: met")) {
      fail(challenge.starts_with("challenge: missed") ? ExitCode::missed : ExitCode::usage, "{}", challenge);
    }
    if (flags.given("--fail-if-slower")) check_regressions(comparison);
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_compare_command() { return std::make_unique<CompareCommand>(); }

}  // namespace hs::bench::commands
