// --save, --save-every, --keep and --resume: a run that survives its process (models/files/run_folder.h). A state has
// the flags of its run, so --resume alone continues it.
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/cli/clock.h"
#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/plugins.h"
#include "bench/measure/train_part.h"
#include "engine/check.h"
#include "engine/printable.h"
#include "models/files/run_folder.h"

namespace hs::bench::measure {
namespace {

using cli::Group;

constexpr double max_held_up = 0.05;  // of the time of training

constexpr const char* settings_key = "flags";  // of a state's values: the words of those that were given

// By the signal that came, or that another rank got: this one must not wait for it until the end.
[[noreturn]] void end_interrupted(const std::string& where) {
  cli::check_signals(where);
  fail(ExitCode::terminated, "stopped by a signal to another rank {}", where);
}

// Of --tuning: a file is the same at another place.
Json without_path(Json setting) {
  if (setting.is_object()) setting.erase("file");
  return setting;
}

class Saving : public TrainPart {
  using TrainPart::TrainPart;
  std::string save_, resume_, every_text_ = "10m";
  Cadence every_;
  int64_t keep_ = 2;
  std::map<std::string, std::string> identity_;  // of the run, by name
  Json settings_;                                // Flags::settings(), for the run's states
  std::string hint_;                             // the command that continues the run
  std::unique_ptr<RunFolder> folder_;
  std::optional<TrainingState> from_;
  Clock::time_point last_;
  Json written_;

  bool is_on() const { return !save_.empty() || !resume_.empty(); }

  void declare(cli::Flags& flags) override {
    const auto is_on = [this] { return this->is_on(); };
    const cli::Facts how = rare(Group::output)
                               .keeps_bits()
                               .moves({"save"})
                               .not_from_record()
                               .counts_if(is_on)
                               .needs(is_on, "nothing is saved; give --save DIR as well");
    flags.text("--save", common(Group::output).writes(), save_, "DIR",
               "Save the run's state there, to resume it; a folder of its own");
    flags.text(
        "--save-every", how, [this](const std::string& text) { every_ = parse_cadence(every_text_ = text); },
        every_text_, "HOW", "When to save: 10m or 30s (minutes, seconds), 2ep (epochs), 500st (steps); and at the end");
    flags.integer("--keep", how, keep_, 1, 1000, "Newest states that remain in the folder");
    flags
        .text("--resume", common(Group::output).writes(), resume_, "DIR",
              "Continue the run that was saved there, with its flags where none are given, and save it there")
        .continues([](const std::string& folder) {
          const std::string text = newest_value(folder, settings_key);
          const Json settings = text.empty() ? Json() : parse(text, folder);
          return settings.is_object() ? settings : Json::object();
        });
    every_ = parse_cadence(every_text_);
  }

  void check_flags(const cli::Flags& flags) override {
    if (!save_.empty() && !resume_.empty()) {
      fail(ExitCode::usage, "--resume {}: saves the run in its own folder; leave out --save {}",
           printable_text(resume_), printable_text(save_));
    }
    if (is_on() && job_.repeat > 1) {
      fail(ExitCode::usage, "--repeat {}: a folder holds one run; leave it out with --save and --resume", job_.repeat);
    }
    job_.is_saved = is_on();
    job_.saves_between_steps = is_on() && every_.steps > 0;
    settings_ = flags.settings();
    hint_ = fmt::format("{} train --resume {}", cli::program_name, cli::quoted(save_ + resume_));
    Json outputs = flags.settings(true);
    outputs.erase("--save");
    outputs.erase("--resume");
    if (settings_.contains("--plugin")) outputs["--plugin"] = settings_["--plugin"];  // which no state names
    hint_ += cli::words_of(outputs);
  }

  // A state of a run with other settings is refused, unless their flags keep the bits; so is a rank with other settings
  // or data. Only rank 0 opens the folder.
  void before_training(const cli::Flags& flags) override {
    const Ranks& ranks = job_.ranks;
    const cli::TrainingData& data = *job_.data;
    if (!is_on() && !ranks.is_on()) return;
    std::string plugins;
    for (const cli::Plugin& one : cli::loaded_plugins()) plugins += fmt::format("{} {} ", one.file, one.sha256);
    if (!plugins.empty()) identity_["plugins"] = plugins;
    identity_["training data"] = cli::fingerprint(*data.train);
    identity_["test data"] = cli::fingerprint(*data.test);
    std::map<std::string, std::string> common = identity_;  // of all ranks
    const Json config = flags.config();
    for (const auto& [name, value] : config.items()) {
      if (name != "threads") common["config." + name] = value.dump();
      const auto flag = std::ranges::find(flags.all(), name, &cli::Flags::Flag::member);
      if (flag != flags.all().end() && !flag->facts.changes_bits) continue;
      identity_["config." + name] = without_path(value).dump();
    }
    identity_["config.device"] = hs::name(job_.experiment.device);  // the flag may have said auto
    ranks.compare(common);
    if (!is_on()) return;
    settings_["--reduce"] = Json::array({config.at("reduce")});  // mpirun may have said it
    // With a constant rate the number of epochs decides only when training ends.
    if (config.at("schedule") == "constant") identity_.erase("config.epochs");
    if (ranks.is_first()) open_folder(config.at("epochs"));
    if (resume_.empty()) return;
    const std::string bytes = ranks.from_first(from_ ? to_bytes(*from_) : "");
    if (!from_) from_ = state_from_bytes(bytes);
  }

