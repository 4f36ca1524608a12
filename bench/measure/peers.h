// What `bench peers` runs: halfstep and other engines (peers) on the same training, each run a process of its own, in
// turns.
#pragma once

#include <map>

#include "bench/cli/json_file.h"
#include "engine/device.h"
#include "engine/error.h"

namespace hs::bench::measure {

// The kinds of samples that the peers read. Digits: MNIST's files, the only ones that JAX's script reads.
enum class PeerData { digits, images, text };

// A model that the peers' scripts implement too. The defaults are the headline experiment of digits; of the others,
// which cost more, what takes minutes on two cores.
struct PeerModel {
  const char* name;
  PeerData data = PeerData::digits;
  int64_t train = 20000, test = 5000, epochs = 5, batch = 64;
};
inline const std::vector<PeerModel> peer_models = {{"mnist_cnn"},
                                                   {"mnist_cnn_large"},
                                                   {"mlp"},
                                                   {"resnet8", PeerData::images, 10240, 2000, 1, 128},
                                                   {"char_gpt", PeerData::text, 2560, 256, 1, 64}};
const PeerModel& peer_model(const std::string& name);

struct PeerRow {
  const char* name;
  const char* engine;  // halfstep, halfstep_mpi (several ranks), or that of a script
  const char* precision;
  std::vector<std::string> flags;
  const char* idea;
};

struct PeerRuns {
  std::string model = "mnist_cnn", scripts;  // --peers
  std::vector<std::string> pythons;
  int64_t train = 20000, test = 5000, epochs = 5, repeat = 3, batch = 64, threads = 0, ranks = 1;
  uint64_t seed = 1;
  float learning_rate = 1e-3f;
  double timeout = 900;  // seconds, of a run
  bool quiet = false;
  Device device = Device::cpu;
  std::string folder = "DIR";  // with the samples
  std::string label;           // of a line of progress
};
std::vector<PeerRow> peer_rows(const PeerRuns& runs);

struct Engine {
  std::vector<std::string> start;  // the first words of its command
  std::string version;
  std::string missing;  // why it is not there
};
// Asks each Python for each engine; the first that has it counts. Throws Error (io): no such Python, no scripts.
std::map<std::string, Engine> find_engines(const PeerRuns& runs);

std::vector<std::string> peer_command(const Engine& engine, const PeerRow& row, const PeerRuns& runs, uint64_t seed);

// Measures all rows and adds "engines", "rows" and "absent" to the record. A peer's row is compared with halfstep's
// fastest row of its precision: it gets the "ratio" of the medians of seconds with its interval, "compared_with", and a
// verdict. A row whose run fails has an "error" and does not run again; returns the first failure, or `ok`.
Error measure_peers(const PeerRuns& runs, Json& record);

}  // namespace hs::bench::measure
