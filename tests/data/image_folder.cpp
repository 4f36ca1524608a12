// Folders of PNG, JPEG and PGM images, and folders that are not what they should be. The images themselves:
// tests/data/image_file.cpp.
#include <algorithm>
#include <array>

#include "data/formats/image_file.h"
#include "data/formats/image_folder.h"
#include "tests/support/image_classes.h"
#include "tests/support/sample_sets.h"

namespace {

using namespace hs;
using namespace hs::test;

TEST_CASE("folder: sorted names give labels and order") {
  const TemporaryFolder folder;
  write_classes(folder.path);
  const auto source = open_image_folder(folder.path, {"pets", PixelScale{0.25f, 0.5f}});
  CHECK(same_shape(source->info(), info_for(3, {1, 2, 1}, 3)));
  CHECK(source->info().name == "pets");
  CHECK(source->info().scale.deviation == 0.5f);
  CHECK(class_names(folder.path) == std::vector<std::string>{"Dog", "cat", "emu"});
  for (const char* name : {"10", "9", "1", "02", "9a"}) fs::create_directories(folder / "numbers" / name);
  CHECK(class_names(folder / "numbers") == std::vector<std::string>{"1", "02", "9", "10", "9a"});
  CHECK(source->info().class_names == std::vector<std::string>{"Dog", "cat", "emu"});
  CHECK(source->info().remark.empty());
  const int32_t labels[] = {0, 1, 1};
  const uint8_t values[] = {3, 1, 2};
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(source->label(i) == labels[i]);
    CHECK(read_image(*source, i) == Bytes(2, values[i]));
  }
}

TEST_CASE("folder: other files are skipped, sizes can be made one, and names of classes are kept") {
  const TemporaryFolder folder;
  write_classes(folder / "in");
  write_bytes(folder / "in" / "cat" / "3.gif", {});
  write_bytes(folder / "in" / "cat" / "4.pgm", grey_pgm(7, 5));
  if (can_read_jpeg()) write_bytes(folder / "in" / "cat" / "5.JPEG", encode_jpeg({{40, 30, 1}, Bytes(1200, 128)}));
  write_bytes(folder / "in" / "Dog" / "sub" / "a.pgm", {});
  const SetIdentity pets = {.name = "pets", .size = ImageShape{2, 3}};
  const auto source = open_image_folder(folder / "in", pets);
  // Colour if any file has colours, here or in the other part.
  if (can_read_png()) {
    write_bytes(folder / "colour" / "x" / "1.png", encode_png({{1, 1, 3}, {1, 2, 3}}));
    CHECK(open_image_folder(folder / "in", pets, folder / "colour")->info().channels == 3);
    write_bytes(folder / "colour" / "x" / "0.pgm", grey_pgm(1));
    CHECK(open_image_folder(folder / "colour", pets)->info().channels == 3);
  }
  CHECK(same_shape(source->info(), info_for(can_read_jpeg() ? 5 : 4, {2, 3, 1}, 3)));
  CHECK(source->info().remark == "skipped 2 files that are not named .png, .jpg, .jpeg or .pgm, the first " +
                                     (folder / "in" / "Dog" / "sub").string());
  for (int64_t i = 0; i < source->info().count; ++i)
    CHECK(read_image(*source, i) == Bytes(6, std::array<uint8_t, 5>{3, 1, 2, 7, 128}[static_cast<size_t>(i)]));
  const auto writer = write_image_folder(folder / "out", source->info(), ImageFormat::pgm);
  copy_samples(*source, source->info().count, *writer);
  CHECK(class_names(folder / "out") == class_names(folder / "in"));
  CHECK(open_image_folder(folder / "out")->label(1) == 1);
  // Names that are numbers need none, and an order that the folders would not have again is not written.
  for (const auto& [names, kept] :
       {std::pair<std::vector<std::string>, bool>{{"1", "2", "3"}, true}, {{"b", "a", "c"}, false}}) {
    SampleInfo info = info_for(4, {2, 3, 1}, 3);
    info.class_names = names;
    const fs::path path = folder / names[0];
    copy_samples(*source, 4, *write_image_folder(path, info, ImageFormat::pgm));
    CHECK((class_names(path) == names) == kept);
    CHECK(open_image_folder(path)->info().class_names.empty() == !kept);
  }
}

