#include "data/formats/image_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "data/formats/fit_image.h"
#include "data/formats/image_file.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/files/input_file.h"
#include "engine/files/output_file.h"
#include "engine/parallel.h"

namespace hs {
namespace {

namespace fs = std::filesystem;

// What systems put beside pictures.
bool is_ignored(const std::string& name) {
  return name.starts_with('.') || name == "Thumbs.db" || name == "desktop.ini";
}

// Sorted, without hidden files.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_ignored(entry->path().filename().native())) paths.push_back(entry->path());
  }
  if (error) fail(ExitCode::io, "{}: cannot be read: {}", printable(folder), error.message());
  std::ranges::sort(paths, {}, [](const fs::path& path) -> const std::string& { return path.native(); });
  return paths;
}

// Names that are numbers come first, in their numeric order: 2 before 10.
std::tuple<bool, size_t, std::string> place_in_order(const fs::path& path) {
  const std::string name = path.filename().native();
  if (name.find_first_not_of("0123456789") != std::string::npos) return {true, 0, name};
  const std::string digits = name.substr(std::min(name.find_first_not_of('0'), name.size()));
  return {false, digits.size(), digits};
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders = entries_of(folder);
  std::error_code ignored;
  std::erase_if(folders, [&ignored](const fs::path& path) { return !fs::is_directory(path, ignored); });
  std::ranges::stable_sort(folders, {}, place_in_order);
  return folders;
}

bool has_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".pgm";
}

constexpr const char* image_names = ".png, .jpg, .jpeg or .pgm";

std::vector<uint8_t> bytes_of(const fs::path& path) { return read_file(path, max_image_file_bytes); }

// A set without names: that of folder 7 is 7 already.
std::vector<std::string> names_of(const std::vector<fs::path>& classes) {
  std::vector<std::string> names;
  bool are_numbers = true;
  for (const fs::path& path : classes) {
    const std::string digits = std::get<2>(place_in_order(path)), number = std::to_string(names.size());
    are_numbers = are_numbers && (digits == number || (digits.empty() && number == "0"));
    names.push_back(printable(path.filename()));
  }
  if (are_numbers) names.clear();
  return names;
}

// What was skipped in the folders of classes, for the user.
std::string text_of(const std::vector<fs::path>& skipped) {
  if (skipped.empty()) return "";
  return fmt::format("skipped {} that {} not named {}, the first {}",
                     skipped.size() == 1 ? "a file" : fmt::format("{} files", skipped.size()),
                     skipped.size() == 1 ? "is" : "are", image_names, printable(skipped.front()));
}

struct ImageEntry {
  int32_t label;
  std::string file;  // its name in the folder of the class
};

struct ImageList {
  std::vector<fs::path> classes, skipped;
  std::vector<ImageEntry> images;

  fs::path path(size_t index) const { return classes[static_cast<size_t>(images[index].label)] / images[index].file; }
};

ImageList list_images(const fs::path& folder) {
  ImageList list{folders_in(folder), {}, {}};
  for (size_t label = 0; label < list.classes.size(); ++label) {
    for (const fs::path& path : entries_of(list.classes[label])) {
      if (has_image_name(path)) {
        list.images.push_back({static_cast<int32_t>(label), path.filename().string()});
      } else {
        list.skipped.push_back(path);
      }
    }
  }
  return list;
}

// decode(bytes, name) of a file, and what to do if it is damaged.
auto decoded(const fs::path& path, const SetIdentity& set, const auto& decode) {
  try {
    return decode(bytes_of(path), printable(path));
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    throw error.with_message(error.what() + set.how_to_leave_out);
  }
}

// By the headers, also of images that are left out: what one part leaves out, the other one does not know.
bool has_colour(const ImageList& list, const SetIdentity& set) {
  const auto is_coloured = [](const std::vector<uint8_t>& bytes, const std::string& name) {
    return channels_of(bytes, name, largest_side_to_fit) > 2;
  };
  for (size_t i = 0; i < list.images.size(); ++i) {
    try {
      if (decoded(list.path(i), set, is_coloured)) return true;
    } catch (const Error& error) {
      if (!set.on_damaged || error.code() != ExitCode::bad_input) throw;
    }
  }
  return false;
}

