// Signals. SIGINT, SIGTERM, SIGHUP, and what batch systems send before they kill (SIGUSR1, SIGUSR2, SIGXCPU) request a
// stop, and commands poll for one between steps. If none polls within a second, or a second signal arrives, the handler
// terminates the program: it removes temporary files and folders and reports this in one line. A signal that means a
// bug (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) terminates at once, with exit code 70 and the name of the running op;
// in sanitizer builds the sanitizer handles it.
#pragma once

#include <string>
#include <string_view>

#include "engine/error.h"

namespace hs::bench::cli {

// To be called first in main(). A stop signal that the parent process ignores (nohup, a background job) stays ignored.
// SIGPIPE and SIGXFSZ become errors of write().
void watch_signals();

// Throws Error: out_of_memory (stack), io (open files), if the process limits (ulimit) are below what the program
// needs.
void check_limits();

// Sets the command that the handler's line names.
void name_running_command(std::string_view name);

// What internal errors end with: "; please report it", or, from name_suspect() on, that a plug-in is loaded.
void name_suspect(std::string_view plugin);
const char* whom_to_tell();

// Throws Error (interrupted, terminated or hung_up) with "stopped by SIGINT WHERE" if a stop signal arrived.
void check_signals(const std::string& where);
bool is_stop(ExitCode code);

// For a command that has something to save before it ends: from now on it has ten seconds to poll, by stop_requested(),
// and then as long as saving takes. A second signal still terminates it at once.
void allow_to_finish();
bool stop_requested();

// To be called before the program prints why it ends: from then on no handler prints a line. Does not return if a
// handler has already begun one.
void begin_last_line();

// For a process whose end would end others that still have something to save: once its last line is printed, it stays
// for ten seconds, or until a signal ends it.
void stay_at_the_end();
void wait_at_the_end();  // for main(), after the line

}  // namespace hs::bench::cli