  void open_folder(int64_t epochs) {
    if (!resume_.empty() && !may_have_states(resume_)) {  // before a folder is made of a name that is misspelt
      fail(ExitCode::checkpoint, "--resume {}: no state is saved there; start with --save", printable_text(resume_));
    }
    folder_ = std::make_unique<RunFolder>(resume_.empty() ? save_ : resume_, keep_,
                                          [](const std::string& line) { cli::notice(line); });
    last_ = Clock::now();
    const std::string folder = printable(folder_->path());
    if (resume_.empty()) {
      if (folder_->is_empty()) return;
      fail(ExitCode::usage,
           "--save {}: contains the states of a run; continue it with --resume {}, or choose another folder", folder,
           folder);
    }
    from_ = folder_->newest();
    check_same_run(folder);
    if (job_.quiet) return;
    const int64_t epoch = from_->number("epoch");
    cli::notice(
        epoch > epochs
            ? fmt::format("--resume {}: the run is complete after {} epochs; nothing is left to train", folder, epochs)
            : fmt::format("--resume {}: continuing after step {} of epoch {}", folder, from_->number("step"), epoch));
  }

  void check_same_run(const std::string& folder) const {
    const std::string made_by = fmt::format("{} on {}", cli::build_info.commit, cli::cpu_name());
    std::vector<std::string> differences;
    for (const auto& [name, value] : identity_) {
      const auto saved = from_->values.find(name);
      if (saved != from_->values.end() && saved->second == value) continue;
      const std::string label = name.substr(name.starts_with("config.") ? 7 : 0);
      differences.push_back(fmt::format("{} was {}, now {}", label,
                                        saved == from_->values.end() ? "not saved" : printable_text(saved->second),
                                        value));
    }
    if (!differences.empty()) {
      fail(ExitCode::checkpoint, "--resume {}: is another run: {}; give the same settings, or start anew with --save",
           folder, fmt::join(differences, ", "));
    }
    const std::string& before = from_->text("made by");
    if (before != made_by) {
      cli::notice(
          fmt::format("--resume {}: saved by {}, continued by {}; the bits may differ from a run that was not stopped",
                      folder, printable_text(before), made_by));
    }
  }

  void before_run(TrainHooks& hooks) override {
    if (!is_on()) return;
    end_when_interrupted(hooks);
    if (from_) hooks.resume_from = &*from_;
    if (!folder_) return;
    hooks.wants_state = [this](const Progress& now) {
      if (every_.seconds > 0) return seconds_since(last_) >= every_.seconds;
      return is_due(every_, now.epoch, now.step, now.steps_per_epoch);
    };
    hooks.on_state = [this](TrainingState&& state) {
      state.values.insert(identity_.begin(), identity_.end());
      state.values[settings_key] = settings_.dump(-1, ' ', true, Json::error_handler_t::replace);
      state.values["made by"] = fmt::format("{} on {}", cli::build_info.commit, cli::cpu_name());
      folder_->save(std::move(state));
      last_ = Clock::now();
    };
  }

  // Waits for the last state. If training was interrupted, the signal says what is left of it.
  void after_run(RunRecord& run) override {
    const TrainResult& result = run.result;
    const auto end = [&] { end_saving(result); };
    result.interrupted ? end() : void(job_.each(end));
    if (!folder_) return;
    written_ = {{"saved", folder_->saved()},
                {"failed", folder_->failed()},
                {"seconds", result.parts.save},
                {"share", finite_or_null(result.parts.save / result.seconds)},
                {"resumed_after_step", from_ ? Json(from_->number("step")) : Json(nullptr)},
                {"resumed_in_epoch", from_ ? Json(from_->number("epoch")) : Json(nullptr)}};
  }

  void end_saving(const TrainResult& result) {
    if (!folder_) {
      if (!result.interrupted) return;
      // mpirun kills all ranks once one has ended with an error: it must not be this one before rank 0 has saved.
      if (!job_.ranks.is_first()) {
        cli::stay_at_the_end();
        end_interrupted("in a step; rank 0 says what is saved");
      }
      end_interrupted(fmt::format("after step {} of epoch {}; {}", job_.step, job_.epoch, job_.left));
    }
    folder_->finish();
    if (result.interrupted) end_interrupted(fmt::format("and saved; continue with {}", hint_));
    const double held_up = result.parts.save / result.seconds;
    if (folder_->saved() + folder_->failed() > 1 && held_up > max_held_up) {
      cli::notice(fmt::format("--save-every {}: saving held up training for {:.1f} % of its time; save less often",
                              every_text_, held_up * 100));
    }
  }

  void add_to_row(Json& row) const override { row["saving"] = written_; }
};

}  // namespace

MadePart make_saving(TrainJob& job) { return std::make_unique<Saving>(job); }

}  // namespace hs::bench::measure
