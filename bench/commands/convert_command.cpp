// halfstep-bench data convert: writes a data set in another format, or checks that it can be read.
#include "bench/cli/inputs.h"
#include "bench/cli/progress.h"
#include "bench/commands/commands.h"
#include "bench/measure/work_folder.h"
#include "data/io/memory_source.h"
#include "engine/files/input_file.h"

namespace hs::bench::commands {
namespace {

namespace fs = std::filesystem;

class ConvertCommand : public cli::Command {
  std::vector<std::string> names_;  // of the source and the target
  measure::SetFormat as_ = {.format = "record"};
  int64_t train_ = 0, test_ = 0;
  std::optional<ImageShape> size_;
  bool quiet_ = false, check_ = false, skip_damaged_ = false;
  cli::LeftOut left_out_;
  std::vector<std::string> class_names_;

  void declare(cli::Flags& flags) override {
    flags.examples({"data convert mnist mnist_records --format record --shards 4",
                    "data convert mnist mnist_files --format png", "data convert cifar10 cifar10_records --compress",
                    "data convert my_photographs --size 64x64 --check    # names every damaged file"},
                   "docs/data_formats.md describes the formats.");
    flags.words("SRC DST", names_, 1, 2,
                "From mnist, fashion_mnist, cifar10, synthetic, or a folder in any format, to a folder to make");
    flags.choice("--format", own(), as_.format, {"record", "tfrecord", "idx", "png", "jpeg", "pgm"}, "Format of DST");
    flags.integer("--shards", own(), as_.shards, 1, 256, "Files for each part, of record and tfrecord");
    flags.on_off("--compress", own(), as_.compress, "Compress the blocks of record files (zlib)");
    flags.on_off("--check", own(), check_,
                 "Write nothing, read all samples of SRC and print a line for each that is damaged");
    flags.skip_damaged(skip_damaged_);
    flags.size(size_);
    flags.integer("--train", common(Group::data), train_, 0, int64_t{1} << 40, "Training samples, 0: all");
    flags.integer("--test", common(Group::data), test_, 0, int64_t{1} << 40, "Test samples, 0: all");
    flags.quiet(quiet_);
  }

  // Returns the number of samples.
  int64_t convert(FoundDataset& found, Part part, const fs::path& folder) {
    const int64_t limit = part == Part::train ? train_ : test_;
    std::unique_ptr<SampleSource> source = open_dataset(found, part, found.format == DataFormat::generated ? limit : 0);
    SampleInfo info = source->info();
    if (info.is_text())
      fail(ExitCode::usage, "data convert: {} is a text, and the formats to write hold images", info.name);
    if (limit > info.count) fail(ExitCode::usage, "--{} {}: the set has {} samples", hs::name(part), limit, info.count);
    if (limit != 0) info.count = limit;
    for (const std::string& remark : {info.remark, part == Part::train ? found.remark : ""}) {
      if (!remark.empty()) cli::notice(remark);
    }
    if (limit != 0 && !found.has_mixed_samples()) {
      source = std::make_unique<PartOfSamples>(std::move(source), 0, limit, SampleOrder::mixed);
    }
    class_names_ = info.class_names;
    found.set.scale = info.scale;  // not measured again
    const auto writer = measure::write_split(as_, folder, part, info);
    cli::RedrawnLine progress(quiet_);
    const Clock::time_point start = Clock::now();
    const auto rate = [&](int64_t done) { return static_cast<double>(done) / seconds_since(start); };
    copy_samples(*source, info.count, *writer, [&](int64_t done) {
      cli::check_signals("while converting; nothing was written");
      if (!progress.is_due()) return;
      progress.draw(fmt::format("{}: {:3.0f} %  {} of {} images  {:.0f} images/s  ETA {:.0f} s", hs::name(part),
                                100.0 * static_cast<double>(done) / static_cast<double>(info.count), done, info.count,
                                rate(done), static_cast<double>(info.count - done) / rate(done)));
    });
    progress.print(fmt::format("{}: {} images in {:.2f} s, {:.0f} images/s, {:.1f} MB/s\n", hs::name(part), info.count,
                               seconds_since(start), rate(info.count),
                               rate(info.count) * static_cast<double>(info.image_bytes()) / 1e6));
    return info.count;
  }

