#include "models/files/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/check.h"
#include "engine/files/output_file.h"
#include "engine/files/safetensors.h"
#include "engine/observe.h"
#include "engine/parsed_number.h"
#include "engine/printable.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "state-", suffix = ".safetensors";
constexpr const char* kind_key = "kind";
constexpr std::string_view kind_prefix = "halfstep training state ";
constexpr int64_t version = 1;

fs::path file_of(const fs::path& folder, int64_t number) {
  return folder / fmt::format("{}{:06}{}", prefix, number, suffix);
}

// The number of a state's file, or -1.
int64_t number_of(const fs::path& path) {
  const std::string file = path.filename().native();
  std::string_view name = file;
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return -1;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  return parsed_number<int64_t>(name).value_or(-1);
}

// A state that was left over by a run that was killed while it wrote. No other run writes one here, because the folder
// is locked; but another program may write another file.
bool is_left_over(const fs::path& path) {
  const std::string name = path.filename().native();
  const size_t state = name.find(prefix);
  return name.starts_with(".halfstep-") && name.ends_with(".tmp") && state != std::string::npos &&
         number_of(name.substr(state, name.size() - state - 4)) >= 0;
}

TrainingState read_state(const SafetensorsFile& file) {
  TrainingState state;
  state.values = file.metadata();
  state.values.erase(kind_key);
  for (const SafetensorsEntry& entry : file.entries()) state.tensors[entry.name] = file.read(entry);
  return state;
}

// The version of the format, or 0 if the file is no state.
int64_t version_of(const SafetensorsFile& file) {
  const auto kind = file.metadata().find(kind_key);
  if (kind == file.metadata().end() || !kind->second.starts_with(kind_prefix)) return 0;
  return std::max<int64_t>(0, parsed_number<int64_t>(kind->second.substr(kind_prefix.size())).value_or(0));
}

// Oldest first.
std::vector<fs::path> states_in(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (number_of(entry->path()) >= 0) files.push_back(entry->path());
  }
  std::ranges::sort(files, {}, number_of);
  return files;
}

}  // namespace

bool may_have_states(const fs::path& folder) {
  std::error_code error;
  return !states_in(folder, error).empty() || (error && fs::exists(folder));
}

RunFolder::RunFolder(const fs::path& folder, int64_t keep, std::function<void(const std::string&)> say)
    : folder_(folder), keep_(static_cast<size_t>(keep)), say_(std::move(say)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail(ExitCode::io, "{}: cannot be created: {}", printable(folder_), error.message());
  const fs::path lock = folder_ / "lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (lock_ < 0) fail(ExitCode::io, "{}: cannot be written: {}", printable(lock), std::strerror(errno));
  try {
    const bool locked = ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
    const int why = errno;
    std::array<char, 32> holder{};
    const ssize_t read = std::max<ssize_t>(::pread(lock_, holder.data(), holder.size(), 0), 0);
    const int64_t process = parsed_number<int64_t>({holder.data(), static_cast<size_t>(read)}).value_or(0);
    if (!locked && why != EWOULDBLOCK) {
      say_(fmt::format("{}: cannot be locked: {}; let no other run use it", printable(folder_), std::strerror(why)));
    } else if (!locked) {
      fail(ExitCode::io, "{}: is in use by {}; wait for it to end, or choose another folder", printable(folder_),
           process > 0 ? fmt::format("process {}", process) : "another process");
    }
    struct stat status = {};
    if (::fstat(lock_, &status) != 0 || status.st_nlink > 1 || (read > 0 && process <= 0)) {
      fail(ExitCode::io, "{}: is not the lock of a run, and would be overwritten; choose another folder",
           printable(lock));
    }
    const std::string own = std::to_string(::getpid());
    const auto size = static_cast<ssize_t>(own.size());
    errno = ENOSPC;  // what a write that is cut short does not say
    if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, own.data(), own.size(), 0) != size) {
      fail(ExitCode::io, "{}: cannot be written: {}", printable(lock), std::strerror(errno));
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      if (is_left_over(entry.path())) fs::remove(entry.path(), error);
    }
    files_ = states_in(folder_, error);
    if (!files_.empty() && number_of(files_.back()) == INT64_MAX) {
      fail(ExitCode::checkpoint, "{}: no number is left for the next state; rename it", printable(files_.back()));
    }
    if (!files_.empty()) next_number_ = number_of(files_.back()) + 1;
    const OutputFile probe(
        file_of(folder_, next_number_));  // a folder that cannot be written is an error now, not later
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() {
  if (writing_.valid()) writing_.wait();
  ::close(lock_);
}

std::string newest_value(const fs::path& folder, const std::string& name) {
  std::error_code ignored;
  std::vector<fs::path> files = states_in(folder, ignored);
  std::ranges::reverse(files);
  for (const fs::path& path : files) {
    try {
      const SafetensorsFile file(path);
      const auto value = file.metadata().find(name);
      if (version_of(file) == version) return value == file.metadata().end() ? "" : value->second;
    } catch (const Error&) {
      continue;
    }
  }
  return "";
}

TrainingState RunFolder::newest() {
  std::string first_reason;
  while (!files_.empty()) {
    std::string reason;
    try {
      const SafetensorsFile file(files_.back());
      const int64_t written_by = version_of(file);
      if (written_by > version) {
        fail(ExitCode::usage, "{}: written in version {} of the format, this program reads up to {}; use a newer one",
             printable(files_.back()), written_by, version);
      }
      if (written_by == version) return read_state(file);
      reason = printable(files_.back()) + ": is not a training state";
    } catch (const Error& error) {
      if (error.code() == ExitCode::usage) throw Error(ExitCode::checkpoint, error.what());
      // That a file cannot be read now is no damage: it would be deleted after the next save.
      if (error.code() == ExitCode::out_of_memory || error.code() == ExitCode::io) throw;
      reason = error.what();
    }
    if (first_reason.empty()) first_reason = reason;
    damaged_.push_back(files_.back());
    files_.pop_back();
    if (!files_.empty()) say_(fmt::format("{}; going back to {}", reason, printable(files_.back().filename())));
  }
  fail(ExitCode::checkpoint, "{}: no state in it is valid: {}", printable(folder_), first_reason);
}

void RunFolder::save(TrainingState&& state) {
  try {
    finish();
  } catch (const Error& error) {
    say_(fmt::format("{}; training goes on, its last saved state is {}", error.what(),
                     files_.empty() ? "none" : printable(files_.back().filename())));
  }
  const fs::path file = file_of(folder_, next_number_++);
  writing_ = std::async(std::launch::async, [this, file, state = std::move(state)]() mutable {
    name_this_thread("state writer");
    write(state, file);
    state = {};  // the future would keep it until the next one
  });
}

void RunFolder::finish() {
  if (!writing_.valid()) return;
  try {
    writing_.get();
    ++saved_;
  } catch (...) {
    ++failed_;
    throw;
  }
}

void RunFolder::write(const TrainingState& state, const fs::path& file) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : state.tensors) tensors.push_back({name, tensor});
  Metadata metadata = state.values;
  metadata[kind_key] = fmt::format("{}{}", kind_prefix, version);
  write_safetensors(file, tensors, metadata);
  files_.push_back(file);
  remove_surplus();
}

void RunFolder::remove_surplus() {
  std::error_code ignored;  // what cannot be deleted does no harm
  for (const fs::path& file : std::exchange(damaged_, {})) fs::remove(file, ignored);
  while (files_.size() > keep_) {
    fs::remove(files_.front(), ignored);
    files_.erase(files_.begin());
  }
}

}  // namespace hs
