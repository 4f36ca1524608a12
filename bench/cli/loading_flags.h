// How batches are loaded, as flags: what `train` and other sub-commands share.
#pragma once

#include <string>

#include "bench/cli/command_line.h"
#include "bench/cli/json_file.h"
#include "data/loader/loader.h"

namespace hs::bench::cli {

CacheMode parse_cache(const std::string& word);
const char* name(CacheMode mode);

class LoadingFlags {
 public:
  void declare(Flags& flags);
  LoaderOptions options() const;  // batch, order, seed and device are the caller's
  Json config() const;

 private:
  int64_t prefetch_ = 2, workers_ = 1;
  std::string cache_ = "ram", pin_ = "on", preprocess_ = "device";
};

}  // namespace hs::bench::cli
