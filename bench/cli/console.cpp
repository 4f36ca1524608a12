#include "bench/cli/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "engine/check.h"
#include "engine/printable.h"

namespace hs::bench::cli {
namespace {

bool errors_only = false;
std::string rank_name;  // "rank 2: "

}  // namespace

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void prepare_console() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    // Read-only, so that writing to a closed stdout stays an error. open() returns the lowest free number: this one.
    if (::fcntl(file, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

void say_errors_only() { errors_only = true; }
void name_rank(int rank) { rank_name = fmt::format("rank {}: ", rank); }

void say_error(std::string_view message) {
  write_all(STDERR_FILENO, fmt::format("{}: {}{}\n", program_name, rank_name, printable_text(message)));
}

void notice(std::string_view message) { write_stderr(fmt::format("{}: {}\n", program_name, printable_text(message))); }

void write_stderr(std::string_view text) {
  if (!errors_only) write_all(STDERR_FILENO, text);
}

void write_stdout(std::string_view text) {
  if (errors_only) return;
  if (!write_all(STDOUT_FILENO, text)) fail(ExitCode::io, "stdout: {}", std::strerror(errno));
}

}  // namespace hs::bench::cli
