// What `halfstep-bench loader` measures with: a loader that is timed step by step, a source as slow as wanted, and
// timelines of both.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/loader/loader.h"
#include "data/sample_source.h"

namespace hs::bench::measure {

// A part of a timeline: a batch that is read, or computed with.
struct LoaderSpan {
  std::string lane;  // "load 1", "load 2", "step"
  int64_t batch = 0;
  double begin = 0, end = 0;  // milliseconds from the first one
};

// Notes who did what when. Thread safe.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  // Work on a batch by the calling thread; what follows on the same batch in the same lane prolongs its span.
  void add_load(int64_t batch, Clock::time_point begin, Clock::time_point end);
  void add_step(int64_t batch, Clock::time_point begin, Clock::time_point end);

  // In the order of lanes and batches.
  std::vector<LoaderSpan> spans() const;

 private:
  void add(const std::string& lane, int64_t batch, Clock::time_point begin, Clock::time_point end);

  mutable std::mutex mutex_;
  std::map<std::thread::id, std::string> lanes_;
  std::map<std::pair<std::string, int64_t>, std::pair<Clock::time_point, Clock::time_point>> spans_;
};

// One line for each lane; a column is an equal part of the time, and the last digit of a batch's number fills its
// spans.
std::string draw(const std::vector<LoaderSpan>& spans, int width);

// A view of a source that sleeps before each read and notes it in a timeline, as part of batch index / batch.
class ThrottledSource : public SampleSource {
 public:
  ThrottledSource(const SampleSource& source, std::chrono::microseconds delay, int64_t batch, Timeline* timeline)
      : SampleSource(source.info()), source_(source), delay_(delay), batch_(batch), timeline_(timeline) {}

 private:
  void read_sample(int64_t index, uint8_t* image) const override;
  int32_t sample_label(int64_t index) const override { return source_.label(index); }

  const SampleSource& source_;
  const std::chrono::microseconds delay_;
  const int64_t batch_;
  Timeline* const timeline_;
};

// How a step's computing is played.
enum class Compute {
  spin,   // a core is busy, as with training on the CPU
  sleep,  // it is not, as with training on a GPU
};

struct LoaderRun {
  int64_t steps = 0, samples = 0;
  double seconds = 0;
  double wait = 0;  // of `seconds`, in next()

  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  double per_step(double part) const { return part / static_cast<double>(steps); }
  double stall_share() const { return wait / seconds; }
};

// Takes `steps` batches from the loader, and computes that long between two batches.
LoaderRun run_loader(Loader& loader, int64_t steps, Compute how, std::chrono::microseconds compute,
                     Timeline* timeline = nullptr);

}  // namespace hs::bench::measure
