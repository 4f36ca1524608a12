// Opens a data set by name or folder. The files in the folder determine the format.
//
//   format    files in the folder                                                       splits
//   idx       train-images-idx3-ubyte and so on, also with .idx or .gz                  both
//   record    train.record-00000-of-00001 ..., test.record-00000-of-00001 ...           both
//   tfrecord  train.tfrecord-00000-of-00001 ... or train.tfrecord, test. as well        both
//   images    train/CLASS/FILE, test/CLASS/FILE, or CLASS/FILE                          both, or training only
//             (train or training, and the first of test, testing, validation, valid, val and dev, in any case)
//   cifar10   data_batch_1.bin ..., test_batch.bin, also in cifar-10-batches-bin/       both
//   text      input.txt                                                                 both
//   arrays    x_train.npy and y_train.npy, x_test.npy and y_test.npy (NumPy)            both, or training only
//
// A prefix or a file of the formats record and tfrecord is a set with a training split only. A file whose name ends in
// .txt is a text, with both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/text.h"
#include "data/io/sample_source.h"

namespace hs {

enum class Part { train, test };                                                            // a split of a data set
enum class DataFormat { idx, record, tfrecord, images, cifar10, text, arrays, generated };  // generated: no files

const char* name(Part part);  // "train" or "test"
const char* name(DataFormat format);

// A data set that exists, not yet opened.
struct FoundDataset {
  DataFormat format = DataFormat::generated;  // how to open train and test
  SetIdentity set;                            // its name and scale
  std::filesystem::path train;  // the argument of the format's open function; empty: the set has no such split
  std::filesystem::path test;   // see train
  bool is_named = false;        // found by its name, which says what it is; not by a path
  TextOptions text = {};        // of a text
  std::string remark = {};      // what the user should know about the folder; empty: nothing

  // Whether its first samples are as any others: those of a set that is published so, and not in the order of classes.
  bool has_mixed_samples() const { return is_named || format == DataFormat::cifar10; }
  // Of the files of a split.
  const std::filesystem::path& path(Part part) const { return part == Part::train ? train : test; }
  // Whether it has this split.
  bool has(Part part) const { return format == DataFormat::generated || !path(part).empty(); }
};

// "mnist", "fashion_mnist", "cifar10", "tinyshakespeare": looked for in $HALFSTEP_DATA/NAME, then in
// $HOME/.cache/halfstep/NAME. "synthetic": generated digits.
const std::vector<std::string>& dataset_names();
// Where a set of this name is looked for, as text for a message.
std::string usual_places_text(const std::string& name);

// A name of dataset_names(), otherwise a path ("./mnist" is a path), whose set is what its files say.
// Throws Error: io (nothing is at the path), bad_input (no format or more than one is recognised; an empty folder).
FoundDataset find_dataset(const std::string& name_or_path);

// MNIST as IDX files in the first of the usual places that has any of them. If none has, generated digits of the same
// shape, so a program runs without a download; it should report what it runs on.
// Throws Error (io) if some of the four files are missing: half a set must not turn into other data.
FoundDataset find_digits();

// Opens a split of a set, or its first `limit` samples if that is not 0. Where neither the files nor found.set say how
// to normalise the pixels, mean and deviation are measured over the training part. Throws Error: io (the set has no
// such split, or files are missing), usage (found.set.size or on_damaged, but no folder of images), bad_input.
std::unique_ptr<SampleSource> open_dataset(const FoundDataset& found, Part part, int64_t limit = 0);
std::unique_ptr<SampleSource> open_dataset(const std::string& name_or_path, Part part, int64_t limit = 0);

// Whether neither the files nor found.set say how to normalise the pixels, so that open_dataset() measures it.
bool needs_scale(const FoundDataset& found);
// Mean and deviation of all pixels, or of those of samples at even distances; f32 values have none, 0 and 1. Throws
// what reading throws.
PixelScale measured_scale(const SampleSource& training);

// Throws Error (bad_input) if a training and a test split do not belong together.
void check_one_set(const std::string& name_or_path, const SampleInfo& train, const SampleInfo& test);
// One sentence for the user: what the data is and where it came from.
std::string describe(const SampleInfo& train, const SampleInfo& test);

}  // namespace hs
