#include "docs/exercises/21/exercise.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace exercise {
namespace {

// FNV-1a: changes with every bit of the bytes.
uint64_t checksum(const char* bytes, size_t size) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < size; ++i) sum = (sum ^ static_cast<unsigned char>(bytes[i])) * 1099511628211u;
  return sum;
}

struct Writer {
  std::string bytes;
  template <class T>
  void operator()(const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void operator()(const std::vector<T>& values) {
    (*this)(values.size());
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
};

struct Reader {  // of bytes whose checksum is right, so sizes can be believed
  const char* at;
  template <class T>
  void operator()(T& value) {
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
  }
  template <class T>
  void operator()(std::vector<T>& values) {
    size_t size = 0;
    (*this)(size);
    values.resize(size);
    if (size > 0) std::memcpy(values.data(), at, size * sizeof(T));
    at += size * sizeof(T);
  }
};

// One list of all members, for both directions: none can be written and not read.
template <class Visit, class State>
void visit_members(Visit& visit, State& training) {
  visit(training.weights);
  visit(training.momentum);
  visit(training.order);
  visit(training.position);
  visit(training.random);
  visit(training.best_loss);
}

}  // namespace

void save(const Training& training, const std::filesystem::path& path) {
  Writer writer;
  visit_members(writer, training);
  writer(checksum(writer.bytes.data(), writer.bytes.size()));
  const std::filesystem::path fresh = path.string() + ".new";
  std::ofstream file(fresh, std::ios::binary);
  file << writer.bytes;
  file.close();  // now, because the destructor would hide that the disk is full
  if (!file) throw std::runtime_error(fresh.string() + ": cannot be written; is there space, and may you write here?");
  std::filesystem::rename(fresh, path);  // throws filesystem_error, a runtime_error
}

Training load(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened; save a training first");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto damaged = [&] { return std::runtime_error(path.string() + ": damaged; use an older one"); };
  uint64_t expected = 0;
  if (bytes.size() < sizeof expected) throw damaged();
  const size_t size = bytes.size() - sizeof expected;
  std::memcpy(&expected, bytes.data() + size, sizeof expected);
  if (checksum(bytes.data(), size) != expected) throw damaged();
  Training training;
  Reader reader{bytes.data()};
  visit_members(reader, training);
  return training;
}

}  // namespace exercise
