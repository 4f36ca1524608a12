#include "data/formats/image_file.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string_view>

#ifdef HALFSTEP_PNG
#include <png.h>
#endif
#ifdef HALFSTEP_JPEG
#include <jpeglib.h>  // wants <cstdio>
#endif

#include "data/io/sample_source.h"
#include "engine/check.h"
#include "engine/files/endian.h"

namespace hs {
namespace {

using View = std::span<const uint8_t>;

void check_shape(const std::string& name, const ImageShape& shape, int64_t max_side) {
  const auto in = [&](int64_t side) { return side >= 1 && side <= max_side; };
  if (in(shape.rows) && in(shape.columns)) return;
  fail(ExitCode::bad_input, "{}: an image of {} x {} pixels, expected 1 x 1 to {} x {}", name, shape.rows,
       shape.columns, max_side, max_side);
}

// Of the bytes of an EXIF note, which are a TIFF file: the tag 0x0112 of its first directory. What is not there reads
// as 0, so a damaged note gives 1.
int orientation_in(View tiff) {
  const bool little = !tiff.empty() && tiff[0] == 'I';
  const auto number = [&](uint64_t at, uint64_t bytes) {
    uint64_t value = 0;
    for (uint64_t i = 0; i < bytes; ++i) {
      const uint64_t place = at + (little ? bytes - 1 - i : i);
      value = value << 8 | (place < tiff.size() ? tiff[place] : 0);
    }
    return value;
  };
  if (number(2, 2) != 42) return 1;
  const uint64_t directory = number(4, 4), entries = number(directory, 2);
  for (uint64_t entry = directory + 2; entry < directory + 2 + 12 * entries; entry += 12) {
    if (number(entry, 2) != 0x0112) continue;
    constexpr uint64_t unsigned_16 = 3;
    const uint64_t value = number(entry + 8, 2);
    return number(entry + 2, 2) == unsigned_16 && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

// P5 WIDTH HEIGHT MAXIMUM, separated by white space and comments, one white space, the pixels.
StoredImage decode_pgm(View file, const std::string& name, int64_t max_side) {
  size_t at = 2;
  const auto peek = [&] { return at < file.size() ? int{file[at]} : -1; };
  const auto is_space = [](int c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  // Skips white space and comments, reads digits and leaves the white space after them.
  const auto number = [&] {
    while (is_space(peek()) || peek() == '#') {
      const auto line_end = std::find(file.begin() + static_cast<std::ptrdiff_t>(at), file.end(), '\n');
      at = peek() == '#' ? static_cast<size_t>(line_end - file.begin()) : at + 1;
    }
    int64_t value = -1;
    for (; peek() >= '0' && peek() <= '9'; ++at)
      value = std::min<int64_t>(std::max<int64_t>(value, 0) * 10 + (peek() - '0'), 1 << 20);
    if (value < 0 || !is_space(peek())) fail(ExitCode::bad_input, "{}: PGM with a damaged header (byte {})", name, at);
    return value;
  };
  ImageShape shape;
  shape.columns = number();
  shape.rows = number();
  const int64_t maximum = number();
  ++at;  // the white space that number() leaves
  check_shape(name, shape, max_side);
  if (maximum != 255) fail(ExitCode::bad_input, "{}: PGM with a maximum of {}, expected 255", name, maximum);
  if (file.size() != at + static_cast<uint64_t>(shape.image_bytes())) {
    fail(ExitCode::bad_input, "{}: PGM of {} x {} pixels behind a header of {} bytes, but the file has {} bytes", name,
         shape.rows, shape.columns, at, file.size());
  }
  return {{shape, {file.begin() + static_cast<std::ptrdiff_t>(at), file.end()}}, shape};
}

constexpr uint8_t png_signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool is_png(View file) {
  return file.size() >= sizeof(png_signature) &&
         std::equal(std::begin(png_signature), std::end(png_signature), file.begin());
}
bool is_jpeg(View file) { return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff; }
bool is_pgm(View file) { return file.size() >= 3 && file[0] == 'P' && file[1] == '5'; }

#ifdef HALFSTEP_PNG

// libpng reports an error by a jump, which must not skip a destructor. So every allocation belongs to an object outside
// the jump, and the functions that call libpng have only plain variables.
struct PngState {
  jmp_buf back;
  char message[128] = "damaged";
  const uint8_t* in = nullptr;  // rest of the file
  size_t in_bytes = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

PngState& state_of(png_structp png) { return *static_cast<PngState*>(png_get_error_ptr(png)); }

[[noreturn]] void on_png_error(png_structp png, png_const_charp message) {
  PngState& state = state_of(png);
  std::strncpy(state.message, message, sizeof(state.message) - 1);
  longjmp(state.back, 1);
}
// A warning about the pixels ("IDAT: ...") is an error too: libpng continues if there are more than the image has.
void on_png_warning(png_structp png, png_const_charp message) {
  if (std::strncmp(message, "IDAT: ", 6) == 0) on_png_error(png, message);
}

void read_png_bytes(png_structp png, png_bytep to, size_t count) {
  PngState& state = state_of(png);
  if (count > state.in_bytes) png_error(png, "the file ends too early");
  std::memcpy(to, state.in, count);
  state.in += count;
  state.in_bytes -= count;
}

class PngReader : NonCopyable {
 public:
  explicit PngReader(View file) {
    state_.in = file.data();
    state_.in_bytes = file.size();
  }
  ~PngReader() { png_destroy_read_struct(&state_.png, &state_.info, nullptr); }

  const char* message() const { return state_.message; }

  // Reads the image's size after conversion. Returns false on failure; message() says why.
  bool read_header(ImageShape& shape, int64_t max_side) {
    if (setjmp(state_.back) != 0) return false;
    state_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, on_png_error, on_png_warning);
    if (state_.png == nullptr) return false;
    state_.info = png_create_info_struct(state_.png);
    if (state_.info == nullptr) return false;
    png_set_read_fn(state_.png, &state_, read_png_bytes);
    // A wrong checksum is an error in every chunk, even where libpng would only warn.
    png_set_crc_action(state_.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(state_.png, static_cast<png_uint_32>(max_side), static_cast<png_uint_32>(max_side));
    png_set_chunk_malloc_max(state_.png, 1 << 20);  // text and profile chunks
    png_read_info(state_.png, state_.info);
    if (png_get_bit_depth(state_.png, state_.info) == 16) png_error(state_.png, "16 bits per channel, expected 8");
    png_set_expand(state_.png);
    png_set_interlace_handling(state_.png);
    png_read_update_info(state_.png, state_.info);
    shape.rows = png_get_image_height(state_.png, state_.info);
    shape.columns = png_get_image_width(state_.png, state_.info);
    shape.channels = png_get_channels(state_.png, state_.info);
    if (png_get_rowbytes(state_.png, state_.info) != static_cast<size_t>(shape.columns * shape.channels)) {
      png_error(state_.png, "rows of an unexpected size");
    }
    return true;
  }

  bool read_pixels(uint8_t* pixels) {
    if (setjmp(state_.back) != 0) return false;
    const size_t row_bytes = png_get_rowbytes(state_.png, state_.info);
    for (int passes = png_set_interlace_handling(state_.png); passes > 0; --passes) {
      for (png_uint_32 row = 0; row < png_get_image_height(state_.png, state_.info); ++row) {
        png_read_row(state_.png, pixels + row * row_bytes, nullptr);
      }
    }
    png_read_end(state_.png, state_.info);
    return true;
  }

  // After read_pixels(): the note may follow them.
  int orientation() {
#ifdef PNG_eXIf_SUPPORTED
    png_uint_32 bytes = 0;
    png_bytep note = nullptr;
    if (png_get_eXIf_1(state_.png, state_.info, &bytes, &note) != 0) return orientation_in({note, bytes});
#endif
    return 1;
  }

 private:
  PngState state_;
};

// With the pixels unless only the shape is asked for.
StoredImage decode_png(View file, const std::string& name, int64_t max_side, bool only_shape) {
  // libpng's message for a wrong size has no numbers. The first chunk is the header: width at 16, height at 20.
  if (file.size() >= 24) check_shape(name, {get_big_endian(&file[20]), get_big_endian(&file[16]), 1}, max_side);
  PngReader reader(file);
  StoredImage stored;
  Image& image = stored.image;
  const auto fail_png = [&] { fail(ExitCode::bad_input, "{}: PNG cannot be read: {}", name, reader.message()); };
  if (!reader.read_header(image.shape, max_side)) fail_png();
  if (only_shape) return stored;
  image.pixels.resize(static_cast<size_t>(image.shape.image_bytes()));
  if (!reader.read_pixels(image.pixels.data())) fail_png();
  stored.full = image.shape;
  stored.orientation = reader.orientation();
  return stored;
}

#else

StoredImage decode_png(View, const std::string& name, int64_t, bool) {
  fail(ExitCode::bad_input, "{}: PNG, but this program was built without libpng; install libpng-dev and build again",
       name);
}

#endif

#ifdef HALFSTEP_JPEG

// As with libpng, an error is a jump. So is a warning, which is about damage: libjpeg goes on with grey.
struct JpegState {
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  jmp_buf back;
  char message[JMSG_LENGTH_MAX] = "damaged";
};

[[noreturn]] void on_jpeg_error(j_common_ptr jpeg) {
  auto& state = *static_cast<JpegState*>(jpeg->client_data);
  jpeg->err->format_message(jpeg, state.message);
  longjmp(state.back, 1);
}
void on_jpeg_message(j_common_ptr jpeg, int level) {
  if (level < 0) on_jpeg_error(jpeg);
}
// A few bytes are a scan, and each goes over the whole image: a small file could take hours.
void on_jpeg_progress(j_common_ptr jpeg) {
  constexpr int most = 100;  // usual are 10
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= most) return;
  auto& state = *static_cast<JpegState*>(jpeg->client_data);
  std::snprintf(state.message, sizeof(state.message), "more than %d scans", most);
  longjmp(state.back, 1);
}

// Before the jpeg_create_...() of a jpeg_decompress_struct or jpeg_compress_struct, which keeps this.
template <class Jpeg>
void set_handlers(Jpeg& jpeg, JpegState& state) {
  jpeg.err = jpeg_std_error(&state.errors);
  state.errors.error_exit = on_jpeg_error;
  state.errors.emit_message = on_jpeg_message;
  jpeg.client_data = &state;
}

class JpegReader : NonCopyable {
 public:
  explicit JpegReader(View file) : file_(file) { set_handlers(jpeg_, state_); }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

  const char* message() const { return state_.message; }

  // Reads the size, and as channels the components that are stored. Returns false on failure; message() says why.
  bool read_header(ImageShape& shape) {
    if (setjmp(state_.back) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    state_.progress.progress_monitor = on_jpeg_progress;
    jpeg_.progress = &state_.progress;
    jpeg_mem_src(&jpeg_, file_.data(), static_cast<unsigned long>(file_.size()));
    constexpr int exif = JPEG_APP0 + 1;
    jpeg_save_markers(&jpeg_, exif, 0xffff);
    jpeg_read_header(&jpeg_, TRUE);
    for (const auto* marker = jpeg_.marker_list; marker != nullptr && orientation_ == 1; marker = marker->next) {
      constexpr std::string_view begin("Exif\0\0", 6);  // other notes have the same marker
      const View note(marker->data, marker->data_length);
      if (marker->marker != exif || note.size() < begin.size() || !std::equal(begin.begin(), begin.end(), note.begin()))
        continue;
      orientation_ = orientation_in(note.subspan(begin.size()));
    }
    shape = {jpeg_.image_height, jpeg_.image_width, jpeg_.num_components};
    return true;
  }

  int orientation() const { return orientation_; }  // after read_header()

  // Of a `part`-th of the size. REQUIRES: room for `bytes` bytes, which they take
  bool read_pixels(unsigned part, uint8_t* pixels, size_t bytes) {
    if (setjmp(state_.back) != 0) return false;
    jpeg_.out_color_space = jpeg_.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = part;
    jpeg_start_decompress(&jpeg_);
    const size_t row_bytes = size_t{jpeg_.output_width} * static_cast<size_t>(jpeg_.output_components);
    if (jpeg_.output_height * row_bytes != bytes) return false;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = pixels + jpeg_.output_scanline * row_bytes;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

 private:
  const View file_;
  JpegState state_;
  jpeg_decompress_struct jpeg_ = {};
  int orientation_ = 1;
};

// The largest of the divisors that libjpeg has fast code for that leaves at least `smallest`.
unsigned divisor_of(const ImageShape& shape, const std::optional<ImageShape>& smallest, int orientation) {
  if (!smallest) return 1;
  const ImageShape least = as_stored(*smallest, orientation);
  for (const unsigned part : {8, 4, 2}) {
    if (shape.rows / part >= least.rows && shape.columns / part >= least.columns) return part;
  }
  return 1;
}

// See decode_png().
StoredImage decode_jpeg(View file, const std::string& name, int64_t max_side, const std::optional<ImageShape>& smallest,
                        bool only_shape) {
  JpegReader reader(file);
  StoredImage stored;
  ImageShape& shape = stored.image.shape;
  const auto fail_jpeg = [&] { fail(ExitCode::bad_input, "{}: JPEG cannot be read: {}", name, reader.message()); };
  if (!reader.read_header(shape)) fail_jpeg();
  check_shape(name, shape, max_side);
  if (shape.channels != 1 && shape.channels != 3) {
    fail(ExitCode::bad_input, "{}: JPEG of {} components (CMYK has 4), expected 1 (grey) or 3 (colour); convert it",
         name, shape.channels);
  }
  if (only_shape) return stored;
  stored.full = shape;
  stored.orientation = reader.orientation();
  const unsigned part = divisor_of(shape, smallest, stored.orientation);
  stored.part = part;
  shape.rows = (shape.rows + part - 1) / part;
  shape.columns = (shape.columns + part - 1) / part;
  std::vector<uint8_t>& pixels = stored.image.pixels;
  pixels.resize(static_cast<size_t>(shape.image_bytes()));
  if (!reader.read_pixels(part, pixels.data(), pixels.size())) fail_jpeg();
  return stored;
}

class JpegWriter : NonCopyable {
 public:
  JpegWriter() { set_handlers(jpeg_, state_); }
  ~JpegWriter() { jpeg_destroy_compress(&jpeg_); }

  // `size`: of the room at `file`, and then of what was written. Returns false on failure.
  bool write(const Image& image, uint8_t* file, unsigned long& size) {
    if (setjmp(state_.back) != 0) return false;
    jpeg_create_compress(&jpeg_);
    jpeg_mem_dest(&jpeg_, &file, &size);
    jpeg_.image_width = static_cast<JDIMENSION>(image.shape.columns);
    jpeg_.image_height = static_cast<JDIMENSION>(image.shape.rows);
    jpeg_.input_components = static_cast<int>(image.shape.channels);
    jpeg_.in_color_space = image.shape.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg_);
    jpeg_set_quality(&jpeg_, 90, TRUE);
    jpeg_start_compress(&jpeg_, TRUE);
    const auto row_bytes = static_cast<size_t>(image.shape.columns * image.shape.channels);
    while (jpeg_.next_scanline < jpeg_.image_height) {
      auto* row = const_cast<JSAMPROW>(image.pixels.data() + jpeg_.next_scanline * row_bytes);
      jpeg_write_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_compress(&jpeg_);
    return true;
  }

 private:
  JpegState state_;
  jpeg_compress_struct jpeg_ = {};
};

#else

StoredImage decode_jpeg(View, const std::string& name, int64_t, const std::optional<ImageShape>&, bool) {
  fail(ExitCode::bad_input, "{}: JPEG, but this program was built without libjpeg; install libjpeg-dev and build again",
       name);
}

#endif

StoredImage decode(View file, const std::string& name, int64_t max_side, const std::optional<ImageShape>& smallest,
                   bool only_shape) {
  if (is_png(file)) return decode_png(file, name, max_side, only_shape);
  if (is_jpeg(file)) return decode_jpeg(file, name, max_side, smallest, only_shape);
  if (is_pgm(file)) return decode_pgm(file, name, max_side);
  fail(ExitCode::bad_input, "{}: starts neither as PNG nor as JPEG or PGM (P5), expected one of them", name);
}

}  // namespace

#ifdef HALFSTEP_PNG

bool can_read_png() { return true; }

std::vector<uint8_t> encode_png(const Image& image) {
  constexpr png_uint_32 formats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.shape.columns);
  png.height = static_cast<png_uint_32>(image.shape.rows);
  png.format = formats[image.shape.channels - 1];
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::vector<uint8_t> file(size);
  if (png_image_write_to_memory(&png, file.data(), &size, 0, image.pixels.data(), 0, nullptr) == 0) {
    fail(ExitCode::out_of_memory, "no memory to encode an image");
  }
  file.resize(size);
  return file;
}

#else

bool can_read_png() { return false; }

std::vector<uint8_t> encode_png(const Image&) {
  fail(ExitCode::usage, "PNG: this program was built without libpng; install libpng-dev and build again, or use pgm");
}

#endif

#ifdef HALFSTEP_JPEG

bool can_read_jpeg() { return true; }

std::vector<uint8_t> encode_jpeg(const Image& image) {
  // More than any image takes, as tjBufSize() computes it, so that libjpeg does not allocate another buffer.
  const auto padded = [](int64_t side) { return static_cast<size_t>((side + 15) / 16 * 16); };
  std::vector<uint8_t> file(padded(image.shape.rows) * padded(image.shape.columns) * 6 + 2048);
  unsigned long size = file.size();
  if (!JpegWriter().write(image, file.data(), size)) fail(ExitCode::out_of_memory, "no memory to encode an image");
  file.resize(size);
  return file;
}

#else

bool can_read_jpeg() { return false; }

std::vector<uint8_t> encode_jpeg(const Image&) {
  fail(ExitCode::usage, "JPEG: this program was built without libjpeg; install libjpeg-dev and build again");
}

#endif

StoredImage decode_stored(std::span<const uint8_t> file, const std::string& name, int64_t max_side,
                          const std::optional<ImageShape>& smallest) {
  return decode(file, name, max_side, smallest, false);
}

Image decode_image(std::span<const uint8_t> file, const std::string& name, int64_t max_side) {
  const StoredImage stored = decode_stored(file, name, max_side, {});
  return upright(stored.image, stored.orientation);
}

int64_t channels_of(std::span<const uint8_t> file, const std::string& name, int64_t max_side) {
  return decode(file, name, max_side, {}, true).image.shape.channels;
}

ImageShape as_stored(const ImageShape& shape, int orientation) {
  constexpr int first_turned = 5;  // by a quarter
  return orientation < first_turned ? shape : ImageShape{shape.columns, shape.rows, shape.channels};
}

// EXIF 2.32, page 41: which side of the stored image is the top, and which the left one.
Image upright(const Image& image, int orientation) {
  check(orientation >= 1 && orientation <= 8, "upright: orientation {}, expected 1 to 8", orientation);
  if (orientation == 1) return image;
  const bool turns = orientation > 4;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const auto& [rows, columns, channels] = image.shape;
  Image turned{as_stored(image.shape, orientation), {}};
  turned.pixels.reserve(image.pixels.size());
  for (int64_t i = 0; i < turned.shape.rows; ++i) {
    for (int64_t j = 0; j < turned.shape.columns; ++j) {
      const int64_t row = turns ? j : i, column = turns ? i : j;
      const int64_t pixel =
          (from_bottom ? rows - 1 - row : row) * columns + (from_right ? columns - 1 - column : column);
      const uint8_t* at = &image.pixels[static_cast<size_t>(pixel * channels)];
      turned.pixels.insert(turned.pixels.end(), at, at + channels);
    }
  }
  return turned;
}

std::vector<uint8_t> encode_pgm(const Image& image) {
  const std::string header = fmt::format("P5\n{} {}\n255\n", image.shape.columns, image.shape.rows);
  std::vector<uint8_t> file(header.begin(), header.end());
  file.insert(file.end(), image.pixels.begin(), image.pixels.end());
  return file;
}

}  // namespace hs
