// The rows of `halfstep-bench peers`: who trains, how each is called, and what becomes of the results. The peers are
// the scripts of bench/peers; they take the flags of `train`, and halfstep is called as a peer too.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/cli/child_process.h"
#include "bench/cli/json_file.h"
#include "engine/device.h"

namespace hs::bench::measure {

struct Contestant {
  const char* name;       // of its row
  const char* engine;     // "halfstep", or a key of peer_scripts
  const char* precision;  // it is compared with halfstep's fastest row of this one
  std::vector<std::string> flags;
  const char* idea;  // one line, for --list
};

// halfstep first.
const std::vector<Contestant>& contestants(Device device);

// Models that the scripts have too: the keys of MODELS in each.
inline const std::vector<std::string> peer_models = {"mnist_cnn", "mnist_cnn_large", "mlp"};

inline const std::map<std::string, std::string> peer_scripts = {{"jax", "jax_mnist.py"}, {"torch", "torch_mnist.py"}};

// The folder of the scripts: `given`, or else bench/peers in the current folder, in the program's or in one above
// either. Throws Error (io).
std::filesystem::path find_peers(const std::string& given);

// How an engine is started here, or why it is not.
struct Engine {
  std::vector<std::string> start;  // the first words of its command
  std::string version;             // "PyTorch 2.15.0"
  std::string missing;             // with how to install it; empty if it is there
};

// halfstep, which is this program, and the scripts in the folder: each Python in turn is asked for the version, until
// one has the engine. Throws Error (io) if `must_start` and one of `pythons` cannot be started, and what `check`
// throws.
std::map<std::string, Engine> find_engines(const std::filesystem::path& scripts,
                                           const std::vector<std::string>& pythons, bool must_start, double seconds,
                                           const std::function<void()>& check);

// The row and the environment that one run wrote as a record with that row alone, checked: it trained on `samples`.
// Throws Error if the program failed: its own exit code if that is one of halfstep's from 2 to 8; missed (it was too
// late); bad_input (it wrote no record); io (anything else).
struct PeerResult {
  Json row, environment;
};
PeerResult read_result(const cli::Finished& finished, double limit, int64_t samples);

// A row of the record, of the rows of its runs; `error` is empty, or why there are no more of them.
Json summarize(const Contestant& contestant, const std::vector<Json>& runs, const std::string& error);

// Adds to each peer's row without an error what it is against halfstep's fastest row of its precision: the "ratio" of
// the medians of seconds with its interval, "compared_with", and a verdict.
void add_ratios(Json& rows);

}  // namespace hs::bench::measure
