#include "data/places.h"

#include <cstdlib>

#include "engine/check.h"
#include "engine/files/input_file.h"

namespace hs {

namespace fs = std::filesystem;

std::vector<fs::path> usual_places(const std::string& name) {
  std::vector<fs::path> places;
  const auto add = [&](const char* variable, const fs::path& below) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') places.push_back(fs::path(value) / below);
  };
  add("HALFSTEP_DATA", name);
  add("HOME", fs::path(".cache/halfstep") / name);
  return places;
}

std::string usual_places_text(const std::string& name) {
  std::string text;
  for (const fs::path& place : usual_places(name)) text += (text.empty() ? "" : " and ") + printable(place);
  return text.empty() ? "any place (HALFSTEP_DATA and HOME are not set)" : text;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) {
    fail(ExitCode::io, "{}: cannot be looked at: {}", printable(path), error.message());
  }
  return status.type() != fs::file_type::not_found;
}

IdxPlace look_for_idx(const fs::path& folder) {
  constexpr std::array<const char*, 4> names = {"train-images{}idx3-ubyte", "train-labels{}idx1-ubyte",
                                                "t10k-images{}idx3-ubyte", "t10k-labels{}idx1-ubyte"};
  IdxPlace place{folder, {}, {}};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto spelled = [&](const char* separator) { return fmt::format(fmt::runtime(names[i]), separator); };
    place.names[i] = spelled("-");
    for (const std::string& name : {spelled("-"), spelled("."), spelled("-") + ".gz", spelled(".") + ".gz"}) {
      if (place.files[i].empty() && is_there(folder / name)) place.files[i] = folder / name;
    }
  }
  return place;
}

}  // namespace hs
