// What the files of the module share: the lock around the engine, and how arguments and results are converted. Options
// are keywords, enums are words, and structs of results become dictionaries, all by the names that they have in C++.
#pragma once

#include <halfstep/halfstep.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <nanobind/trampoline.h>

#include <mutex>
#include <set>
#include <sstream>

namespace hs::python {

namespace nb = nanobind;
using namespace nb::literals;

// The engine, for this thread alone and without the GIL: one thread at a time calls kernels. A callback takes the GIL
// and may call the engine again. Throws Error (usage) in a process that was forked while another thread was inside.
class Engine : NonCopyable {
 public:
  Engine();
  ~Engine();

 private:
  const nb::gil_scoped_release released_;
  std::unique_lock<std::recursive_mutex> lock_;
};
using InEngine = nb::call_guard<Engine>;

// What Python calls a Tensor. As an argument None is an undefined one where the signature allows it, and as a result.
struct PythonTensor : Tensor {};

inline std::string type_of(nb::handle object) { return nb::str(nb::inst_name(object)).c_str(); }
[[noreturn]] inline void fail_type(const std::string& line) { throw nb::type_error(line.c_str()); }

template <class E>
struct Words {};  // of an enum, in the order of its values
#define HS_WORDS(E, ...)                                \
  template <>                                           \
  struct Words<E> {                                     \
    static constexpr const char* all[] = {__VA_ARGS__}; \
  }
HS_WORDS(DType, "f32", "f16", "bf16", "f64", "i32", "u8");
HS_WORDS(Device, "cpu", "cuda");
HS_WORDS(Precision, "f32", "tf32", "f16", "bf16");
HS_WORDS(CacheMode, "none", "ram", "device");
HS_WORDS(ScheduleKind, "constant", "linear", "cosine", "step", "one-cycle", "exponential");
HS_WORDS(Part, "train", "test");
HS_WORDS(Freeze, "all", "body");
HS_WORDS(Bias, "off", "on");
HS_WORDS(Init, "uniform", "he_normal");
HS_WORDS(InputKind, "images", "tokens");
HS_WORDS(ParameterRole, "matrix", "bias", "norm", "embedding", "head", "adapter");
HS_WORDS(WeightOrder, "in_out", "out_in");
template <class E>
concept Worded = sizeof(Words<E>::all) > 0;

template <class T>
struct Fields {};  // of a struct: all of them, or it does not compile
#define HS_FIELDS(T, ...)                                                    \
  template <>                                                                \
  struct Fields<T> {                                                         \
    static constexpr const char* names = #__VA_ARGS__;                       \
    static void visit(auto& object, const auto& use) {                       \
      auto& [__VA_ARGS__] = object;                                          \
      [&](auto&... field) {                                                  \
        std::istringstream text(names);                                      \
        std::string name;                                                    \
        ((std::getline(text >> std::ws, name, ','), use(name, field)), ...); \
      }(__VA_ARGS__);                                                        \
    }                                                                        \
  }
HS_FIELDS(Conv2dOptions, kernel_h, kernel_w, stride, padding);
HS_FIELDS(BatchNormOptions, eps, relu);
HS_FIELDS(AugmentOptions, shift, rotate, cutout, flip);
HS_FIELDS(PixelScale, mean, deviation);
HS_FIELDS(Schedule, kind, warmup_steps, total_steps, every, factor);
HS_FIELDS(OptimizerConfig, name, learning_rate, momentum, trust, beta1, beta2, epsilon, vector_rate, weight_decay,
          decay_vectors, clip, outlier, loss_outlier, average_decay, statistics_momentum, schedule);
HS_FIELDS(GradScalerConfig, enabled, initial, growth, backoff, smallest, largest, growth_interval);
HS_FIELDS(Ambient, recording, met_gradient, training, tf32, fuse, autocast, seed, step, micro_step);
HS_FIELDS(LoaderOptions, batch, shuffle, seed, device, prefetch, workers, cache, pin, normalize_on_host, ranks, rank,
          group);
HS_FIELDS(ModelSizes, rows, columns, channels, classes, blocks, input, width, heads);
HS_FIELDS(ModelDescription::Origin, source, size, test_split, test, contents, skip_damaged);
HS_FIELDS(ModelDescription, model, sizes, scale, data, vocabulary, class_names, origin, type);
HS_FIELDS(SumConfig, tree, exchange, device_sums, bucket_bytes);
HS_FIELDS(Cadence, steps, epochs, seconds);
HS_FIELDS(Target, is_loss, value);
HS_FIELDS(TrainConfig, epochs, optimizer, seed, device, precision, scaler, accumulate, sum, label_smoothing, augment,
          fuse, graph, graph_steps, validation, validate_every, patience, max_seconds, target, test_every);
HS_FIELDS(Evaluation, accuracy, loss);
HS_FIELDS(StepSeconds, wait, upload, forward, backward, update, exchange, replay, save);
HS_FIELDS(Progress, epoch, step, steps_per_epoch, loss, seconds, parts);
HS_FIELDS(EpochResult, training_loss, seconds, test, evaluation_seconds);
HS_FIELDS(Validation, epoch, step, result, seconds, training_seconds);
HS_FIELDS(TrainResult, epochs, validations, seconds, parts, samples, steps, skipped_steps, loss_scale, loss_scales,
          kept, ended_early, reached_target, interrupted);
HS_FIELDS(MemoryStats, live, peak, reserved, allocations, live_by_purpose, peak_by_purpose, at_peak);
template <class T>
concept Struct = sizeof(Fields<T>::names) > 0;

// Sets the fields that are given. Throws TypeError that names one of another type, or of another name.
template <Struct T>
void read(T& to, nb::handle options, const std::string& whose) {
  if (!nb::isinstance<nb::dict>(options)) fail_type(whose + " is a " + type_of(options) + ", expected a dict");
  nb::dict left = nb::borrow<nb::dict>(nb::borrow(options).attr("copy")());
  Fields<T>::visit(to, [&]<class Field>(const std::string& name, Field& field) {
    if (!left.contains(name.c_str())) return;
    const nb::object from = left.attr("pop")(name);
    if constexpr (Struct<Field>) {
      read(field, from, whose + ": " + name);
    } else if constexpr (requires { requires Struct<typename Field::value_type>; }) {  // of an optional
      typename Field::value_type inside{};
      if (!from.is_none()) read(inside, from, whose + ": " + name), field = inside;
    } else if constexpr (Worded<Field> || std::is_same_v<Field, Tensor>) {
      field = nb::cast<Field>(from);
    } else if (!nb::try_cast(from, field)) {
      fail_type(whose + ": " + name + " is a " + type_of(from) + ", expected one like " +
                nb::repr(nb::cast(field)).c_str());
    }
  });
  for (const auto& [key, value] : left) {
    fail_type(whose + ": there is no option " + nb::str(key).c_str() + ", expected some of " + Fields<T>::names);
  }
}

// Binds a function of options and arguments; in Python the options are keywords behind the arguments.
template <class T, class R, class... A>
void with_options(auto& scope, const std::string& name, R (*function)(const T&, A...), const std::string& doc,
                  const auto&... names) {
  const auto call = [=](A... arguments, nb::kwargs given) -> R {
    T options = {};
    if constexpr (std::is_same_v<T, Ambient>) options = ambient();  // what is not given stays as it is
    read(options, given, name);
    const Engine engine;
    return function(options, std::forward<A>(arguments)...);
  };
  const std::string defaults = doc + "\n\nOptions: " + nb::repr(nb::cast(T{})).c_str();
  scope.def(name.c_str(), call, names..., "options"_a, defaults.c_str());
}

nb::dict by_name(const std::vector<NamedParameter>& parameters);

void bind_tensors(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_modules(nb::module_& m);
void bind_training(nb::module_& m);
void bind_data(nb::module_& m);

}  // namespace hs::python

namespace nanobind::detail {

template <>
struct type_caster<hs::Tensor> {
  NB_TYPE_CASTER(hs::Tensor, make_caster<hs::python::PythonTensor>::Name)
  bool from_python(handle source, uint32_t, cleanup_list*) {
    if (source.is_none()) return true;
    make_caster<hs::python::PythonTensor> tensor;
    if (!tensor.from_python(source, 0, nullptr)) {
      hs::python::fail_type("found a " + hs::python::type_of(source) + ", expected a Tensor; Tensor(array) makes one");
    }
    value = *static_cast<hs::python::PythonTensor*>(tensor);
    return true;
  }
  static handle from_cpp(const hs::Tensor& tensor, rv_policy, cleanup_list*) noexcept {
    return tensor.defined() ? nanobind::cast(hs::python::PythonTensor{tensor}).release() : none().release();
  }
};

template <class E>
requires hs::python::Worded<E>
struct type_caster<E, enable_if_t<std::is_enum_v<E>>> {
  NB_TYPE_CASTER(E, const_name("str"))
  bool from_python(handle source, uint32_t, cleanup_list*) {
    const auto& words = hs::python::Words<E>::all;
    std::string expected;
    for (const char* const& each : words) {
      value = static_cast<E>(&each - words);
      if (isinstance<str>(source) && source.equal(str(each))) return true;
      expected += (expected.empty() ? "" : ", ") + std::string(each);
    }
    throw value_error((std::string(repr(source).c_str()) + ": expected one of " + expected).c_str());
  }
  static handle from_cpp(E value, rv_policy, cleanup_list*) noexcept {
    return str(hs::python::Words<E>::all[static_cast<int>(value)]).release();
  }
};

template <class T>
struct type_caster<T, enable_if_t<hs::python::Struct<T>>> {
  NB_TYPE_CASTER(T, const_name("dict"))
  bool from_python(handle source, uint32_t, cleanup_list*) {
    hs::python::read(value, source, "the argument");
    return true;
  }
  static handle from_cpp(const T& value, rv_policy, cleanup_list*) noexcept {
    dict result;
    hs::python::Fields<T>::visit(value,
                                 [&](const std::string& name, const auto& field) { result[name.c_str()] = field; });
    return result.release();
  }
};

}  // namespace nanobind::detail
