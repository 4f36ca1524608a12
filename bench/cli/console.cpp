#include "bench/cli/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "engine/check.h"
#include "engine/files/output_file.h"
#include "engine/printable.h"

namespace hs::bench::cli {
namespace {

bool errors_only = false;
std::string rank_name;  // "rank 2: "

// Of a message that repeats a name of a megabyte, its beginning and its end, which says what to do.
std::string one_line(std::string_view message) {
  constexpr size_t beginning = 1400, end = 600;
  std::string shown = printable_text(message);
  if (shown.size() <= beginning + end) return shown;
  const auto is_inside = [&](size_t at) { return (static_cast<unsigned char>(shown[at]) & 0xc0) == 0x80; };
  size_t from = beginning, to = shown.size() - end;
  while (is_inside(from)) --from;
  while (is_inside(to)) ++to;
  return shown.replace(from, to - from, " ... ");
}

// Whatever a file or its name may contain, a terminal must not obey it.
std::string lines(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t size = std::min(text.find_first_of("\n\t"), text.size());
    shown += printable_text(text.substr(0, size));
    if (size < text.size()) shown += text[size];
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  return shown;
}

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
  write_all(STDERR_FILENO, fmt::format("{}: {}{}\n", program_name, rank_name, one_line(message)));
}

void notice(std::string_view message) { write_stderr(fmt::format("{}: {}\n", program_name, one_line(message))); }

void write_stderr(std::string_view text) {
  if (!errors_only) write_all(STDERR_FILENO, lines(text));
}

void write_stdout(std::string_view text) { write_bytes(lines(text)); }

void write_bytes(std::string_view bytes) {
  if (errors_only || write_all(STDOUT_FILENO, bytes)) return;
  const int error = errno;
  if (error == EPIPE) {  // a reader that has seen enough, as `head`: ends as programs do that know nothing of it
    remove_temporary_paths();
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  fail(ExitCode::io, "stdout: {}", std::strerror(error));
}

}  // namespace hs::bench::cli
