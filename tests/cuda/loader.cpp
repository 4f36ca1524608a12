// The loader's event protocol on the CUDA device: batches are used by kernels without the host ever waiting, on streams
// that run late and in any order that the events allow (the emulator's), so that a buffer used too early is a wrong
// sample.
#include <doctest/doctest.h>

#include "tests/support/emulated.h"
#include "tests/support/loader_sets.h"

namespace hs::test {
namespace {

// Batches are copied behind each other on the compute stream, and only the end is looked at: wrong batches of
// `batches`.
int wrong_batches(Loader& loader, const SampleInfo& info, const LoaderOptions& options, int batches) {
  const int64_t image_bytes = options.batch * info.image_bytes();
  Tensor images = Tensor::zeros({batches * image_bytes}, DType::u8, Device::cuda);
  Tensor labels = Tensor::zeros({batches * options.batch}, DType::i32, Device::cuda);
  Tensor samples = labels.clone(), epochs = Tensor::zeros({batches}, DType::i32, Device::cuda);
  std::vector<HostBatch> expected;
  for (int64_t i = 0; i < batches; ++i) {
    expected.push_back(expected_batch(info, loader.epoch(), loader.position(), options));
    const Batch batch = loader.next();
    images.slice(i * image_bytes, batch.images.shape()).copy_from(batch.images);
    labels.slice(i * options.batch, batch.labels.shape()).copy_from(batch.labels);
    samples.slice(i * options.batch, batch.samples.shape()).copy_from(batch.samples);
    epochs.slice(i, {}).copy_from(batch.epoch);
  }
  int wrong = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const HostBatch& want = expected[static_cast<size_t>(i)];
    const Shape some{static_cast<int64_t>(want.labels.size())};
    const Shape bytes{static_cast<int64_t>(want.images.size())};
    const HostBatch got{images.slice(i * image_bytes, bytes).to_vector<uint8_t>(),
                        labels.slice(i * options.batch, some).to_vector<int32_t>(),
                        samples.slice(i * options.batch, some).to_vector<int32_t>(),
                        static_cast<int64_t>(epochs.slice(i, {}).item())};
    wrong += got != want;
  }
  return wrong;
}

}  // namespace

TEST_CASE("no kernel sees a wrong sample, however late the streams are") {
  const SampleInfo info = info_for(23, {4, 3, 1});
  const TestSource source(info);
  uint64_t seed = 0;
  for_each_delay(10, [&] {
    ++seed;
    for (const CacheMode cache : {CacheMode::none, CacheMode::ram, CacheMode::device}) {
      for (const int64_t workers : {0, 1, 3}) {
        for (const int64_t prefetch : {0, 1, 2}) {
          for (const bool pin : {true, false}) {
            CAPTURE(static_cast<int>(cache));
            CAPTURE(workers);
            CAPTURE(prefetch);
            CAPTURE(pin);
            const LoaderOptions options{.batch = 4,
                                        .seed = seed,
                                        .device = Device::cuda,
                                        .prefetch = prefetch,
                                        .workers = workers,
                                        .cache = cache,
                                        .pin = pin};
            Loader loader(source, options);
            CHECK(wrong_batches(loader, info, options, 18) == 0);
          }
        }
      }
    }
  });
}

TEST_CASE("destroyed, or sent elsewhere, while copies and kernels are under way") {
  const SampleInfo info = info_for(37, {4, 4, 1});
  const TestSource source(info);
  for_each_delay(1, [&] {
    for (int i = 0; i < 150; ++i) {
      const LoaderOptions options{
          .batch = 5, .device = Device::cuda, .prefetch = i % 4, .workers = i % 3, .pin = i % 2 == 0};
      Loader loader(source, options);
      CHECK(wrong_batches(loader, info, options, i % 5) == 0);
      loader.seek(i, i % 37);
      CHECK(wrong_batches(loader, info, options, i % 3) == 0);
    }
    runtime(Device::cuda).synchronize();
  });
}

TEST_CASE("an upload does not overwrite a freed block that queued kernels still read") {
  set_caching(true);
  {
    const SampleInfo info = info_for(8, {4, 3, 1});
    const TestSource source(info);
    for_each_delay(20, [&] {
      const std::vector<uint8_t> sevens(304, 7);  // as many bytes as a slot has
      Tensor old = Tensor::from(sevens, {304}).to(Device::cuda), result = old.empty_like();
      for (int i = 0; i < 5; ++i) result.copy_from(old);
      const void* block = old.raw_data();
      old = {};
      Loader loader(source, {.batch = 4, .device = Device::cuda, .workers = 0});
      const Batch batch = loader.next();
      CHECK(batch.labels.raw_data() == block);
      CHECK(result.to_vector<uint8_t>() == sevens);
    });
  }
  release_cached_memory(Device::cuda);
  release_cached_memory(Device::cpu);
  set_caching(false);
}

}  // namespace hs::test
