// Output of the program: results to stdout, everything else to stderr.
#pragma once

#include <string_view>

namespace hs::bench::cli {

inline constexpr const char* program_name = "halfstep-bench";

// To be called first in main(). Opens placeholders for standard streams that the caller closed; otherwise the next file
// opened would get their number, and with it the program's output.
void prepare_console();

// Prints one line on stderr, "halfstep-bench: MESSAGE", escaped by printable_text(), and without its middle if it is
// long. Ignores write errors.
void notice(std::string_view message);

// Escapes all but line breaks and tabs.
void write_stderr(std::string_view text);

// Of several processes, one writes: from now on this one only writes error messages, which main() prints with
// say_error(). Both name the rank, once it is known.
void say_errors_only();
void name_rank(int rank);
void say_error(std::string_view message);

// Writes all of the text to a file descriptor; false, with errno set, if that fails.
bool write_all(int file, std::string_view text);

// Escapes as write_stderr(). Throws Error (io) if not all of the text can be written. If nobody reads any more, ends
// the program as SIGPIPE does, without a word.
void write_stdout(std::string_view text);
void write_bytes(std::string_view bytes);  // the same, as they are

}  // namespace hs::bench::cli
