// The flags that several commands share, each declared only here.
#include <fmt/ranges.h>

#include "bench/cli/command_line.h"
#include "bench/cli/environment.h"
#include "data/open_dataset.h"
#include "engine/check.h"
#include "engine/printable.h"
#include "models/files/run_folder.h"
#include "models/models.h"

namespace hs::bench::cli {
namespace {

// The most samples that data/synthetic.h can draw.
constexpr int64_t max_samples = int64_t{1} << 24;
// JSON readers may store numbers as doubles, which are exact up to 2^53; runs add to the seed.
constexpr uint64_t max_seed = (uint64_t{1} << 53) - 1000;

const std::vector<std::pair<std::string, std::optional<CacheMode>>> caches = {
    {"auto", std::nullopt}, {"none", CacheMode::none}, {"ram", CacheMode::ram}, {"device", CacheMode::device}};

std::string models_with_blocks() {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [](const std::string& name) { return !model_options(name).has_blocks; });
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const char* name(CacheMode mode) {
  return std::ranges::find(caches, std::optional(mode), &decltype(caches)::value_type::second)->first.c_str();
}

Flags& Flags::model(std::string& value) {
  return choice("--model", common(Group::model).moves({"step"}).compared(), value, model_names(), "Model");
}

Flags::Reader model_reader(const std::string& flag, std::string& path) {
  return [flag, &path](const std::string& word) {
    const std::filesystem::path given = path = word;
    const bool is_state = given.filename().native().starts_with("state-");
    const std::filesystem::path folder = !is_state                 ? given
                                         : given.has_parent_path() ? given.parent_path()
                                                                   : std::filesystem::path(".");
    std::error_code ignored;
    if (!std::filesystem::is_directory(folder, ignored) || !may_have_states(folder)) return;
    fail(ExitCode::usage, "{} {}: is the state of a run; {} train --resume {} --save-model FILE writes its model", flag,
         printable_text(word), program_name, quoted(folder));
  };
}

Flags& Flags::model_file(std::string& path) {
  return text("--model", common(Group::model), model_reader("--model", path), "", "FILE",
              "Model that train --save-model wrote");
}

Flags& Flags::context(int64_t& value, const std::string& model) {
  const auto reads_text = [&model] { return model_options(model).input == InputKind::tokens; };
  const auto otherwise = [&model] {
    return fmt::format("{} reads images; models that read a text: {}", model,
                       fmt::join(model_names(InputKind::tokens), ", "));
  };
  return integer("--context",
                 rare(Group::model)
                     .known_as({"seq-len", "block-size"})
                     .moves({"step"})
                     .counts_if(reads_text)
                     .needs(reads_text, otherwise),
                 value, 1, largest_context, "Symbols of a text that a model sees before it predicts the next one");
}

Flags& Flags::blocks(int64_t& value, const std::string& model) {
  const auto has_blocks = [&model] { return model_options(model).has_blocks; };
  const auto otherwise = [&model] {
    return fmt::format("{} has none; models with blocks: {}", model, models_with_blocks());
  };
  return integer_or_auto(
             "--blocks", rare(Group::model).known_as({"layers", "depth"}).moves({"step"}).needs(has_blocks, otherwise),
             value, 0, 1, 4096, "Blocks of the model (" + models_with_blocks() + "), auto: as many as it usually has")
      .record("blocks",
              [=, &value, &model] { return has_blocks() ? Json(model_options(model).depth(value)) : Json(nullptr); });
}

Flags& Flags::data(DataChoice& choice) {
  text("--data", common(Group::data).known_as({"dataset"}).moves({"step", "wait"}).unrecorded(), choice.name, "NAME",
       "mnist, fashion_mnist, cifar10, tinyshakespeare, synthetic, or a folder in any format, or a .txt file");
  flags_.back().choices = dataset_names();
  size(choice.size);
  skip_damaged(choice.skip_damaged);
  return real("--test-split", rare(Group::data).unrecorded(), choice.test_split, 0, 0.9,
              "Fraction of a set without a test part that becomes one; 0 takes 0.2 and says so");
}

Flags& Flags::unknown(bool& drops, const Facts& facts) {
  return named_choice("--unknown", facts, drops, {{"fail", false}, {"drop", true}},
                      "What to do with characters that are no symbols of the model; drop leaves them out and says so");
}

Flags& Flags::size(std::optional<ImageShape>& value) {
  const auto read = [&value](const std::string& size) { value = parse_size(size); };
  return text("--size", rare(Group::data).unrecorded(), read, "", "ROWSxCOLUMNS",
              "Resize the images of a folder, as in 32x32");
}

Flags& Flags::skip_damaged(bool& value) {
  return named_choice("--skip-damaged", rare(Group::data).unrecorded(), value, {{"on", true}, {"off", false}},
                      "Leave out the damaged images of a folder, all of which are first decoded once to find them");
}

Flags& Flags::train(int64_t& samples) {
  const Facts facts = common(Group::data).moves({"amount"}).unrecorded();
  return samples != automatic_samples ? integer("--train", facts, samples, 1, max_samples, "Training samples")
                                      : integer_or_auto("--train", facts, samples, automatic_samples, 1, max_samples,
                                                        "Training samples; auto: all, or 20000 without --data");
}

Flags& Flags::test(int64_t& samples) {
  const Facts facts = common(Group::data).moves({"evaluation"}).unrecorded();
  return samples != automatic_samples
             ? integer("--test", facts, samples, 1, max_samples, "Test samples")
             : integer_or_auto("--test", facts, samples, automatic_samples, 1, max_samples,
                               "Test samples; auto: all, or as many as in training, 5000 without --data");
}

Flags& Flags::epochs(int64_t& value) {
  return integer("--epochs", common(Group::training).moves({"amount"}).compared(), value, 1, 10000,
                 "Passes over the training samples");
}

Flags& Flags::batch(int64_t& value, int64_t most) {
  return integer("--batch", common(Group::training).known_as({"batch-size"}).moves({"step"}).compared(), value, 1, most,
                 "Samples per batch");
}

Flags& Flags::learning_rate(float& value) {
  real("--lr", common(Group::training).known_as({"learning-rate"}).compared(), value, 1e-12, 1000, "Learning rate");
  return record("learning_rate");
}

Flags& Flags::seed(uint64_t& value) {
  return integer("--seed", common(Group::training), value, 0, max_seed,
                 "Seed of all random numbers: weights, order, dropout");
}

Flags& Flags::repeat(int64_t& value) {
  return integer("--repeat", common(Group::training).keeps_bits(), value, 1, 1000,
                 "Runs of each row; run r has seed + r, from r = 0");
}

Flags& Flags::threads(int64_t& value) {
  return integer("--threads", common(Group::speed).known_as({"jobs"}).keeps_bits().moves({"step", "evaluation"}), value,
                 0, 1024, "CPU threads, 0: one per core");
}

Flags& Flags::device(std::string& name) {
  return choice("--device", common(Group::speed).known_as({"gpu", "cuda"}).moves({"step"}), name,
                {"auto", "cpu", "cuda"}, "Device; auto: a GPU if there is one");
}

Flags& Flags::precision(std::optional<Precision>& value) {
  std::vector<std::pair<std::string, std::optional<Precision>>> precisions;
  for (const Precision each : {Precision::f32, Precision::tf32, Precision::f16, Precision::bf16}) {
    precisions.emplace_back(hs::name(each), each);
  }
  precisions.emplace_back("auto", std::nullopt);
  return named_choice("--precision",
                      common(Group::speed)
                          .known_as({"fp16", "half", "float16", "amp", "dtype"})
                          .moves({"kernels", "backward", "update"})
                          .compared(),
                      value, precisions,
                      "Type of matrix products and convolutions; auto: the fastest measured on such a machine");
}

Flags& Flags::kernels(std::vector<std::string>& assignments) {
  list("--kernel", rare(Group::speed).moves({"kernels", "backward"}), assignments, "SLOT=VARIANT",
       "Use this variant of a kernel; repeatable, `info` lists them");
  return record("kernels");
}

Flags& Flags::plugins(std::vector<std::string>& files) {
  return list("--plugin", rare(Group::speed).runs_code().unrecorded(), files, "FILE",
              "Load kernels of your own: what `kernel build` made, or a .cpp or .cu; repeatable");
}

Flags& Flags::loading(LoaderOptions& options, std::optional<CacheMode>& cache, const std::string& object) {
  const std::string prefix = object.empty() ? "" : object + "/";
  integer("--prefetch", rare(Group::data).keeps_bits().moves({"wait"}), options.prefetch, 0, max_prefetch,
          "Batches made ahead of time, 0: each when it is needed")
      .record(prefix + "prefetch");
  integer_or_auto("--workers", rare(Group::data).known_as({"num-workers"}).keeps_bits().moves({"wait"}),
                  options.workers, automatic_workers, 0, 256,
                  "Threads that make them, 0: between the steps, auto: 1, or 0 if the CPU only copies from memory")
      .record(prefix + "workers");
  named_choice("--cache", rare(Group::data).keeps_bits().moves({"wait", "upload"}).unrecorded(), cache, caches,
               "Read each sample every time, once, or all to the device; auto: to a GPU with room for them, else ram")
      .record(prefix + "cache", [&options] { return cli::name(options.cache); });
  named_choice("--pin", rare(Group::data).keeps_bits().moves({"upload"}), options.pin, {{"on", true}, {"off", false}},
               "Host buffers that a GPU reads by itself")
      .record(prefix + "pin");
  named_choice("--preprocess", rare(Group::data).moves({"kernels", "wait", "upload"}), options.normalize_on_host,
               {{"host", true}, {"device", false}}, "Where bytes become numbers: by the workers, or later")
      .record(prefix + "preprocess");
  return *this;
}

Flags& Flags::dry_run(bool& value) {
  return on_off("--dry-run", common(Group::output), value,
                "Try a little of it, print the plan with minutes and memory, and end");
}

Flags& Flags::quiet(bool& value) { return on_off("--quiet", common(Group::output), value, "No progress"); }

}  // namespace hs::bench::cli