TEST_CASE("folder: what is wrong in it is named") {
  const auto refused_after = [](const std::function<void(const fs::path&)>& spoil, ExitCode code,
                                const std::string& part) {
    const TemporaryFolder folder;
    write_classes(folder.path);
    spoil(folder.path);
    check_refused(outcome_of([&] {
                    const auto source = open_image_folder(folder.path);
                    for (int64_t i = 0; i < source->info().count; ++i) read_image(*source, i);
                  }),
                  code, folder.path.string(), part);
  };
  refused_after(
      [](const fs::path& f) { write_bytes(f / "cat" / "3.pgm", grey_pgm(1, 3)); }, ExitCode::bad_input,
      "cat/3.pgm: 1 x 3 x 1, but the first image is 1 x 2 x 1; expected one size, or one to resize them to (sample 3)");
  refused_after([](const fs::path& f) { write_bytes(f / "cat" / "2.PGM", {}); }, ExitCode::bad_input,
                "cat/2.PGM: starts neither as PNG nor as JPEG or PGM (P5), expected one of them (sample 2)");
  refused_after([](const fs::path& f) { write_bytes(f / "Dog" / "x.pgm", {}); }, ExitCode::bad_input,
                "Dog/x.pgm: start");
  refused_after([](const fs::path& f) { fs::create_directory(f / "cat" / "4.png"); }, ExitCode::bad_input,
                "cat/4.png: a folder, expected a regular file (sample 3)");
  refused_after([](const fs::path& f) { fs::create_symlink("nowhere", f / "cat" / "4.png"); }, ExitCode::io,
                "cat/4.png: cannot be opened");
  refused_after([](const fs::path& f) { fs::remove_all(f / "cat"), fs::remove_all(f / "Dog"); }, ExitCode::bad_input,
                "1 folders of classes, but no .png, .jpg, .jpeg or .pgm file in them");
  refused_after(
      [](const fs::path& f) {
        for (const char* name : {"cat", "Dog", "emu"}) fs::remove_all(f / name);
      },
      ExitCode::bad_input, "has no folders in it");
  refused_after([](const fs::path& f) { fs::remove_all(f); }, ExitCode::io, "cannot be read");
  refused_after(
      [](const fs::path& f) {
        for (int i = 0; i < 998; ++i) fs::create_directory(f / std::to_string(i));
      },
      ExitCode::bad_input, "1001 folders, expected one for each of at most 1000 classes");
  refused_after([](const fs::path& f) { fs::resize_file(f / "Dog" / "x.pgm", uint64_t{5} << 30); }, ExitCode::bad_input,
                "Dog/x.pgm: 5368709120 bytes, above the limit of 16777216");
}

