// The module itself: errors, forks and interpreters, and the kernels with plug-ins.
#include <halfstep/plugin_stamp.h>
#include <pthread.h>

#include <atomic>

#include "bind.h"

namespace hs::python {
namespace {

std::recursive_mutex one_thread;
std::atomic<int> inside = 0;
bool lost = false;  // forked while a thread was inside, which this process does not have

std::vector<std::string> variants() {
  std::vector<std::string> all;
  for (const KernelSlot* slot : kernel_slots()) {
    for (const VariantBase* v = slot->variants(); v; v = v->next)
      all.push_back(std::string(slot->name()) + "=" + v->name);
  }
  return all;
}

}  // namespace

Engine::Engine() : lock_(one_thread, std::defer_lock) {
  if (lost) {
    throw Error(ExitCode::usage,
                "this process was forked while a thread was in halfstep, which it lacks; start it by "
                "multiprocessing.get_context('spawn')");
  }
  lock_.lock();
  ++inside;
}
Engine::~Engine() { --inside; }

NB_MODULE(_halfstep, m) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    throw nb::import_error("halfstep: works in the main interpreter alone, and this is another one of the process");
  }
  ::pthread_atfork(nullptr, nullptr, [] { lost = inside > 0; });
  m.doc() = "The engine of halfstep, by the names that it has in C++.";
  nb::exception<Error>(m, "Error", PyExc_RuntimeError).attr("__doc__") =
      "What was found, what was expected, what to do.";
  nb::set_leak_warnings(false);  // an arena and its network may be of one cycle, which Python leaves at its end
  bind_tensors(m);
  bind_ops(m);
  bind_modules(m);
  bind_data(m);
  bind_training(m);
  m.def("threads", &threads, InEngine(), "Of the CPU, on which kernels run.");
  m.def("set_threads", &set_threads, "count"_a, InEngine(), "0: one per core.");
  m.def("is_available", &is_available, "device"_a, InEngine(), "Whether this build and this machine have it.");
  m.def("memory_stats", &memory_stats, "device"_a = Device::cpu,
        "Bytes, those by purpose in the order of engine/storage.h.");
  m.def("reset_peak", &reset_peak, "device"_a = Device::cpu, "Sets the peaks to what is live.");
  m.def("variants", &variants, InEngine(), "All kernels, as SLOT=VARIANT.");
  m.def("force_variant", &force_variant, "assignment"_a, InEngine(),
        "The slot of SLOT=VARIANT takes this one from now on.");
  m.attr("plugin_stamp") = HALFSTEP_PLUGIN_STAMP;
}

}  // namespace hs::python
