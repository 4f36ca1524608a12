// Where the files of a data set are: the usual folders, and the names of IDX files.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace hs {

// $HALFSTEP_DATA/NAME and $HOME/.cache/halfstep/NAME, each only if its variable is set.
std::vector<std::filesystem::path> usual_places(const std::string& name);
// The same as text, for a message about a set that was not found.
std::string usual_places_text(const std::string& name);

// Whether `path` exists. Throws Error (io) if that cannot be determined.
bool is_there(const std::filesystem::path& path);

// The four files of MNIST, and of every set that is published like it: train-images-idx3-ubyte,
// train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, in this order; also spelled with .idx, and
// with the suffix .gz.
struct IdxPlace {
  std::filesystem::path folder;
  std::array<std::filesystem::path, 4> files;  // empty: missing
  std::array<std::string, 4> names;            // the first spelling

  bool nothing() const { return files == std::array<std::filesystem::path, 4>{}; }
};
IdxPlace look_for_idx(const std::filesystem::path& folder);

}  // namespace hs
