// A folder of images in classes, for the tests of its readers.
#pragma once

#include <fmt/format.h>

#include "tests/support/bad_input.h"

namespace hs::test {

// An image: one row of pixels of one value.
inline Bytes grey_pgm(uint8_t value, int columns = 2) {
  Bytes file = bytes_of(fmt::format("P5\n{} 1\n255\n", columns));
  file.resize(file.size() + static_cast<size_t>(columns), value);
  return file;
}

// Three classes whose images are named in no particular order, and some files that are not images.
inline void write_classes(const std::filesystem::path& folder) {
  write_bytes(folder / "cat" / "2.PGM", grey_pgm(2));
  write_bytes(folder / "cat" / "10.pgm", grey_pgm(1));
  write_bytes(folder / "Dog" / "x.pgm", grey_pgm(3));
  std::filesystem::create_directories(folder / "emu");
  write_bytes(folder / "README", bytes_of("not a class"));
  write_bytes(folder / ".git" / "x.pgm", grey_pgm(9));
  for (const char* name : {".DS_Store", "Thumbs.db", "desktop.ini"}) write_bytes(folder / "cat" / name, {});
}

}  // namespace hs::test