  // Says if names of classes are lost: IDX and TFRecord have no place for them, records 3.8 kB.
  void check_names(const FoundDataset& from) const {
    const Part part = from.has(Part::train) ? Part::train : Part::test;
    FoundDataset to = find_dataset(names_[1]);
    to.set.scale = default_pixel_scale;  // not measured
    if (class_names_.empty() || open_dataset(to, part)->info().class_names == class_names_) return;
    cli::notice(fmt::format("{}: the names of the classes, such as {}, are not kept; labels are the numbers from 0",
                            printable(names_[1]), class_names_.front()));
  }

  // Reads all samples, and prints why one cannot be read.
  void check(FoundDataset& found) const {
    int64_t samples = 0, problems = 0;
    const auto say = [&](const std::string& why) { cli::write_stdout(why + "\n"), ++problems; };
    const auto try_to = [&](const std::function<void()>& read) {
      try {
        read();
      } catch (const Error& error) {
        if (error.code() != ExitCode::bad_input) throw;
        say(error.what());
      }
    };
    if (needs_scale(found)) found.set.scale = default_pixel_scale;  // not measured
    if (found.format == DataFormat::images) found.set.on_damaged = say;
    for (const Part part : {Part::train, Part::test}) {
      if (!found.has(part)) continue;
      try_to([&] {
        const auto source = open_dataset(found, part);
        std::vector<uint8_t> image(static_cast<size_t>(source->info().image_bytes()));
        samples += source->info().count;
        for (int64_t i = 0; i < source->info().count; ++i) {
          cli::check_signals("while checking");
          try_to([&] { source->read(i, image.data()); });
        }
      });
    }
    if (problems > 0)
      fail(ExitCode::bad_input, "{}: {} problem{}, a line for each on stdout", printable(names_[0]), problems,
           problems == 1 ? "" : "s");
    cli::write_stdout(fmt::format("{}: {} samples, all can be read\n", printable(names_[0]), samples));
  }

  void run(const cli::Flags& flags) override {
    if (const size_t wanted = check_ ? 1 : 2; names_.size() != wanted) {
      fail(ExitCode::usage, "data convert SRC {}: {} given, expected {}; see {} data convert --help",
           check_ ? "--check" : "DST", names_.size(), wanted, cli::program_name);
    }
    if (flags.given("--shards") && as_.format != "record" && as_.format != "tfrecord") {
      fail(ExitCode::usage, "--shards {}: {} has none, only record and tfrecord do", as_.shards, as_.format);
    }
    if (as_.compress && as_.format != "record") {
      fail(ExitCode::usage, "--compress: {} has no such switch, only record does", as_.format);
    }
    FoundDataset found = find_dataset(names_[0]);
    found.set.size = size_;
    found.set.how_to_resize = cli::resizing_text;
    if (check_) return check(found);
    found.set.how_to_leave_out = cli::leaving_out_text;
    if (skip_damaged_) found.set.on_damaged = [this](const std::string& why) { left_out_.add(why); };
    OutputFolder folder(names_[1]);
    int64_t counts[] = {0, 0};
    for (const Part part : {Part::train, Part::test}) {
      if (found.has(part)) counts[part == Part::test] = convert(found, part, folder.path());
    }
    left_out_.say();
    const auto [files, bytes] = measure::files_in(folder.path());
    folder.keep();
    check_names(found);
    cli::write_stdout(fmt::format("{}: {} training and {} test images as {}, {} files, {:.1f} MB\n",
                                  printable(names_[1]), counts[0], counts[1], as_.format, files,
                                  static_cast<double>(bytes) / 1e6));
  }
};

}  // namespace

std::unique_ptr<cli::Command> make_convert_command() { return std::make_unique<ConvertCommand>(); }

}  // namespace hs::bench::commands
