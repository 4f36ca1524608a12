// What the program says: results to stdout, everything else to stderr.
#pragma once

#include <string_view>

namespace hs::bench::cli {

inline constexpr const char* program_name = "halfstep-bench";

// To be called first in main(): the standard streams that the caller closed are occupied, or a file of ours would get
// their number and our text.
void prepare_console();

// One line on stderr, "halfstep-bench: MESSAGE", escaped by printable_text(). A stderr that cannot be written
// is no reason to stop.
void notice(std::string_view message);

void write_stderr(std::string_view text);

// All of the text to a file descriptor, however many calls it takes; false, and errno, if that fails.
bool write_all(int file, std::string_view text);

// Throws Error (io) if stdout does not take all of it.
void write_stdout(std::string_view text);

}  // namespace hs::bench::cli
