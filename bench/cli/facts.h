// What a flag's declaration says of it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace hs::bench::cli {

// The groups of --help; the first has what one command alone takes.
enum class Group { command, model, data, training, speed, memory, processes, output };

// What is known of a flag beside its name and its values, for --help and for all that asks about flags. Its group and
// how often it is wanted must be said; unless more is said, it may change the weights, and no time in particular.
struct Facts {
  Group group;
  bool is_rare;  // --help leaves it to --help-all, where a command has many flags
  bool changes_bits = true, is_compared = false, is_from_record = true, is_recorded = true;
  bool is_output = false, is_code = false;
  std::vector<std::string> other_names = {}, parts = {};
  std::function<bool()> counts = {}, has_sense = {};
  std::function<std::string()> otherwise = {};

  // What other programs call it.
  Facts& known_as(std::vector<std::string> names) { return other_names = std::move(names), *this; }
  // It changes no bit of the weights: a run may be resumed with another value.
  Facts& keeps_bits() { return changes_bits = false, *this; }
  // Parts of a run whose time it changes, as `compare --why` calls them.
  Facts& moves(std::vector<std::string> all) { return parts = std::move(all), *this; }
  // A record has null unless the condition holds, because the flag then says nothing.
  Facts& counts_if(std::function<bool()> condition) { return counts = std::move(condition), *this; }
  // Given though the condition, of other flags, does not hold, it is refused for this reason.
  Facts& needs(std::function<bool()> condition, std::function<std::string()> reason) {
    return has_sense = std::move(condition), otherwise = std::move(reason), *this;
  }
  Facts& needs(std::function<bool()> condition, std::string reason) {
    return needs(std::move(condition), [reason = std::move(reason)] { return reason; });
  }
  // `compare` says so if two records differ in it.
  Facts& compared() { return is_compared = true, *this; }
  // A record that is a --recipe leaves it out: it belongs to something that is written, or other members hold its
  // effect.
  Facts& not_from_record() { return is_from_record = false, *this; }
  Facts& unrecorded() { return is_recorded = false, *this; }
  // Names something to write, which only the command line does, and no record.
  Facts& writes() { return is_output = true, unrecorded(); }
  // Names code that is run. Only the command line does: recipes, records and states come from other people.
  Facts& runs_code() { return is_code = true, *this; }
};
inline Facts common(Group group) { return {group, false}; }
inline Facts rare(Group group) { return {group, true}; }
inline Facts own() { return common(Group::command); }

}  // namespace hs::bench::cli
