// The one exception type and the one table of exit codes.
// Every failure is a single sentence that says what was found, what was expected and what to do. Code that only throws
// includes this file; code that formats a message includes engine/check.h (fmt), which .cu files may not see.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace hs {

enum class ExitCode : int {  // what a program ends with; the meanings are in exit_code_table
  ok = 0,
  missed = 1,
  usage = 2,
  bad_input = 3,
  io = 4,
  checkpoint = 5,
  numeric = 6,
  device = 7,
  out_of_memory = 8,
  rank = 9,
  internal = 70,
  hung_up = 129,
  interrupted = 130,
  terminated = 143,
};

struct ExitCodeRow {  // an exit code and its meaning, for the user
  ExitCode code;
  const char* meaning;
};

// Printed by --help and listed in docs/command_line.md; a test compares the three.
inline constexpr ExitCodeRow exit_code_table[] = {
    {ExitCode::ok, "success"},
    {ExitCode::missed, "missed: a target was not reached, or a comparison found a regression"},
    {ExitCode::usage, "usage: an argument, or a combination of arguments, is wrong"},
    {ExitCode::bad_input, "bad input data: a data file is damaged or not what it claims to be"},
    {ExitCode::io, "input/output: a file cannot be opened, read or written"},
    {ExitCode::checkpoint, "checkpoint: invalid, or made for another model"},
    {ExitCode::numeric, "numeric failure: the loss became inf or NaN"},
    {ExitCode::device, "device: missing, failing, or out of device memory"},
    {ExitCode::out_of_memory, "out of host memory"},
    {ExitCode::rank, "rank: another process of the run died, hangs, or was started differently"},
    {ExitCode::internal, "internal error: a bug in halfstep"},
    {ExitCode::hung_up, "stopped by SIGHUP"},
    {ExitCode::interrupted, "stopped by SIGINT"},
    {ExitCode::terminated, "stopped by SIGTERM"},
};

// Failures that a caller may need to distinguish beyond the exit code.
enum class ErrorKind : uint8_t {
  other,
  no_variant,      // no variant of a kernel supports the call
  forced_variant,  // the forced variant does not support the call; others may
  out_of_memory,   // of a device: a step of fewer bytes would fit
};

// What halfstep throws: an exit code, and a line for the user that names the fix.
class Error : public std::runtime_error {
 public:
  // message: one line, lower case, without a full stop: what was found, what was expected, what to do.
  Error(ExitCode code, const std::string& message, ErrorKind kind = ErrorKind::other)
      : std::runtime_error(message), code_(code), kind_(kind) {}
  ExitCode code() const { return code_; }   // what the program should exit with
  ErrorKind kind() const { return kind_; }  // which failure, for callers that handle some
  // The same error with another message, which adds where it happened.
  Error with_message(const std::string& message) const { return {code_, message, kind_}; }

 private:
  ExitCode code_;
  ErrorKind kind_;
};

}  // namespace hs