void leave_out_damaged(ImageList& list, const SetIdentity& set) {
  std::vector<std::exception_ptr> errors(list.images.size());
  parallel(std::ssize(errors), [&](int64_t piece, int) {
    const auto i = static_cast<size_t>(piece);
    try {
      const fs::path path = list.path(i);
      decode_stored(bytes_of(path), printable(path), largest_side_to_fit, set.size);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  std::vector<ImageEntry> good;
  std::vector<std::string> reasons(errors.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    try {
      if (errors[i]) std::rethrow_exception(errors[i]);
      good.push_back(list.images[i]);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      set.on_damaged(reasons[i] = error.what());
    }
  }
  for (size_t i = 0; i < errors.size(); ++i) {
    if (std::ranges::binary_search(good, list.images[i].label, {}, &ImageEntry::label)) continue;
    fail(ExitCode::bad_input, "{}: no image of this class is left, all are damaged, the first: {}",
         printable(list.path(i).parent_path()), reasons[i]);
  }
  list.images = std::move(good);
}

class ImageFolderSource : public SampleSource {
 public:
  ImageFolderSource(SampleInfo info, ImageList list, const SetIdentity& set)
      : SampleSource(std::move(info)), list_(std::move(list)), set_(set) {}

 private:
  void read_sample(int64_t index, uint8_t* to) const override {
    const fs::path path = list_.path(static_cast<size_t>(index));
    const ImageShape& shape = info().shape();
    const Image image = decoded(path, set_, [&](const std::vector<uint8_t>& bytes, const std::string& name) {
      return set_.size ? decode_to_fit(bytes, name, shape).image : decode_image(bytes, name, largest_side_to_fit);
    });
    if (image.shape != shape) {
      fail(ExitCode::bad_input, "{}: {}, but the first image is {}; expected one size, or one to resize them to{}",
           printable(path), image.shape.text(), info().text(), set_.how_to_resize);
    }
    std::copy(image.pixels.begin(), image.pixels.end(), to);
  }
  int32_t sample_label(int64_t index) const override { return list_.images[static_cast<size_t>(index)].label; }
  // Of its name: which files are beside it, and where the folder is, is nothing to it.
  uint32_t sample_checksum(int64_t index) const override {
    const fs::path path = list_.path(static_cast<size_t>(index));
    const std::string name = path.parent_path().filename().native() + "/" + path.filename().native();
    return crc32c(name.data(), name.size());
  }

  const ImageList list_;
  const SetIdentity set_;
};

// In the order of ImageFormat.
struct Encoding {
  const char* extension;
  std::vector<uint8_t> (*encode)(const Image&);
};
constexpr Encoding encodings[] = {{"png", encode_png}, {"jpg", encode_jpeg}, {"pgm", encode_pgm}};

class ImageFolderWriter : public SampleWriter {
 public:
  ImageFolderWriter(const fs::path& folder, const SampleInfo& info, ImageFormat format, Lifetime lifetime)
      : SampleWriter(info), folder_(folder), format_(format), lifetime_(lifetime) {
    // Names in whose order the folders give the same labels again.
    for (const std::string& name : info.class_names) names_.emplace_back(name);
    if (!std::ranges::is_sorted(names_, {}, place_in_order) || names_of(names_) != info.class_names) names_.clear();
    for (int label = 0; label < info.classes; ++label) {
      std::error_code error;
      std::filesystem::create_directory(class_folder(label), error);
      if (error) fail(ExitCode::io, "{}: cannot be made: {}", printable(class_folder(label)), error.message());
    }
  }

 private:
  void write_sample(const uint8_t* image, int32_t label) override {
    const Image one{info().shape(), {image, image + info().image_bytes()}};
    const auto& [extension, encode] = encodings[static_cast<size_t>(format_)];
    const std::vector<uint8_t> bytes = encode(one);
    const fs::path path = class_folder(label) / fmt::format("{:07}.{}", added(), extension);
    // Not an OutputFile, which would flush each file to disk: the folder appears as a whole.
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) fail(ExitCode::io, "{}: cannot be written: {}", printable(path), std::strerror(errno));
  }

  void keep_files() override { folder_.keep(lifetime_ == Lifetime::permanent); }

  fs::path class_folder(int32_t label) const {
    return folder_.path() /
           (names_.empty() ? fs::path(fmt::format("{:03}", label)) : names_[static_cast<size_t>(label)]);
  }

  OutputFolder folder_;
  const ImageFormat format_;
  const Lifetime lifetime_;
  std::vector<fs::path> names_;  // of the folders; empty: their numbers
};

}  // namespace

std::vector<std::string> class_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : folders_in(folder)) names.push_back(path.filename().string());
  return names;
}

