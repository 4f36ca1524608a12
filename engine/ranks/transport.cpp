#include "engine/ranks/transport.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <thread>

#include "engine/check.h"
#include "engine/parsed_number.h"

namespace hs {

void fail_waiting(double seconds, int peer) {
  fail(ExitCode::rank,
       "{} did not answer within {:g} s; it hangs, has died, cannot be reached, or waits for a third one: see its own "
       "output",
       peer == any_rank ? "another rank" : fmt::format("rank {}", peer), seconds);
}

void wait(Transfer& transfer, int peer, double seconds) {
  using Clock = std::chrono::steady_clock;
  using namespace std::chrono_literals;
  auto start = Clock::now(), last = start;
  while (!transfer.done()) {
    const auto now = Clock::now();
    if (now - last > 250ms) start += now - last;  // this process was stopped: that is not the other rank's time
    last = now;
    if (std::chrono::duration<double>(now - start).count() > seconds) fail_waiting(seconds, peer);
    std::this_thread::yield();
  }
}

namespace {

int count_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (!text) return 0;
  return std::max(parsed_number<int>(text).value_or(0), 0);
}

// The library beside this one. Symbols are global because MPI implementations load parts of their own that need them.
void* load_mpi_library() {
  Dl_info here = {};
  if (dladdr(reinterpret_cast<const void*>(&open_mpi), &here) == 0) return nullptr;
  const auto file = std::filesystem::path(here.dli_fname).replace_filename("libhalfstep_mpi.so");
  return dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

}  // namespace

int launched_ranks() {
  // Open MPI; MPICH, Intel MPI and others of its family.
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const int ranks = count_in(size); ranks > 0) return ranks;
  }
  // A batch script is a step of one task as well, and is not meant.
  const int tasks = count_in("SLURM_STEP_NUM_TASKS");
  return tasks > 1 ? tasks : 0;
}

std::unique_ptr<Transport> open_mpi() {
  const int launched = launched_ranks();
  if (launched == 0) fail(ExitCode::usage, "this process is no rank of mpirun; start it with mpirun -n 2");
  void* const library = load_mpi_library();
  using Open = Transport* (*)();
  const Open open = library ? reinterpret_cast<Open>(dlsym(library, "halfstep_open_mpi")) : nullptr;
  if (!open) {
    const char* const reason = dlerror();
    fail(ExitCode::usage,
         "started as one of {} ranks, but MPI is not available: {}; install libopenmpi-dev and openmpi-bin, configure "
         "with HALFSTEP_MPI=ON and build again, or start without mpirun",
         launched, reason ? reason : "the library has no such function");
  }
  std::unique_ptr<Transport> transport(open());
  if (const int counted = transport->size(); counted != launched) {
    if (counted == 1) transport->close();  // or MPI leaves a temporary folder
    fail(ExitCode::rank,
         "the launcher started {} ranks, but MPI counts {}; use the mpirun of the MPI that halfstep was built with",
         launched, counted);
  }
  return transport;
}

}  // namespace hs
