// Signals. SIGINT, SIGTERM and SIGHUP ask the program to stop, and commands ask for them between steps. If none has
// asked within a second, or when a second signal comes, the handler ends the program itself: it removes temporary files
// and folders and says so in one line. A signal that means a bug (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) does that
// at once, with exit code 70 and the op that was running; with a sanitizer it is left to that.
#pragma once

#include <string>
#include <string_view>

#include "engine/error.h"

namespace hs::bench::cli {

// To be called first in main(). A signal to stop that the caller had set to be ignored (nohup, a background job) stays
// ignored. SIGPIPE and SIGXFSZ become errors of write().
void watch_signals();

// Throws Error: out_of_memory (stack), io (open files), if the limits of the process (ulimit) are below what the
// program needs to run at all.
void check_limits();

// What the handler's line says is running.
void name_running_command(std::string_view name);

// Throws Error (interrupted, terminated or hung_up) with "stopped by SIGINT WHERE" if one came.
void check_signals(const std::string& where);
bool is_stop(ExitCode code);

// To be called before the program says why it ends: from then on no handler does. Does not return if one has begun to.
void begin_last_line();

}  // namespace hs::bench::cli
