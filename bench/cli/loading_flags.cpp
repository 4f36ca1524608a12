#include "bench/cli/loading_flags.h"

#include "engine/check.h"

namespace hs::bench::cli {

CacheMode parse_cache(const std::string& word) {
  for (const CacheMode mode : {CacheMode::none, CacheMode::ram, CacheMode::device}) {
    if (word == name(mode)) return mode;
  }
  fail(ExitCode::usage, "--cache {}: expected none, ram or device", word);
}

const char* name(CacheMode mode) {
  constexpr const char* names[] = {"none", "ram", "device"};
  return names[static_cast<size_t>(mode)];
}

void LoadingFlags::declare(Flags& flags) {
  flags.integer("--prefetch", prefetch_, 0, 1000, "Batches made ahead of time, 0: each when it is needed");
  flags.integer("--workers", workers_, 0, 256, "Threads that make them, 0: between the steps");
  flags.choice("--cache", cache_, {"none", "ram", "device"}, "Read each sample every time, once, or all to the device");
  flags.choice("--pin", pin_, {"on", "off"}, "Host buffers that a GPU reads by itself");
  flags.choice("--preprocess", preprocess_, {"host", "device"}, "Where bytes become numbers: by the workers, or later");
}

LoaderOptions LoadingFlags::options() const {
  LoaderOptions options;
  options.prefetch = prefetch_;
  options.workers = workers_;
  options.cache = parse_cache(cache_);
  options.pin = pin_ == "on";
  options.normalize_on_host = preprocess_ == "host";
  return options;
}

Json LoadingFlags::config() const {
  return {
      {"prefetch", prefetch_}, {"workers", workers_}, {"cache", cache_}, {"pin", pin_}, {"preprocess", preprocess_}};
}

}  // namespace hs::bench::cli
