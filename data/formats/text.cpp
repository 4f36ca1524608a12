#include "data/formats/text.h"

#include <algorithm>
#include <array>
#include <vector>

#include "data/io/memory_source.h"
#include "engine/check.h"
#include "engine/files/input_file.h"
#include "engine/printable.h"

namespace hs {
namespace {

// The distinct bytes, sorted.
std::string vocabulary_of(const std::vector<uint8_t>& bytes) {
  std::array<bool, 256> seen{};
  for (const uint8_t byte : bytes) seen[byte] = true;
  std::string vocabulary;
  for (size_t byte = 0; byte < seen.size(); ++byte) {
    if (seen[byte]) vocabulary.push_back(static_cast<char>(byte));
  }
  return vocabulary;
}

void check_known(const std::filesystem::path& file, const std::vector<uint8_t>& bytes, const std::string& vocabulary) {
  std::array<bool, 256> known{};
  for (const char byte : vocabulary) known[static_cast<uint8_t>(byte)] = true;
  const auto unknown = std::ranges::find_if(bytes, [&](uint8_t byte) { return !known[byte]; });
  if (unknown == bytes.end()) return;
  fail(ExitCode::bad_input, "{}: byte {} is {}, which is none of the model's {} symbols; use a text of these symbols",
       printable(file), unknown - bytes.begin(), printable_text(std::string(1, static_cast<char>(*unknown))),
       vocabulary.size());
}

}  // namespace

std::unique_ptr<SampleSource> open_text(const std::filesystem::path& file, const SetIdentity& set, bool training,
                                        int64_t context, const std::string& given_vocabulary) {
  check(context >= 1 && context <= largest_context, "open_text: a context of {}, expected 1 to {}", context,
        largest_context);
  const std::vector<uint8_t> bytes = read_file(file, max_text_bytes);
  const std::string vocabulary = given_vocabulary.empty() ? vocabulary_of(bytes) : given_vocabulary;
  check_known(file, bytes, vocabulary);
  std::array<uint8_t, 256> number{};
  for (size_t i = 0; i < vocabulary.size(); ++i) number[static_cast<uint8_t>(vocabulary[i])] = static_cast<uint8_t>(i);

  const auto size = std::ssize(bytes);
  const int64_t border = size * 9 / 10;
  const int64_t begin = training ? 0 : border, symbols = training ? border : size - border;
  if (symbols < context + 1) {
    fail(ExitCode::bad_input,
         "{}: {} of its {} bytes are for {}, expected at least {}, a context of {} and the byte after it; use a longer "
         "text or a smaller context",
         printable(file), symbols, size, training ? "training" : "the test", context + 1, context);
  }
  const int64_t stride = training ? std::max<int64_t>(1, context / 4) : context;
  std::vector<uint8_t> numbers;  // up to the end of the last window
  std::vector<int32_t> labels;
  for (int64_t at = 0, end = context; end < symbols; end += stride) {
    for (; at <= end; ++at) numbers.push_back(number[bytes[static_cast<size_t>(begin + at)]]);
    labels.push_back(numbers.back());
  }
  SampleInfo info{{1, context + 1, 1}, set.name, fmt::format("text file {}", printable(file))};
  info.classes = static_cast<int>(vocabulary.size());
  info.vocabulary = vocabulary;
  info.overlap = context / stride;
  return std::make_unique<MemorySource>(std::move(info), std::move(numbers), std::move(labels), stride);
}

}  // namespace hs
