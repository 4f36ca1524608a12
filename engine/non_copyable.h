// The base of classes that are neither copied nor moved: another object refers to them, or their end does something.
#pragma once

namespace hs {

class NonCopyable {  // see the head of this file
 public:
  NonCopyable(const NonCopyable&) = delete;
  NonCopyable& operator=(const NonCopyable&) = delete;

 protected:
  NonCopyable() = default;
  ~NonCopyable() = default;
};

}  // namespace hs
