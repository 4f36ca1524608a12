// Calls of the operating system that fail when a test wants it: this program's, or those of a program that preloads it,
// come here before the C library's. One file of a program includes it, and defines fails().
#pragma once

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>

namespace {

// Whether this call of the function fails, with errno.
bool fails(const char* name);

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  static const auto call = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return fails("pread") ? -1 : call(file, bytes, size, offset);
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static const auto call = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  // The first half has been written when a disk is full.
  if (fails("pwrite")) return call(file, bytes, size / 2, offset) < 0 ? -1 : (errno = ENOSPC, -1);
  return call(file, bytes, size, offset);
}
int fsync(int file) {
  static const auto call = next<int (*)(int)>("fsync");
  return fails("fsync") ? -1 : call(file);
}
int close(int file) {
  static const auto call = next<int (*)(int)>("close");
  const bool failed = fails("close");
  const int result = call(file);
  return failed ? (errno = EIO, -1) : result;
}
int rename(const char* from, const char* to) noexcept {
  static const auto call = next<int (*)(const char*, const char*)>("rename");
  return fails("rename") ? -1 : call(from, to);
}
int flock(int file, int operation) noexcept {
  static const auto call = next<int (*)(int, int)>("flock");
  return fails("flock") ? (errno = ENOLCK, -1) : call(file, operation);
}
int ftruncate(int file, off_t size) noexcept {
  static const auto call = next<int (*)(int, off_t)>("ftruncate");
  return fails("ftruncate") ? -1 : call(file, size);
}
}
