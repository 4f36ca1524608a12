#include "bench/measure/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "bench/cli/console.h"
#include "data/formats/tfrecord.h"
#include "engine/check.h"
#include "engine/files/protobuf.h"
#include "engine/printable.h"

namespace hs::bench::measure {
namespace {

using namespace protobuf;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, bool continues) {
  path_ = folder / fmt::format("events.out.tfevents.{:.0f}.{}.halfstep", seconds_since_1970(), ::getpid());
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (continues || !entry.path().filename().native().starts_with("events.out.")) continue;
    fail(ExitCode::usage, "--tensorboard {}: has the curves of another run; name another folder", printable(folder));
  }
  std::filesystem::create_directories(folder, error);
  if (!error) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) error = {errno, std::generic_category()};
  }
  if (error) fail(ExitCode::io, "--tensorboard {}: cannot be written: {}", printable(folder), error.message());
  write(field(3, "brain.Event:2"));
}

EventFile::~EventFile() { ::close(descriptor_); }

void EventFile::add(int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += field(1, field(1, tag) + float_field(2, static_cast<float>(value)));
  }
  write(number_field(2, step) + field(5, summary));
}

void EventFile::restart(int64_t step) {
  write(number_field(2, step) + field(7, number_field(1, 1)));  // SessionLog, START
}

void EventFile::write(const std::string& event) {
  if (cli::write_all(descriptor_, framed_tfrecord(double_field(1, seconds_since_1970()) + event))) return;
  fail(ExitCode::io, "{}: cannot be written: {}", printable(path_), std::strerror(errno));
}

}  // namespace hs::bench::measure
