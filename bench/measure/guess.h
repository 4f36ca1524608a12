// `profile kernels --guess`: asks of each kernel call of a step what it does to memory, before it says so.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "engine/observe.h"

namespace hs::bench::measure {

// While it is alive: what each kernel call on this thread made, and what was freed between it and the next one.
class MemoryLog : public Observer {
 public:
  MemoryLog() : Observer(Event::work | Event::storage, Watch::this_thread), attached_(*this) {}

  // A storage, by the shape in which a kernel first had it, and the op of that kernel.
  struct Stored {
    size_t bytes;
    std::string label;
  };
  struct Call {
    std::string label;
    std::vector<size_t> made, freed;  // indices in stored()
    int64_t bytes = 0;                // made less freed
  };
  const std::vector<Stored>& stored() const { return stored_; }
  const std::vector<Call>& calls() const { return calls_; }

  void work_begins(const DeviceWork& work) override;
  void work_ends(const DeviceWork& work, bool failed) override;
  void storage(Device device, const MemoryEvent& event, const MemoryStats& after) override;

 private:
  std::vector<Stored> stored_;
  std::map<const void*, size_t> live_;
  std::vector<Call> calls_;
  Call next_;  // what was made since the last call ended
  const DeviceWork* now_ = nullptr;
  const Attached attached_;
};

// Asks about the first `count` calls, on stdout, and reads answers until there are no more. Returns the score, for
// people.
std::string guess(const MemoryLog& log, size_t count, std::istream& answers);

}  // namespace hs::bench::measure
