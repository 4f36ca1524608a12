// RunFolder: the saved states of one training run, in files of a folder that no other run can use at the same time.
//
//   state-000007.safetensors   one file per state: tensors, and values as metadata; the highest number is newest
//   lock                       locked while a run uses the folder; contains its process number
//
// A file appears whole or not at all, is on the disk and has been read back before an older one is deleted
// (engine/files/safetensors.h), so at every moment at least one valid state is there. It is written by a thread of its
// own, beside training, which waits only if the previous write has not ended. Not thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "models/files/training_state.h"

namespace hs {

class RunFolder : NonCopyable {  // see the head of this file
 public:
  // Creates the folder if there is none, and locks it. keep: the number of states that remain, at least 1. `say` is
  // called with a line for the user: a state that is damaged, or cannot be written. Throws Error (io): in use by
  // another process, or not writable.
  RunFolder(const std::filesystem::path& folder, int64_t keep, std::function<void(const std::string&)> say);
  ~RunFolder();  // waits for the thread

  const std::filesystem::path& path() const { return folder_; }  // the folder's
  bool is_empty() const { return files_.empty(); }               // whether it has no state that may be valid

  // The newest state that is valid. Throws Error: checkpoint (there are files but none is valid, or the newest was
  // written by a later version); io (one cannot be read, which does not mean that it is damaged).
  // REQUIRES: not is_empty()
  TrainingState newest();

  // Writes a state beside training. If that fails, `say` is told and training goes on: the next one may succeed.
  void save(TrainingState&& state);
  // Waits for the last write. Throws Error (io) if it failed.
  void finish();
  int64_t saved() const { return saved_; }    // states written
  int64_t failed() const { return failed_; }  // states that could not be

 private:
  void write(const TrainingState& state, const std::filesystem::path& file);
  void remove_surplus();

  std::filesystem::path folder_;
  size_t keep_;
  std::function<void(const std::string&)> say_;
  int lock_ = -1;
  int64_t next_number_ = 1;
  std::vector<std::filesystem::path> files_;    // oldest first; written here, or found and not known to be damaged
  std::vector<std::filesystem::path> damaged_;  // deleted once there is a valid one
  std::future<void> writing_;                   // which uses the members above
  int64_t saved_ = 0, failed_ = 0;
};

// Whether a file there is called as a state is, or the folder cannot be read. Makes nothing.
bool may_have_states(const std::filesystem::path& folder);

// A value of the folder's newest state that can be opened, "" if there is none: without its lock, and without a word
// about the others, which newest() has.
std::string newest_value(const std::filesystem::path& folder, const std::string& name);

}  // namespace hs