TEST_CASE("folder: damaged images are left out and told, the first of all too, or the way to that is said") {
  const TemporaryFolder folder;
  write_classes(folder.path);
  write_bytes(folder / "Dog" / "0.pgm", bytes_of("P5 x"));
  write_bytes(folder / "cat" / "3.jpg", {});
  std::vector<std::string> reasons;
  SetIdentity set = {.name = "pets", .on_damaged = [&](const std::string& why) { reasons.push_back(why); }};
  for (const bool resizes : {false, true}) {
    if (resizes) set.size = ImageShape{2, 2};
    // What is damaged in the other part keeps this one from nothing.
    const auto source = open_image_folder(folder.path, set, folder.path);
    REQUIRE(source->info().count == 3);
    for (int64_t i = 0; i < 3; ++i)
      CHECK(read_image(*source, i)[0] == std::array<uint8_t, 3>{3, 1, 2}[static_cast<size_t>(i)]);
    REQUIRE(reasons.size() == 2);
    CHECK(reasons[0].starts_with((folder / "Dog" / "0.pgm").string() + ": PGM with a damaged header"));
    CHECK(reasons[1].starts_with((folder / "cat" / "3.jpg").string() + ": starts neither"));
    reasons.clear();
  }
  const SetIdentity strict = {.how_to_leave_out = "; this does"};
  check_refused(outcome_of([&] { open_image_folder(folder.path, strict); }), ExitCode::bad_input, folder.path.string(),
                "Dog/0.pgm: PGM with a damaged header (byte 3); this does");
  write_bytes(folder / "Dog" / "0.pgm", grey_pgm(1, 600));  // large, which is not damaged either
  const SetIdentity resizable = {.how_to_resize = "; this does", .how_to_leave_out = "; this does not"};
  const std::string why = outcome_of([&] { open_image_folder(folder.path, resizable); }).message;
  CHECK(why == (folder / "Dog" / "0.pgm").string() +
                   ": an image of 1 x 600 pixels, expected at most 512 x 512, or one to resize it to; this does");
  write_bytes(folder / "Dog" / "0.pgm", bytes_of("P5 x"));
  fs::remove(folder / "Dog" / "x.pgm");
  check_refused(outcome_of([&] { open_image_folder(folder.path, set); }), ExitCode::bad_input, folder.path.string(),
                "Dog: no image of this class is left, all are damaged, the first: ");
  fs::create_symlink("nowhere", folder / "cat" / "4.png");  // not damaged: it may be there another time
  check_refused(outcome_of([&] { open_image_folder(folder.path, set); }), ExitCode::io, folder.path.string(),
                "cat/4.png: cannot be opened");
}

TEST_CASE("folder: an image that vanishes or changes while the set is open") {
  const TemporaryFolder folder;
  write_classes(folder.path);
  const auto source = open_image_folder(folder.path);
  fs::resize_file(folder / "cat" / "10.pgm", 12);
  check_refused(outcome_of([&] { read_image(*source, 1); }), ExitCode::bad_input, folder.path.string(),
                "but the file has 12 bytes (sample 1)");
  fs::remove(folder / "cat" / "10.pgm");
  check_refused(outcome_of([&] { read_image(*source, 1); }), ExitCode::io, folder.path.string(), "(sample 1)");
  CHECK(read_image(*source, 2) == Bytes(2, 2));
}

TEST_CASE("folder: round trip of images of every kind; the order is by class") {
  for (const ImageFormat format : {ImageFormat::png, ImageFormat::pgm}) {
    for (const int64_t channels : {1, 2, 3, 4}) {
      if (format == ImageFormat::pgm && channels > 1) continue;
      if (format == ImageFormat::png && !can_read_png()) continue;
      const TemporaryFolder folder;
      const SampleInfo info = info_for(20, {17, 5, channels}, 12);
      write_all(*write_image_folder(folder / "a", info, format), info);
      CHECK(folder.names() == std::set<std::string>{"a"});
      const auto source = open_image_folder(folder / "a");
      CHECK(same_shape(source->info(), info));
      std::vector<int64_t> order(20);
      for (int64_t i = 0; i < 20; ++i) order[static_cast<size_t>(i)] = i;
      std::ranges::stable_sort(order, {}, [&](int64_t i) { return label_of(info, i); });
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t written = order[static_cast<size_t>(i)];
        CHECK(source->label(i) == label_of(info, written));
        CHECK(read_image(*source, i) == image_of(info, written));
      }
    }
  }
}

TEST_CASE("folder: nothing is overwritten, and not every format holds every number of channels") {
  const TemporaryFolder folder;
  CHECK(outcome_of([&] {
          write_image_folder(folder / "a", info_for(3, {1, 1, 3}), ImageFormat::pgm);
        }).code == ExitCode::usage);
  CHECK(outcome_of([&] {
          write_image_folder(folder / "a", info_for(3, {1, 1, 4}), ImageFormat::jpeg);
        }).code == ExitCode::usage);
  write_bytes(folder / "a" / "x", {1});
  check_refused(outcome_of([&] { write_image_folder(folder / "a", info_for(3), ImageFormat::pgm); }), ExitCode::io,
                (folder / "a").string(), "is there already");
  CHECK(folder.names() == std::set<std::string>{"a"});
}

}  // namespace
