// The weights of 27 short trainings against tests/weights.lock, bit for bit: what a change of the structure must not
// move. Where a change means to move them: HALFSTEP_UPDATE_WEIGHTS=1 build/release/tests/test_bench_same_bits, and say
// why.
#include <gnu/libc-version.h>

#include <cstdlib>

#include "engine/cpu_features.h"
#include "source_dir.h"
#include "tests/support/bench_program.h"

namespace {

using namespace hs;
using namespace hs::test;

// As AVX2 and this C library compute it: other vectors add in another order, and another exp() may round otherwise.
std::string weights(const std::string& flags, const std::string& device) {
  std::vector<std::string> variables = {"HALFSTEP_ISA=avx2"};
  const TemporaryFolder libraries;
  if (device == "cuda") {
    std::filesystem::create_symlink(HALFSTEP_EMULATED_LIBRARY, libraries / "libhalfstep.so.0");
    variables.push_back("LD_LIBRARY_PATH=" + libraries.path.string());
  }
  const auto record = record_of("train --quiet --epochs 1 --batch 4 --test 1 --device " + device + " " + flags,
                                {.variables = variables});
  return record["rows"][0]["weights_sha256"].get<std::string>().substr(0, 16);
}

TEST_CASE("the weights of short trainings keep their bits, with one thread and with two") {
  const std::filesystem::path lock = std::filesystem::path(HALFSTEP_SOURCE_DIR) / "tests/weights.lock";
  const std::string head = std::string("AVX2, glibc ") + gnu_get_libc_version();
  const bool update = std::getenv("HALFSTEP_UPDATE_WEIGHTS") != nullptr;
  if (!cpu_features().avx2 || (!update && !read_text(lock).starts_with(head + "\n"))) {
    MESSAGE("skipped: " << lock << " is of another machine than this, " << head);
    return;
  }
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "etaoin shrdlu\n"[i * i % 97 % 14];
  std::ofstream(folder / "a.txt") << text;
  const std::string nets[] = {"mnist_cnn --data synthetic --train 24", "resnet8 --data synthetic --train 24",
                              "char_gpt --blocks 1 --context 16 --train 24 --data "};
  std::string found = head + "\n";
  for (const std::string& net : nets) {
    const std::string name = net.substr(0, net.find(' '));
    const std::string model = "--model " + net + (net.ends_with(' ') ? (folder / "a.txt").string() : "");
    for (const char* flags :
         {"--precision f32", "--precision f32 --accumulate 3", "--precision f32 --reduce tree", "--precision bf16",
          "--precision bf16 --accumulate 3", "--precision bf16 --checkpoint all", "--precision f16",
          "--precision f16 --accumulate 3"}) {
      const std::string one = weights(model + " --threads 1 " + flags, "cpu");
      CHECK_MESSAGE(weights(model + " --threads 2 " + flags, "cpu") == one, name << " " << flags);
      found += one + "  " + name + " " + flags + "\n";
    }
    found += weights(model + " --precision f16 --accumulate 3", "cuda") + "  " + name + " emulated\n";
  }
  if (update) std::ofstream(lock) << found;
  CHECK(found == read_text(lock));
}

}  // namespace
