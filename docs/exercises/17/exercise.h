// Exercise 17, of docs/chapters/05_data_pipeline.md: a bounded queue that several workers fill in any order and one
// thread empties in order. Edit exercise.cpp beside this file, then run tests/exercise 17.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>

namespace exercise {

using Item = std::string;

// Delivers item 0, 1, 2, ... in this order, whichever worker is finished first. Each index is put or failed exactly
// once. All functions may be called from any thread, and none of them uses CPU time while it waits.
class OrderedQueue {
 public:
  explicit OrderedQueue(int64_t slots);  // slots > 0
  ~OrderedQueue();                       // no thread may be in a call, or make one

  // Waits as long as index >= taken + slots, where `taken` counts the items that take() has delivered: an item that
  // will be delivered soon always finds room. Returns false, without keeping the item, if the queue is closed.
  bool put(int64_t index, Item item);

  // As put(), for an item that could not be made.
  bool fail(int64_t index, const std::exception_ptr& error);

  // Waits for the next item, and returns it. If it has failed, throws its error: the items before it have been
  // delivered, and the next call delivers the one after it. Returns nothing if the queue is closed.
  std::optional<Item> take();

  // Ends all waiting, now and later. What is still in the queue is dropped. May be called more than once.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace exercise
