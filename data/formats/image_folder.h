// A folder for each class, and in it a file for each image: FOLDER/cat/0001.png. Many data sets are published like
// this. It is the slow case: reading a sample opens a file and decodes an image.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/io/sample_source.h"
#include "data/io/sample_writer.h"

namespace hs {

// The names of the class folders give the labels: numbers first, in numeric order, then by their bytes. The names of
// the files, sorted by their bytes, give the order. Files are PNG, JPEG or PGM (.png, .jpg, .jpeg, .pgm); others are
// skipped, which the remark says if they are in a class and not hidden. The first image determines the shape of all,
// and read() refuses an image of another shape; with set.size, decode_to_fit() gives all of them that size, in colour
// if any of them, or of those in the folder of the other part of the set, has colours. With set.on_damaged, every image
// is decoded once before, and those that cannot be are left out. Throws Error: io (no such folder, or it cannot be
// read), bad_input (no classes or no images, or none of a class is left).
std::unique_ptr<SampleSource> open_image_folder(const std::filesystem::path& folder, const SetIdentity& set = {},
                                                const std::filesystem::path& other_part = {});

// The names of the class folders, in the order of the labels.
std::vector<std::string> class_names(const std::filesystem::path& folder);

// The PNG, JPEG and PGM files in a folder and in all folders below it, sorted. Throws Error: io, bad_input (there are
// none).
std::vector<std::filesystem::path> image_files(const std::filesystem::path& folder);

// Whether there are images in `folder` itself.
bool has_images(const std::filesystem::path& folder);

// Whether a folder in `folder` contains images.
bool is_image_folder(const std::filesystem::path& folder);

enum class ImageFormat { png, jpeg, pgm };  // of the files that write_image_folder() writes

// Whether the files must survive a power cut. Files that the program deletes again at its end need not, and writing
// them does not wait for the disk, which may take seconds.
enum class Lifetime { temporary, permanent };

// Writes FOLDER/000/0000000.png and so on: the class, then the index of the sample. Where classes have names in the
// order that folders are read in, the folders have these names.
// Throws Error: usage (PNG without libpng, JPEG without libjpeg; channels that the format does not hold), io (`folder`
// exists already, or the disk fails).
std::unique_ptr<SampleWriter> write_image_folder(const std::filesystem::path& folder, const SampleInfo& info,
                                                 ImageFormat format, Lifetime lifetime = Lifetime::permanent);

}  // namespace hs
