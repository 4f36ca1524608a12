// Modules: networks written in Python, the layers, the models by name, and their files.
#include "bind.h"

namespace hs::python {
namespace {

using Path = std::filesystem::path;

struct WithoutForward : Module {
  Tensor forward(const Tensor&) override { fail_type("forward(): a class of Module defines forward(self, x)"); }
};

// What a Python class derives from. Python keeps what is registered in it, because a network has the addresses.
class PythonModule : public WithoutForward {
 public:
  NB_TRAMPOLINE(WithoutForward);
  using Module::add_child, Module::add_parameter, Module::add_statistic;

  Tensor forward(const Tensor& x) override {
    Tensor y = overridden(x);
    return y.defined() ? y : throw nb::type_error("forward() has returned None, expected a Tensor");
  }
  InputKind input_kind() const override { NB_OVERRIDE(input_kind); }
  Tensor loss(const Tensor& y, const Tensor& x, const Tensor& labels) const override {
    NB_OVERRIDE(loss, y, x, labels);
  }

  // self: of Python. method: one of those three.
  template <auto method, class T, class... Role>
  static T& add(nb::handle self, const std::string& name, T& what, Role... role) {
    auto* module = nb::inst_ready(self) ? dynamic_cast<PythonModule*>(nb::inst_ptr<Module>(self)) : nullptr;
    if (!module) fail_type(type_of(self) + " takes no " + name + "; a class of Module calls super().__init__() first");
    if (!module->names_.insert(name).second) {
      throw Error(ExitCode::usage, "Module: " + name + " is registered already, and stays; use another name");
    }
    if constexpr (std::is_same_v<T, Module>) {
      what.visit([&](const Module& inner) {
        if (&inner == module) fail_type("Module: " + name + " has the module in it that it was to be added to");
      });
    }
    (module->*method)(name, what, role...);
    return what;
  }

 private:
  Tensor overridden(const Tensor& x) { NB_OVERRIDE_NAME("forward", forward, x); }

