// What this program was built from and how.
#pragma once

namespace hs::bench::cli {

struct BuildInfo {
  const char* version;
  const char* commit;  // "-dirty" at its end: the sources differ from it; "unknown" without git
  const char* build_type;
  const char* compiler;
  const char* flags;
  bool native;  // for the CPU of the machine that built it
  bool openmp;
  const char* cuda;  // "ON (toolkit ..., architectures ...)", "OFF" or "EMULATED ..."
};

extern const BuildInfo build_info;

}  // namespace hs::bench::cli
