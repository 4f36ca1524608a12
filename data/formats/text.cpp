#include "data/formats/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "data/io/memory_source.h"
#include "engine/check.h"
#include "engine/files/input_file.h"
#include "engine/printable.h"

namespace hs {
namespace {

constexpr std::string_view byte_order_mark = "\uFEFF";

// Adds to `remarks` why the symbols of a text that is not ASCII are bytes.
Vocabulary vocabulary_of(std::string_view text, std::vector<std::string>& remarks) {
  std::vector<bool> seen(0x110000);  // by code point
  std::set<std::string> symbols;     // in the order of bytes, which in UTF-8 is that of code points
  std::string reason;
  for (size_t at = 0; at < text.size() && reason.empty();) {
    const auto [bytes, code, is_utf8] = first_character(text.substr(at));
    if (!is_utf8) reason = fmt::format("byte {} is not UTF-8", at);
    if (!seen[code]) symbols.emplace(bytes);
    seen[code] = true;
    at += bytes.size();
  }
  if (std::ssize(symbols) > max_text_symbols && reason.empty()) {
    reason = fmt::format("{} different characters, more than {}", symbols.size(), max_text_symbols);
  }
  if (!reason.empty()) {
    remarks.push_back(reason + ": read as bytes");
    symbols.clear();
    seen.assign(256, false);
    for (const char byte : text) seen[static_cast<uint8_t>(byte)] = true;
    for (size_t byte = 0; byte < seen.size(); ++byte) {
      if (seen[byte]) symbols.emplace(1, static_cast<char>(byte));
    }
  }
  return {symbols.begin(), symbols.end()};
}

}  // namespace

std::unique_ptr<SampleSource> open_text(const std::filesystem::path& file, const SetIdentity& set, bool training,
                                        const TextOptions& options) {
  const int64_t context = options.context;
  check(context >= 1 && context <= largest_context, "open_text: a context of {}, expected 1 to {}", context,
        largest_context);
  const std::vector<uint8_t> bytes = read_file(file, max_text_bytes);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> remarks;
  if (text.starts_with(byte_order_mark)) {
    text.remove_prefix(byte_order_mark.size());
    remarks.emplace_back("the byte order mark at its beginning is left out");
  }
  const Vocabulary vocabulary = options.vocabulary.empty() ? vocabulary_of(text, remarks) : options.vocabulary;
  const EncodedText encoded = encode(text, vocabulary);
  if (const std::string unknown = encoded.left_out_text(vocabulary); !unknown.empty()) {
    if (!options.drops_unknown) {
      fail(ExitCode::bad_input, "{}: has {}; use a text without them, or leave them out{}", printable(file), unknown,
           options.how_to_drop);
    }
    remarks.push_back("left out " + unknown);
  }

  const std::vector<uint16_t>& all = encoded.symbols;
  const auto size = std::ssize(all);
  const int64_t border = size * 9 / 10;
  const int64_t begin = training ? 0 : border, symbols = training ? border : size - border;
  if (symbols < context + 1) {
    fail(ExitCode::bad_input,
         "{}: {} of its {} symbols are for {}, expected at least {}, a context of {} and the symbol after it; use a "
         "longer text or a smaller context",
         printable(file), symbols, size, training ? "training" : "the test", context + 1, context);
  }
  const int64_t stride = training ? std::max<int64_t>(1, context / 4) : context;
  const int64_t width = vocabulary.size() > 256 ? 2 : 1;  // bytes of a symbol's number
  std::vector<uint8_t> numbers;                           // up to the end of the last window
  std::vector<int32_t> labels;
  for (int64_t at = 0, end = context; end < symbols; end += stride) {
    for (; at <= end; ++at) {
      const uint16_t number = all[static_cast<size_t>(begin + at)];
      numbers.push_back(static_cast<uint8_t>(number));
      if (width == 2) numbers.push_back(static_cast<uint8_t>(number >> 8));
    }
    labels.push_back(all[static_cast<size_t>(begin + end)]);
  }
  SampleInfo info{{1, context + 1, width}, set.name, fmt::format("text file {}", printable(file))};
  info.classes = static_cast<int>(vocabulary.size());
  info.vocabulary = vocabulary;
  info.overlap = context / stride;
  if (training && !remarks.empty()) info.remark = fmt::format("{}: {}", printable(file), fmt::join(remarks, "; "));
  return std::make_unique<MemorySource>(std::move(info), std::move(numbers), std::move(labels), stride * width);
}

}  // namespace hs
