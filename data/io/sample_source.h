// SampleSource: labelled images, windows of a text (data/formats/text.h), or vectors of numbers, by index, wherever
// they are: in memory, in one mapped file, or in thousands of small ones. Every format is one implementation; the
// loader, the converter and the training program know none of them. Read next: data/open_dataset.h (which format a path
// contains), data/formats/record_file.h (the format made for this).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/error.h"
#include "engine/symbols.h"

namespace hs {

// The limits of every format. A file that claims more is refused before memory is allocated.
inline constexpr int64_t max_image_side = 512;
inline constexpr int64_t max_image_channels = 4;                                                  // values of a pixel
inline constexpr int64_t max_image_bytes = max_image_side * max_image_side * max_image_channels;  // of one image
inline constexpr int max_classes = 1000;                                                          // labels are below it

// Where no other is known: maps bytes to values from -1 to 1.
inline constexpr PixelScale default_pixel_scale{0.5f, 0.5f};

// The shape of every image of a set.
struct ImageShape {
  int64_t rows = 0;      // image height
  int64_t columns = 0;   // image width
  int64_t channels = 1;  // values of a pixel

  bool operator==(const ImageShape&) const = default;
  // A byte per value.
  int64_t image_bytes() const { return rows * columns * channels; }
  bool is_allowed() const {  // no dimension is 0 or beyond its maximum
    const auto in = [](int64_t number, int64_t most) { return number >= 1 && number <= most; };
    return in(rows, max_image_side) && in(columns, max_image_side) && in(channels, max_image_channels);
  }
  std::string text() const {  // "28 x 28 x 1"
    return std::to_string(rows) + " x " + std::to_string(columns) + " x " + std::to_string(channels);
  }
};

// Properties of a data set that the files of some formats do not contain.
struct SetIdentity {
  std::string name = "unnamed";               // for messages and records
  std::optional<PixelScale> scale = {};       // how to normalise the pixels, if that is known
  std::vector<std::string> class_names = {};  // see SampleInfo; empty: as the files say
  std::optional<ImageShape> size = {};        // to resize images of files to, whatever its channels
  std::string how_to_resize = {};             // for the message that it is missing: what the user has to add
  // Told why by open_image_folder(), of each image that is damaged, which is then left out; empty: it is refused.
  std::function<void(const std::string& why)> on_damaged = {};
  std::string how_to_leave_out = {};  // for the message that one is damaged: what the user has to add
};

// What a source knows about its samples.
struct SampleInfo : ImageShape {
  std::string name;                           // "mnist"
  std::string description;                    // where it is, for the user: "record file /data/train.record, 4 shards"
  int64_t count = 0;                          // samples, at least 1
  int classes = 0;                            // labels are 0 .. classes-1
  PixelScale scale = default_pixel_scale;     // how to normalise the pixels
  Vocabulary vocabulary = {};                 // of a text; empty: the samples are images
  std::vector<std::string> class_names = {};  // a printable one for each label; empty: the numbers are the names
  int64_t overlap = 0;                        // of a text: how many samples after one share symbols with it
  std::string remark = {};                    // what the user should know about the files; empty: nothing
  DType type = DType::u8;         // of a value; f32: the network reads it as it is, without a scale or augmentation
  DType label_type = DType::i32;  // f32: labels are the targets of a regression, whose bits label() returns

  bool is_text() const { return !vocabulary.empty(); }  // whether samples are windows of a text
  const ImageShape& shape() const { return *this; }     // each sample's; a vector is 1 x F x 1
  // Of a sample.
  int64_t image_bytes() const { return ImageShape::image_bytes() * static_cast<int64_t>(size_of(type)); }
  // "28 x 28 x 1", "1 x 20 x 1 f32"
  std::string text() const { return ImageShape::text() + (type == DType::u8 ? "" : " f32"); }
};

// Thread safe: any number of threads read at a time. Random access costs the same for every index.
class SampleSource : NonCopyable {
 public:
  virtual ~SampleSource() = default;

  const SampleInfo& info() const { return info_; }  // what is known about the samples
  // The scale, and names of classes if there are none and these are as many. REQUIRES: nothing else uses it yet
  void set_scale_and_names(PixelScale scale, const std::vector<std::string>& class_names) {
    info_.scale = scale;
    if (info_.class_names.empty() && std::ssize(class_names) == info_.classes) info_.class_names = class_names;
  }

  // Whether reading is a copy from memory, so that a cache would gain nothing.
  virtual bool is_in_memory() const { return false; }

  // The values of sample `index`, (rows, columns, channels), as bytes.
  // Throws Error with the name of the file and the sample's index: bad_input (the file is damaged, or changed since it
  // was opened), io (it cannot be read). REQUIRES: 0 <= index < info().count, room for image_bytes() at `image`
  void read(int64_t index, uint8_t* image) const {
    check_index(index);
    try {
      read_sample(index, image);
    } catch (const Error& error) {
      throw error.with_message(std::string(error.what()) + " (sample " + std::to_string(index) + ")");
    }
  }
  // read() for a source that is a view of this one and has its own read().
  void read_through(int64_t index, uint8_t* image) const { read_sample(index, image); }

  // In 0 .. classes-1, or a target's bits. REQUIRES: 0 <= index < info().count
  int32_t label(int64_t index) const {
    check_index(index);
    return sample_label(index);
  }

  // Of what tells this sample from others wherever it stands in the set: its name if it has one, else its pixels and
  // label. Throws what read() throws.
  uint32_t checksum(int64_t index) const {
    check_index(index);
    return sample_checksum(index);
  }

 protected:
  explicit SampleSource(SampleInfo info) : info_(std::move(info)) {}  // for the formats

 private:
  virtual void read_sample(int64_t index, uint8_t* image) const = 0;
  virtual int32_t sample_label(int64_t index) const = 0;
  virtual uint32_t sample_checksum(int64_t index) const;

  void check_index(int64_t index) const {
    if (index >= 0 && index < info_.count) return;
    throw Error(ExitCode::usage, info_.name + ": sample " + std::to_string(index) + " of " +
                                     std::to_string(info_.count) + " was asked for, expected 0 to " +
                                     std::to_string(info_.count - 1));
  }

  SampleInfo info_;
};

}  // namespace hs
