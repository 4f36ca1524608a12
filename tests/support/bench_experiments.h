// A folder for tests of bench/experiment: a sheet, and stand-ins for the program and for Python, shell scripts that
// write what a test wants.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <set>

#include "tests/support/bench_program.h"
#include "tests/support/temporary_folder.h"

namespace hs::test {

// What `train` records of a run of two epochs, as far as it matters here.
inline nlohmann::json record_with(int seed, const std::string& precision, double seconds, double accuracy) {
  nlohmann::json record = nlohmann::json::parse(R"({"schema": "halfstep-bench-1",
    "environment": {"cpu": "C", "cores": 2, "commit": "abc", "compiler": "GCC 1"},
    "data": {"train": 64, "test": 16}, "config": {"epochs": 2, "batch": 16, "context": 10, "learning_rate": 0.1},
    "rows": [{"runs": [{"steps": 8, "epochs": [{"test_loss": 2.5}, {"test_loss": 1.5}]}]}]})");
  record["config"]["precision"] = precision;
  nlohmann::json &row = record["rows"][0], &run = row["runs"][0];
  run["seed"] = seed;
  for (nlohmann::json& epoch : run["epochs"]) epoch.update({{"seconds", seconds / 2}, {"test_accuracy", accuracy}});
  run["epochs"][0]["test_accuracy"] = accuracy / 2;
  row.update({{"seconds", seconds}, {"samples_per_second", 128 / seconds}, {"test_accuracy", accuracy}});
  row["peak_bytes"] = precision == "f32" ? 4 << 20 : 2 << 20;
  return record;
}

// A folder with sheets, stand-ins, records and a log of how the stand-ins were called.
struct Workshop {
  TemporaryFolder folder;
  std::filesystem::path records = folder / "records";

  Workshop() {
    std::filesystem::create_directories(folder / "sheets");
    write("sheets/s.json", R"({"title": "A title", "data": "set", "flags": {"epochs": 2, "train": 64, "test": 16},
      "seeds": 3, "target_accuracy": 0.5, "baseline": "base",
      "columns": ["seconds_per_epoch", "ratio seconds_per_epoch", "test_accuracy", "epochs_to_target",
                  "seconds_to_target", "tokens_per_second", "peak_mib", "ratio peak_mib", "test_loss", "step_ms"],
      "rows": [{"name": "base", "flags": {"precision": "f32", "lr": 0.1}},
               {"name": "half", "like": "base", "flags": {"precision": "bf16"}},
               {"name": "peer", "engine": "torch", "against": "half", "flags": {"channels-last": true}}],
      "claims": [{"row": "half", "column": "ratio seconds_per_epoch", "article": "3 times"}]})");
    stand_in("program", "");
    stand_in("python", "");
  }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder / name) << text; }
  // `body` comes before it writes its record; it sees $seed, $precision and $file.
  void stand_in(const std::string& name, const std::string& body) const {
    const std::string record = record_with(1000, "TYPE", 0.25, 0.5).dump(), here = folder.path.string();
    write(name, fmt::format(R"(#!/bin/sh
here='{}'
if [ "$2" = --version ]; then [ ! -e "$here/no_torch" ] || {{ echo 'torch_models: none here' >&2; exit 7; }}; exit 0; fi
[ {} = program ] || shift
echo "{} $*" >>"$here/log"
precision=f32
while [ $# -gt 0 ]; do
  case $1 in
    --seed) seed=$2 ;;
    --precision) precision=$2 ;;
    --json) file=$2 ;;
  esac
  shift
done
{}
sed "s/1000/$seed/; s/TYPE/$precision/" >"$file" <<'END'
{}
END
)",
                            here, name, name, body, record));
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }

  std::string flags() const {
    const std::string at = folder.path.string();
    return fmt::format("--sheets {0}/sheets --out {0}/records --program {0}/program --python {0}/python ", at);
  }
  Ended run(const std::string& words, const Surroundings& around = {}) const {
    return run_bench_line("experiment " + flags() + words, around);
  }
  // The names of the rows and seeds that ran, in order.
  std::vector<std::string> ran() const {
    std::vector<std::string> runs;
    for (const std::string& line : lines_of(read_text(folder / "log"))) {
      const size_t slash = line.rfind('/');
      runs.push_back(line.substr(slash + 1, line.rfind(".json.part") - slash - 1));
    }
    std::filesystem::remove(folder / "log");
    return runs;
  }
  std::set<std::string> recorded() const {
    std::set<std::string> names;
    if (!std::filesystem::exists(records / "s")) return names;
    for (const auto& entry : std::filesystem::directory_iterator(records / "s"))
      names.insert(entry.path().filename().string());
    return names;
  }
  void record(const std::string& row, int seed, const nlohmann::json& record) const {
    std::filesystem::create_directories(records / "s");
    std::ofstream(records / "s" / fmt::format("{}-seed{}.json", row, seed)) << record.dump();
  }
};

inline void check_refused(const Ended& ended, int code, const std::string& part) {
  CAPTURE(ended.err);
  CAPTURE(part);
  CHECK(ended.code == code);
  CHECK(lines_of(ended.err).size() == 1);
  CHECK(ended.err.starts_with("experiment: "));
  CHECK(contains(ended.err, part));
}

}  // namespace hs::test
