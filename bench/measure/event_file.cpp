// --tensorboard: the curves of a training in an event file, which TensorBoard's web page shows while it is written.
//
// A file is a sequence of TFRecord records, each a tf.Event message; the first one says "brain.Event:2". TensorBoard
// finds it by its name, which contains "tfevents", below the folder that it is given
// (tensorboard/compat/proto/event.proto).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>

#include "bench/cli/console.h"
#include "bench/measure/train_part.h"
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

constexpr double seconds_between_points = 1;  // of a curve within an epoch

struct Scalar {
  const char* tag;  // "test/accuracy"
  double value;
};

class EventFile : NonCopyable {
 public:
  // Makes the folder and a new file in it. Throws Error (io), as add() does.
  // continues: a run that has a file there. Throws Error: io; usage (a file of another run, whose curves would mix).
  EventFile(const std::filesystem::path& folder, bool continues) {
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
  ~EventFile() { ::close(descriptor_); }

  // Points of the curves at this step, with the time of now; they are in the file at once.
  void add(int64_t step, const std::vector<Scalar>& scalars) {
    std::string summary;
    for (const auto& [tag, value] : scalars) {
      summary += field(1, field(1, tag) + float_field(2, static_cast<float>(value)));
    }
    write(number_field(2, step) + field(5, summary));
  }

  // What other files of the folder have from this step on does not count: a run that was killed and is continued
  // before.
  void restart(int64_t step) {
    write(number_field(2, step) + field(7, number_field(1, 1)));  // SessionLog, START
  }

 private:
  void write(const std::string& event) {
    if (cli::write_all(descriptor_, framed_tfrecord(double_field(1, seconds_since_1970()) + event))) return;
    fail(ExitCode::io, "{}: cannot be written: {}", printable(path_), std::strerror(errno));
  }

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// --tensorboard
class Curves : public TrainPart {
  using TrainPart::TrainPart;
  std::string path_;
  std::deque<EventFile> files_;  // one for each run
  EventFile* file_ = nullptr;    // of this run, until it cannot be written
  int64_t steps_ = 0;            // of this run so far
  double last_point_ = 0;
  bool continues_ = false;  // the run was resumed, and has not drawn yet

  void declare(cli::Flags& flags) override {
    flags.text("--tensorboard", rare(cli::Group::output).known_as({"logdir"}).writes(), path_, "DIR",
               "Write the curves of the training for TensorBoard, of several runs each into a folder of its own");
  }

  // All of them, so that a folder that cannot be written fails before training.
  void before_training(const cli::Flags& flags) override {
    if (path_.empty() || !job_.ranks.is_first()) return;
    const std::filesystem::path folder = path_;
    for (int64_t run = 1; run <= job_.repeat; ++run) {
      files_.emplace_back(job_.repeat == 1 ? folder : folder / fmt::format("run-{}", run), flags.given("--resume"));
    }
  }

  void before_run(TrainHooks& hooks) override {
    if (files_.empty()) return;
    file_ = &files_[static_cast<size_t>(job_.run - 1)];
    last_point_ = 0;
    const TrainingState* from = hooks.resume_from;
    continues_ = from != nullptr;
    // Where a test is the first to be drawn, that is an epoch's end.
    steps_ = from ? from->number("epoch") * from->number("step") : 0;
    then(hooks.on_step, [this](const Progress& progress) { draw_step(progress); });
    then(hooks.on_epoch, [this](int64_t, const EpochResult& result) { draw_epoch(result); });
  }

  void draw(const std::vector<Scalar>& points) {
    if (file_ && !job_.each([&] { file_->add(steps_, points); })) file_ = nullptr;
  }

  void draw_step(const Progress& progress) {
    steps_ = (progress.epoch - 1) * progress.steps_per_epoch + progress.step;
    const bool continues = std::exchange(continues_, false);
    if (continues && file_ && !job_.each([&] { file_->restart(steps_); })) file_ = nullptr;
    if (progress.seconds < last_point_ + seconds_between_points) return;
    draw({{"training/loss_so_far_in_epoch", progress.loss}});
    last_point_ = progress.seconds;
  }

  void draw_epoch(const EpochResult& result) {
    const int64_t samples = split_of(job_.experiment, job_.data->train->info()).trained;
    draw({{"training/loss", result.training_loss},
          {"training/samples_per_second", static_cast<double>(samples) / result.seconds}});
    if (result.evaluation_seconds > 0) draw({{"test/loss", result.test.loss}, {"test/accuracy", result.test.accuracy}});
  }
};

}  // namespace

MadePart make_curves(TrainJob& job) { return std::make_unique<Curves>(job); }

}  // namespace hs::bench::measure
