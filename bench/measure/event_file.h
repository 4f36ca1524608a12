// An event file of TensorBoard: curves of a training, which its web page shows while they are written.
//
// A file is a sequence of TFRecord records, each a tf.Event message; the first one says "brain.Event:2". TensorBoard
// finds it by its name, which contains "tfevents", below the folder that it is given
// (tensorboard/compat/proto/event.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/non_copyable.h"

namespace hs::bench::measure {

struct Scalar {
  const char* tag;  // "test/accuracy"
  double value;
};

class EventFile : NonCopyable {
 public:
  // Makes the folder and a new file in it. Throws Error (io), as add() does.
  // continues: a run that has a file there. Throws Error: io; usage (a file of another run, whose curves would mix).
  EventFile(const std::filesystem::path& folder, bool continues);
  ~EventFile();

  // Points of the curves at this step, with the time of now; they are in the file at once.
  void add(int64_t step, const std::vector<Scalar>& scalars);
  // What other files of the folder have from this step on does not count: a run that was killed and is continued
  // before.
  void restart(int64_t step);

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace hs::bench::measure