  std::set<std::string> names_;
};

void set_attribute(nb::handle self, nb::str name, nb::object value) {
  if (nb::isinstance<Module>(value)) self.attr("add_child")(name, value);
  if (PyObject_GenericSetAttr(self.ptr(), name.ptr(), value.ptr()) != 0) nb::raise_python_error();
}

void set_segments(StagedModel& model, const std::vector<std::pair<size_t, size_t>>& segments) {
  std::vector<Segment> all;
  for (const auto& [begin, end] : segments) all.push_back({begin, end});
  model.set_segments(all);
}

nb::dict parameters_of_module(Module& module) { return by_name(module.parameters()); }

void make_conv2d(const Conv2dOptions& options, Conv2d* self, int64_t in, int64_t out, LayerKeys& keys, Bias bias,
                 Init init) {
  new (self) Conv2d(in, out, options, keys, bias, init);
}
void make_batch_norm2d(const BatchNormOptions& options, BatchNorm2d* self, int64_t channels) {
  new (self) BatchNorm2d(channels, options);
}
std::unique_ptr<StagedModel> made_model(const ModelSizes& sizes, const std::string& name, uint64_t seed) {
  return make_model(name, seed, sizes);
}
void write_model(const ModelDescription& description, const Path& path, Module& model) {
  save_model(path, model, description);
}
std::pair<std::unique_ptr<StagedModel>, ModelDescription> read_model(const Path& path) {
  LoadedModel loaded = load_model(path);
  return {std::move(loaded.model), loaded.description};
}

}  // namespace

nb::dict by_name(const std::vector<NamedParameter>& parameters) {
  nb::dict all;
  for (const NamedParameter& each : parameters) all[each.name.c_str()] = *each.value;
  return all;
}

void bind_modules(nb::module_& m) {
  constexpr auto kept = nb::rv_policy::reference;
  nb::class_<Module, PythonModule>(
      m, "Module",
      "A function with parameters. A network is a class that calls super().__init__(), assigns its layers to itself, "
      "which registers them, and defines forward(self, x). With loss(self, output, input, labels) it is no classifier.")
      .def(nb::init<>())
      .def("forward", &Module::forward, "x"_a, InEngine(), "What it computes; each module says of which shapes.")
      .def("__call__", &Module::forward, "x"_a, InEngine(), "forward(x)")
      .def("loss", &Module::loss, "output"_a, "input"_a, "labels"_a, InEngine(), "None: that of a classifier.")
      .def("input_kind", &Module::input_kind, "images, or tokens: windows of a text.")
      .def("__setattr__", set_attribute)
      .def("add_child", PythonModule::add<&PythonModule::add_child, Module>, "name"_a, "child"_a, kept,
           nb::keep_alive<1, 3>(), "Registers a module by a name, and returns it.")
      .def("add_parameter", PythonModule::add<&PythonModule::add_parameter, PythonTensor, ParameterRole>, "name"_a,
           "value"_a, "role"_a = ParameterRole::matrix, kept, nb::keep_alive<1, 3>(),
           "Registers an f32 tensor that is trained, and returns it; role: matrix, bias, norm, embedding or head.")
      .def("add_statistic", PythonModule::add<&PythonModule::add_statistic, PythonTensor>, "name"_a, "value"_a, kept,
           nb::keep_alive<1, 3>(),
           "Registers an f32 tensor that is averaged over the steps, as a running mean, and returns it.")
      .def("parameters", parameters_of_module, "A dictionary of tensors by name, in the order of registration.")
      .def("freeze", &Module::freeze, "what"_a = Freeze::all, "What is registered so far is constant from now on.");

  nb::class_<LayerKeys>(m, "LayerKeys", "Numbers a model's layers, which their first weights and dropout follow from.")
      .def(nb::init<uint64_t>(), "seed"_a);
  nb::class_<Conv2d, Module> conv(m, "Conv2d", "(N, H, W, in_channels) -> (N, OH, OW, out_channels).");
  with_options(conv, "__init__", make_conv2d, "See conv2d(); init: uniform or he_normal.", "in_channels"_a,
               "out_channels"_a, "keys"_a, "bias"_a = Bias::on, "init"_a = Init::uniform);
  using LinearInit = nb::init<int64_t, int64_t, LayerKeys&, Bias, Init>;
  const auto bias = "bias"_a = Bias::on;
  const auto init = "init"_a = Init::uniform;
  nb::class_<Linear, Module>(m, "Linear", "(N, inputs) -> (N, outputs)")
      .def(LinearInit(), "inputs"_a, "outputs"_a, "keys"_a, bias, init, "init: uniform or he_normal.");
  nb::class_<Head, Linear>(m, "Head", "The last layer of a classifier: (N, inputs) -> (N, classes).")
      .def(LinearInit(), "inputs"_a, "classes"_a, "keys"_a, bias, init, "init: uniform or he_normal.");
  nb::class_<BatchNorm2d, Module> norm(m, "BatchNorm2d", "(N, H, W, channels) -> the same shape.");
  with_options(norm, "__init__", make_batch_norm2d,
               "By the batch's mean and variance in training, else by the running ones.", "channels"_a);
  nb::class_<Dropout, Module>(m, "Dropout", "Drops elements in training, by the seed and the step of AmbientScope().")
      .def(nb::init<double, LayerKeys&>(), "rate"_a, "keys"_a);

  nb::class_<StagedModel, Module>(m, "StagedModel", "A model that is a list of stages, the units of checkpointing.")
      .def("set_segments", set_segments, "segments"_a,
           "Of each (begin, end), stages begin to end - 1 run again in backward, instead of being kept.");
  with_options(m, "make_model", made_model, "One of model_names(), or throws Error.", "name"_a, "seed"_a = 1);
  m.def(
      "model_names", [] { return model_names(); }, "In alphabetical order.");
  m.def("save", save, "module"_a, "path"_a, InEngine(), "Writes the parameters as safetensors, by their names.");
  m.def("load", load, "module"_a, "path"_a, InEngine(), "Reads what save() wrote, or throws Error.");
  with_options(m, "save_model", write_model, "What load_model() and halfstep-bench read.", "path"_a, "module"_a);
  m.def("load_model", read_model, "path"_a, InEngine(),
        "The model and its description. Throws Error if the file is damaged, or is no model's.");
}

}  // namespace hs::python
