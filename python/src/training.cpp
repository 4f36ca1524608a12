// What a training is made of: samples and batches, arena, optimizer, scaler, scopes, train() and evaluate().
#include "bind.h"

namespace hs::python {
namespace {

using Clock = std::chrono::steady_clock;
using Source = std::shared_ptr<SampleSource>;

nb::dict describe(const SampleSource& source) {
  const SampleInfo& info = source.info();
  nb::dict all;
  all["name"] = info.name, all["count"] = info.count, all["classes"] = info.classes, all["scale"] = info.scale;
  all["rows"] = info.rows, all["columns"] = info.columns, all["channels"] = info.channels;
  all["class_names"] = info.class_names, all["vocabulary"] = info.vocabulary;
  return all;
}

Source of_tensors(const Tensor& samples, const Tensor& labels, const std::string& name, int classes) {
  SampleInfo info{{}, name, "in memory"};
  info.classes = classes;
  return Source(new MemorySource(from_tensors(info, samples, labels)));
}

// A scope of C++ as a context manager.
struct Scope {
  std::function<std::shared_ptr<void>()> open;
  std::shared_ptr<void> opened;
  void enter() {
    opened = opened ? throw Error(ExitCode::usage, "with: this scope is open; make another one") : open();
  }
  void exit(nb::args) { opened.reset(); }
};
template <class T, class... A>
Scope scope(A... arguments) {
  return {[=] { return std::make_shared<T>(arguments...); }, {}};
}
Scope autocast_scope(Precision precision, ParameterArena* arena) {
  if (!arena) return scope<Autocast>(precision);
  return {[=] { return std::make_shared<Autocast>(precision, *arena); }, {}};
}

// For the engine, which asks often: throws Python's KeyboardInterrupt, or what else a handler of a signal throws.
std::function<bool()> interrupts() {
  return [next = Clock::now()]() mutable {
    if (Clock::now() < next) return false;
    next = Clock::now() + std::chrono::milliseconds(50);
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    return false;
  };
}

nb::dict parameters_of_arena(const ParameterArena& arena) { return by_name(arena.parameters()); }

void make_scaler(const GradScalerConfig& config, GradScaler* self, Device device) {
  new (self) GradScaler(config, device);
}
std::unique_ptr<Optimizer> made_optimizer(const OptimizerConfig& config, ParameterArena& arena) {
  return make_optimizer(arena, config);
}
Scope ambient_scope(const Ambient& values) { return scope<AmbientScope>(values); }

Evaluation evaluated(Module& model, BatchSource& source, Device device) {
  return evaluate(model, source, device, interrupts());
}

// on: the callbacks of Python, or None. progress: is shown, at most ten times a second.
TrainResult run(const TrainConfig& config, Module& model, ParameterArena& arena, BatchSource& training,
                BatchSource& test, nb::handle on_step, nb::handle on_epoch, bool progress) {
  TrainHooks hooks;
  const auto show = [epochs = config.epochs](const char* what, const auto&... values) {
    nb::module_::import_("halfstep").attr(what)(epochs, values...);
  };
  hooks.is_interrupted = interrupts();
  hooks.on_step = [=, next = Clock::now()](const Progress& now) mutable {
    const bool shows = progress && Clock::now() >= next;
    if (on_step.is_none() && !shows) return;
    const nb::gil_scoped_acquire gil;
    if (!on_step.is_none()) on_step(now);
    if (!shows) return;
    show("show_step", now);
    next = Clock::now() + std::chrono::milliseconds(100);
  };
  hooks.on_epoch = [=](int64_t epoch, const EpochResult& result) {
    const nb::gil_scoped_acquire gil;
    if (progress) show("show_epoch", epoch, result);
    if (!on_epoch.is_none()) on_epoch(epoch, result);
  };
  return train(model, arena, training, test, config, hooks);
}

}  // namespace

void bind_data(nb::module_& m) {
  nb::class_<SampleSource>(m, "SampleSource", "Labelled samples by index.")
      .def_prop_ro("info", describe, "A dictionary: name, count, rows, columns, channels, classes, scale and so on.")
      .def("__len__", [](const SampleSource& source) { return source.info().count; });
  m.def("from_tensors", of_tensors, "samples"_a, "labels"_a, "name"_a = "arrays", "classes"_a = 0, InEngine(),
        "A copy of samples (N, F), (N, H, W) or (N, H, W, C), u8 or f32, and of labels (N): classes in i32, or targets "
        "in f32. Throws Error that names what is wrong.");
  const auto digits = [](uint64_t seed, int64_t n) { return Source(new MemorySource(synthetic_digits(seed, n))); };
  m.def("synthetic_digits", digits, "seed"_a, "count"_a, InEngine(), "Generated digits, 28 x 28.");
  const auto open = [](const std::string& at, Part part, int64_t limit) { return open_dataset(at, part, limit); };
  m.def("open_dataset", open, "name_or_path"_a, "part"_a = Part::train, "limit"_a = 0, InEngine(),
        "A part of mnist, fashion_mnist, cifar10 or tinyshakespeare, of a folder of images or arrays, or of another "
        "format; its first `limit` samples if that is not 0. Throws Error if it is not there, or damaged.");
  const auto split = [](const Source& all, double fraction) {
    auto [train, test] = split_samples(all, fraction);
    return std::pair(std::move(train), std::move(test));
  };
  m.def("split_samples", split, "all"_a, "fraction"_a, InEngine(), "(train, test), where test is about this fraction.");

  nb::class_<Batch>(m, "Batch", "What a loader gives.")
      .def_ro("images", &Batch::images, "(N, H, W, C), u8 pixels or f32 values; of a text (N, 1, T + 1, 1) u8.")
      .def_ro("labels", &Batch::labels, "(N) i32 classes, or f32 targets.");
  nb::class_<BatchSource>(m, "BatchSource", "The batches of a data set; for runs through an epoch.")
      .def("next", &BatchSource::next, InEngine(), "The next batch; epochs follow each other.")
      .def("pixel_scale", &BatchSource::pixel_scale, "For normalize_image().")
      .def("__len__", &BatchSource::batches_per_epoch)
      .def("__iter__", [](nb::handle self) {
        const nb::object all = nb::module_::import_("builtins").attr("iter")(self.attr("next"), nb::none());
        return nb::module_::import_("itertools").attr("islice")(all, nb::len(self));
      });
  nb::class_<Loader, BatchSource> loader(m, "Loader",
                                         "Batches of a source, made ahead, in the order of (seed, epoch).");
  with_options(
      loader, "__init__", +[](const LoaderOptions& o, Loader* self, const SampleSource& s) { new (self) Loader(s, o); },
      "workers=-1: one if it is worth it.", nb::keep_alive<1, 2>(), "source"_a);
}

void bind_training(nb::module_& m) {
  const auto none = nb::none();
  nb::class_<ParameterArena>(m, "ParameterArena", "A module's parameters in one array, their gradients in another.")
      .def(nb::init<Module&, Device>(), "module"_a, "device"_a = Device::cpu, nb::keep_alive<1, 2>(), InEngine())
      .def_ro("values", &ParameterArena::values, "(size) f32, with zeros in gaps.")
      .def_prop_ro("gradients", &ParameterArena::gradients, "(size) f32, as values.")
      .def("parameters", parameters_of_arena, "Tensors by name, statistics first, without frozen ones.")
      .def("zero_gradients", &ParameterArena::zero_gradients, InEngine());

  nb::class_<GradScaler> scaler(m, "GradScaler", "The scale of the loss, which f16 needs.");
  with_options(scaler, "__init__", make_scaler, "Without enabled=True the scale stays 1.", "device"_a = Device::cpu);
  scaler.def("loss_gradient", &GradScaler::loss_gradient, "weight"_a = 1.0f, InEngine(), "dy for backward(loss, dy).")
      .def_prop_ro("scale", &GradScaler::scale, "Now.")
      .def_prop_ro("skipped", &GradScaler::skipped, "Steps that were not finite.");
  nb::class_<Optimizer>(m, "Optimizer", "Updates the parameters of an arena; make_optimizer() makes one.")
      .def("step", nb::overload_cast<>(&Optimizer::step), InEngine(), "By the gradients in the arena.")
      .def("step", nb::overload_cast<GradScaler&, const Tensor&, int64_t>(&Optimizer::step), "scaler"_a,
           "loss"_a.none() = none, "micro_batches"_a = 1, InEngine(), "With their scale divided out.")
      .def("zero_gradients", &Optimizer::zero_gradients, InEngine())
      .def_prop_ro("steps", &Optimizer::steps, "Taken so far.")
      .def("step_counter", &Optimizer::step_counter, "For AmbientScope(step=...).")
      .def("set_learning_rate", &Optimizer::set_learning_rate, "rate"_a, InEngine());
  with_options(m, "make_optimizer", made_optimizer,
               "name: sgd, nesterov, adam, adamw, lars, lamb, muon, schedule-free. schedule: a dictionary, whose kind "
               "is constant, "
               "linear, cosine, step, one-cycle or exponential.",
               nb::keep_alive<0, 1>(), "arena"_a);

  nb::class_<Scope>(m, "Scope", "For a `with` statement.")
      .def("__enter__", &Scope::enter, InEngine())
      .def("__exit__", &Scope::exit);
  m.def("NoGrad", &scope<NoGrad>, "Inside of it no history is recorded.");
  m.def("Inference", &scope<Inference>, "Inside of it no history is recorded, and nothing is dropped.");
  m.def("Autocast", autocast_scope, "precision"_a, "arena"_a.none() = none, nb::keep_alive<0, 2>(),
        "Inside of it products take factors of f32, tf32, f16 or bf16. To be opened in each step, after the update.");
  with_options(m, "AmbientScope", ambient_scope,
               "Inside of it dropout is that of this seed, step (an optimizer's step_counter()) and micro_step.");

  with_options(
      m, "train", run,
      "Trains the model, whose parameters are in the arena, and tests it after each epoch. Returns what was measured. "
      "on_step gets a dictionary with epoch, step, loss and so on, on_epoch the epoch and its result. What a callback "
      "throws, and Ctrl-C, end it after a whole step and come out here. Throws Error if the loss is inf or NaN.",
      "model"_a, "arena"_a, "training"_a, "test"_a, "on_step"_a = none, "on_epoch"_a = none, "progress"_a = true);
  m.def("evaluate", evaluated, "model"_a, "source"_a, "device"_a = Device::cpu, InEngine(), "Over one pass.");
}

}  // namespace hs::python
