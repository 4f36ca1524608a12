// A text file as samples for a model that predicts the next symbol. The symbols are the file's distinct characters,
// sorted by code point and numbered from 0, if it is UTF-8 with at most max_text_symbols of them, else its distinct
// bytes. A byte order mark at its beginning is none of the text. A sample is a window of `context` symbols and the one
// after them, stored as an image of 1 x (context + 1) x 1 symbol numbers, or x 2, low byte first, of more than 256
// symbols, so that loaders, caches and shuffling treat it as any other image. Its label is its last symbol. The first
// 90 % of the file are for training, where windows begin every context / 4 symbols; the rest is the test, where each
// window begins at the last symbol of the one before, so that no symbol is predicted twice.
#pragma once

#include <filesystem>
#include <memory>

#include "data/io/sample_source.h"

namespace hs {

inline constexpr int64_t default_context = 128;                 // symbols before the one to predict
inline constexpr int64_t largest_context = max_image_side - 1;  // a window is an image, and has one symbol more
inline constexpr int64_t max_text_symbols = 512;                // of a text of characters
inline constexpr uint64_t max_text_bytes = uint64_t{1} << 30;   // of a file

// How to read a text.
struct TextOptions {
  int64_t context = default_context;  // symbols before the one to predict
  Vocabulary vocabulary = {};         // of a trained model; empty: that of both splits
  bool drops_unknown = false;         // characters that are not in the vocabulary are left out, which the remark says
  std::string how_to_drop = {};       // for the message that refuses them: what the user has to add
};

// Reads the whole file. Throws Error: io (it cannot be read), bad_input (no regular file, more than max_text_bytes, a
// character that the given vocabulary has not, or the split is too short for one window).
// REQUIRES: 1 <= context <= largest_context
std::unique_ptr<SampleSource> open_text(const std::filesystem::path& file, const SetIdentity& set, bool training,
                                        const TextOptions& options = {});

}  // namespace hs
