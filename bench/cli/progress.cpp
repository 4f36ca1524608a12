#include "bench/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "bench/cli/console.h"

namespace hs::bench::cli {
namespace {

constexpr auto redraw_interval = std::chrono::milliseconds(100), log_interval = std::chrono::milliseconds(60'000);
constexpr int bar_width = 20;

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

RedrawnLine::RedrawnLine(bool quiet) : quiet_(quiet), terminal_(stderr_is_terminal()) {}

bool RedrawnLine::is_due() const {
  return !quiet_ && Clock::now() - drawn_ >= (terminal_ ? redraw_interval : log_interval);
}

size_t RedrawnLine::columns() const {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void RedrawnLine::draw(std::string line) {
  drawn_ = Clock::now();
  if (!terminal_) return write_stderr(line + "\n");
  // A line that wraps cannot be redrawn: \r returns to the start of its last row.
  line.resize(std::min(line.size(), columns() - 1));
  write_all(STDERR_FILENO, "\r" + line + "\033[K");
  visible_ = true;
}

void RedrawnLine::erase() {
  if (visible_) write_all(STDERR_FILENO, "\r\033[K");
  visible_ = false;
}

void RedrawnLine::print(const std::string& line) {
  if (quiet_) return;
  if (!terminal_) drawn_ = Clock::now();
  erase();
  write_stderr(line);
}

ProgressDisplay::ProgressDisplay(bool quiet, const std::string& label, int64_t runs, int64_t epochs, int64_t samples,
                                 int64_t batch)
    : line_(quiet),
      label_(label.empty() ? "" : label + "  "),
      runs_(runs),
      epochs_(epochs),
      samples_(samples),
      batch_(batch) {}

double ProgressDisplay::done(int64_t epoch, double part_of_epoch) const {
  const double epochs_before = static_cast<double>((run_ - 1) * epochs_ + epoch - 1);
  return (epochs_before + part_of_epoch) / static_cast<double>(runs_ * epochs_);
}

std::string ProgressDisplay::position(int64_t epoch) const {
  const std::string run = runs_ == 1 ? "" : fmt::format("run {}/{}, ", run_, runs_);
  return fmt::format("{}{}epoch {}/{}", label_, run, epoch, epochs_);
}

std::string ProgressDisplay::remaining(double done) const {
  const double elapsed = seconds_since(start_);
  const int64_t seconds = std::llround(elapsed * (1 - done) / done);
  if (seconds < 3600) return fmt::format("{}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

void ProgressDisplay::on_step(const Progress& progress) {
  if (!line_.is_due()) return;
  const double part = static_cast<double>(progress.step) / static_cast<double>(progress.steps_per_epoch);
  const double all = done(progress.epoch, part);
  const int64_t samples = (progress.epoch - 1) * samples_ + std::min(progress.step * batch_, samples_);
  std::string line =
      fmt::format("{:3.0f} %  {}  loss {:.4f}  ETA {}  {:.0f} samples/s", all * 100, position(progress.epoch),
                  progress.loss, remaining(all), static_cast<double>(samples) / progress.seconds);
  if (line.size() + bar_width + 4 < line_.columns()) {
    const int filled = static_cast<int>(all * bar_width);
    line = fmt::format("[{:=<{}}{: <{}}] {}", "", filled, "", bar_width - filled, line);
  }
  line_.draw(std::move(line));
}

void ProgressDisplay::on_epoch(int64_t epoch, const EpochResult& result) {
  const double all = done(epoch, 1);
  const std::string test =
      result.evaluation_seconds > 0 ? fmt::format("  test accuracy {:.2f} %", result.test.accuracy * 100) : "";
  line_.print(fmt::format("{:3.0f} %  {}  loss {:.4f}{}  ETA {}  {:.0f} samples/s\n", all * 100, position(epoch),
                          result.training_loss, test, remaining(all), static_cast<double>(samples_) / result.seconds));
}

}  // namespace hs::bench::cli
