// The sources and options that this program was built with.
#pragma once

namespace hs::bench::cli {

struct BuildInfo {
  const char* version;
  const char* commit;  // ends in "-dirty" if the sources differ from it; "unknown" without git
  const char* build_type;
  const char* compiler;
  const char* flags;
  bool native;               // built for the CPU of the build machine
  const char* cuda;          // "ON (toolkit ..., architectures ...)", "OFF" or "EMULATED ..."
  const char* nvcc;          // its path; empty in a build without it
  const char* emulator;      // the folder of its headers; empty in a build that is not for it
  const char* plugin_stamp;  // what a plug-in has that was built for this program
};

extern const BuildInfo build_info;

}  // namespace hs::bench::cli
