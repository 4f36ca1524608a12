// Plug-ins: kernels in a file outside of the tree, compiled against <halfstep/kernel.h> and loaded while the program
// runs. Their variants then are in the slots as any other, and stay there until it ends.
#pragma once

#include "bench/cli/json_file.h"
#include "engine/device.h"
#include "engine/files/output_file.h"

namespace hs::bench::cli {

struct Plugin {
  struct Registered {
    std::string slot, variant;
    Device device;
    bool is_new_slot = false;  // the plug-in brought the slot
    double error_growth = 1;   // as VariantBase has it
  };
  std::string file, sha256;  // file: its name without folders
  std::vector<Registered> registered;
};

// Compiles one .cpp or .cu file into `out`, for the machine that it runs on. Throws Error: usage (with the
// compiler's first error and its line, or with what to install), io (a file, or the headers, cannot be read or
// written).
void build_plugin(const std::string& source, OutputFile& out);

// Loads those of --plugin: what build_plugin() has made, or sources, which it builds first. Throws Error: what that
// throws, io (unreadable), bad_input (not a shared object, or not built for this program, which its bytes say before
// any of its code runs), usage (what its author can fix: it registers nothing, a name that exists or that is none, too
// much, it is loaded already, or its static objects end the program: a child process loads it before this one does).
void load_plugins(const std::vector<std::string>& files);
const std::vector<Plugin>& loaded_plugins();  // in order of loading

// For records: file, sha256, variants (SLOT=VARIANT and the device).
Json describe_plugins();

}  // namespace hs::bench::cli