std::vector<fs::path> image_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_ignored(entry->path().filename().native())) {
      entry.disable_recursion_pending();
    } else if (has_image_name(entry->path())) {
      files.push_back(entry->path());
    }
  }
  if (error) fail(ExitCode::io, "{}: cannot be read: {}", printable(folder), error.message());
  std::ranges::sort(files);
  if (files.empty()) fail(ExitCode::bad_input, "{}: no {} file in this folder", printable(folder), image_names);
  return files;
}

bool has_images(const fs::path& folder) {
  const std::vector<fs::path> files = entries_of(folder);
  return std::ranges::any_of(files, has_image_name);
}

bool is_image_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder, ignored) && std::ranges::any_of(folders_in(folder), has_images);
}

std::unique_ptr<SampleSource> open_image_folder(const fs::path& folder, const SetIdentity& set,
                                                const fs::path& other_part) {
  ImageList list = list_images(folder);
  const size_t classes = list.classes.size();
  if (classes == 0) {
    fail(ExitCode::bad_input, "{}: has no folders in it, expected one for each class", printable(folder));
  }
  if (classes > static_cast<size_t>(max_classes)) {
    fail(ExitCode::bad_input, "{}: {} folders, expected one for each of at most {} classes", printable(folder), classes,
         max_classes);
  }
  if (list.images.empty()) {
    fail(ExitCode::bad_input, "{}: {} folders of classes, but no {} file in them", printable(folder), classes,
         image_names);
  }
  ImageShape shape;
  if (set.size) {
    const bool is_colour = has_colour(list, set) || (!other_part.empty() && has_colour(list_images(other_part), set));
    shape = {set.size->rows, set.size->columns, is_colour ? 3 : 1};
  }
  if (set.on_damaged) leave_out_damaged(list, set);
  if (!set.size) {
    const fs::path path = list.path(0);
    shape = decoded(path, set, [](const auto& bytes, const auto& name) {
              return decode_image(bytes, name, largest_side_to_fit);
            }).shape;
    if (!shape.is_allowed()) {
      fail(ExitCode::bad_input, "{}: an image of {} x {} pixels, expected at most {} x {}, or one to resize it to{}",
           printable(path), shape.rows, shape.columns, max_image_side, max_image_side, set.how_to_resize);
    }
  }
  SampleInfo info{shape, set.name, fmt::format("folder of images {}", printable(folder))};
  if (set.size) info.description += fmt::format(", resized to {} x {}", info.rows, info.columns);
  info.scale = set.scale.value_or(default_pixel_scale);
  info.class_names = names_of(list.classes);
  info.remark = text_of(list.skipped);
  info.count = std::ssize(list.images);
  info.classes = static_cast<int>(classes);
  return std::make_unique<ImageFolderSource>(std::move(info), std::move(list), set);
}

std::unique_ptr<SampleWriter> write_image_folder(const fs::path& folder, const SampleInfo& info, ImageFormat format,
                                                 Lifetime lifetime) {
  // Without the library, to encode an image is an error that says so.
  if (format == ImageFormat::png && !can_read_png()) encode_png({});
  if (format == ImageFormat::jpeg && !can_read_jpeg()) encode_jpeg({});
  const bool is_jpeg = format == ImageFormat::jpeg;
  if (format != ImageFormat::png && info.channels != 1 && !(is_jpeg && info.channels == 3)) {
    fail(ExitCode::usage, "{} holds images of 1 {}channel{}, but {} has {}; use png", is_jpeg ? "jpeg" : "pgm",
         is_jpeg ? "or 3 " : "", is_jpeg ? "s" : "", info.name, info.channels);
  }
  return std::make_unique<ImageFolderWriter>(folder, info, format, lifetime);
}

}  // namespace hs
