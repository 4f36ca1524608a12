// The weights of 30 short trainings against tests/weights.lock, bit for bit: what a change of the structure must not
// move. Three, by the simplest kernels, are the same on every processor. Where a change means to move them:
// HALFSTEP_UPDATE_WEIGHTS=1 build/release/tests/test_bench_same_bits, and say why.
#include <gnu/libc-version.h>

#include <cstdlib>

#include "engine/cpu_features.h"
#include "source_dir.h"
#include "tests/support/bench_program.h"

namespace {

using namespace hs;
using namespace hs::test;

// With AVX2 and this C library: other vectors add in another order, and another exp() may round otherwise.
const std::vector<std::string> capped = {"HALFSTEP_ISA=avx2"};
std::string weights(const std::string& flags, const std::string& device, std::vector<std::string> variables = capped) {
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
  if (!update && !read_text(lock).starts_with(head + "\n")) {
    MESSAGE("skipped: " << lock << " is of another machine than this, " << head);
    return;
  }
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "etaoin shrdlu\n"[i * i % 97 % 14];
  std::ofstream(folder / "a.txt") << text;
  const std::string of_text = " --blocks 1 --context 16 --data " + (folder / "a.txt").string();
  const struct {
    std::string name, flags, simple;
  } nets[] = {{"mnist_cnn", " --data synthetic",
               "column_sum=simple conv2d_backward=naive conv2d_forward=naive dropout_mask=simple "
               "max_pool2d_backward=simple max_pool2d_forward=simple"},
              {"resnet8", " --data synthetic",
               "batch_norm2d_backward=simple batch_norm2d_forward=simple batch_norm2d_statistics=simple "
               "column_sum=simple conv2d_backward=naive conv2d_forward=naive"},
              {"char_gpt", of_text,
               "causal_attention_backward=naive causal_attention_forward=naive gelu_backward=simple "
               "gelu_forward=simple layer_norm_backward=simple layer_norm_forward=simple"}};
  std::string found = head + "\n";
  for (const auto& [name, flags_of, simple] : nets) {
    std::string kernels;
    std::istringstream each(simple +
                            " adam_step=simple gemm=naive softmax_cross_entropy_backward=simple "
                            "softmax_cross_entropy_forward=simple");
    for (std::string one; each >> one;) kernels += " --kernel " + one;
    const std::string simplest =
        weights("--model " + name + flags_of + " --train 8 --precision f32 --threads 2" + kernels, "cpu", {}) + "  " +
        name + " simplest kernels\n";
    CHECK_MESSAGE((update || contains(read_text(lock), simplest)), simplest);
    found += simplest;
    if (!cpu_features().avx2) continue;
    const std::string model = "--model " + name + flags_of + " --train 24";
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
  if (!cpu_features().avx2) return;
  if (update) std::ofstream(lock) << found;
  CHECK(found == read_text(lock));
}

}  // namespace
