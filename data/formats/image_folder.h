// A folder for each class, and in it an image in a file of its own: FOLDER/cat/0001.png. What data sets often come as,
// and the slow case: each sample opens a file and decodes an image.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "data/sample_writer.h"

namespace hs {

// The names of the class folders, sorted by their bytes, give the labels; so do those of the files the order. Files are
// PNG or PGM (.png, .pgm); hidden files, and files beside the class folders, are not looked at. The first image gives
// the size and channels of all; read() refuses another one.
// Throws Error: io (no such folder, or it cannot be read), bad_input (no classes, no images, or other files in a
// class).
std::unique_ptr<SampleSource> open_image_folder(const std::filesystem::path& folder, const SetIdentity& set = {});

// The names of the class folders, in the order of the labels.
std::vector<std::string> class_names(const std::filesystem::path& folder);

// If there is a folder with images in it below `folder`.
bool is_image_folder(const std::filesystem::path& folder);

enum class ImageFormat { png, pgm };

// Whether the files are to survive a power cut. What a program deletes again when it ends need not, and the disk, which
// may take seconds, is not waited for.
enum class Lifetime { temporary, permanent };

// Writes FOLDER/000/0000000.png and so on: the class, then the index of the sample.
// Throws Error: usage (PNG without libpng; PGM and several channels), io (`folder` is there already, or the disk
// fails).
std::unique_ptr<SampleWriter> write_image_folder(const std::filesystem::path& folder, const SampleInfo& info,
                                                 ImageFormat format, Lifetime lifetime = Lifetime::permanent);

}  // namespace hs
