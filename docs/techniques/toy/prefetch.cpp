// Prefetching: a thread loads the next batches while the loop computes on this one.
//
// Alone, a step costs load + compute; with a thread ahead it costs the longer of the two. A bounded queue of slots is
// all that the two sides share: the loader waits for a free slot, the loop for a full one. The same rule as arithmetic:
//   loaded_i = max(the first worker that is free, end_{i-1-depth}) + load_i     its slot is free since that step's end
//   end_i    = max(end_{i-1}, loaded_i) + compute
// Depth is for what is uneven: if loads take as long as steps on average, with a spread of s, the loop waits for about
// s^2 / (2 (depth - 0.4) compute) in each step, where loads are spread evenly from 0 to twice that.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Queue {  // two slots, in the order of the batches
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<int> full;

  void put(int batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return full.size() < 2; });
    full.push_back(batch);
    changed.notify_all();
  }
  int take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !full.empty(); });
    const int batch = full.front();
    full.pop_front();
    changed.notify_all();
    return batch;
  }
};

// For --show: a column is 400 microseconds, the digit is the batch.
void draw(std::string& row, double from, double to, size_t batch) {
  row.resize(static_cast<size_t>(from / 400), ' ');
  row.resize(static_cast<size_t>(to / 400), static_cast<char>('0' + batch));
}

// The end of the last step. depth 0: batch i is loaded when the loop asks for it.
double end_of(const std::vector<double>& load, double compute, size_t depth, size_t workers,
              std::vector<std::string>* rows = nullptr) {
  std::vector<double> end, free(workers);
  for (size_t i = 0; i < load.size(); ++i) {
    auto worker = std::min_element(free.begin(), free.end());
    const double asked = i > depth ? end[i - 1 - depth] : 0;  // when next() was called for batch i - depth
    *worker = std::max(*worker, asked) + load[i];
    end.push_back(std::max(i > 0 ? end.back() : 0, *worker) + compute);
    if (!rows) continue;
    draw(rows->at(static_cast<size_t>(worker - free.begin())), *worker - load[i], *worker, i);
    draw(rows->back(), end.back() - compute, end.back(), i);
  }
  return end.back();
}

// The wait per step if a load takes 0 to 2 * compute, at random: mean compute, variance compute^2 / 3.
double stall(double compute, size_t depth) {
  std::vector<double> load(200000);
  uint32_t random = 1;
  for (double& time : load) time = 2 * compute * ((random = random * 1664525 + 1013904223) * 0x1p-32);
  return end_of(load, compute, depth, 1) / static_cast<double>(load.size()) - compute;
}

// Loads and computes by sleeping. Returns whether the batches came in order.
bool overlapped(int count, std::chrono::microseconds load, std::chrono::microseconds compute) {
  Queue queue;
  std::thread loader([&] {
    for (int batch = 0; batch < count; ++batch) {
      std::this_thread::sleep_for(load);
      queue.put(batch);
    }
  });
  bool in_order = true;
  for (int step = 0; step < count; ++step) {
    in_order = queue.take() == step && in_order;
    std::this_thread::sleep_for(compute);
  }
  loader.join();
  return in_order;
}

void show(const std::vector<double>& load, double compute, size_t depth, size_t workers) {
  std::vector<std::string> rows(workers + 1);
  end_of(load, compute, depth, workers, &rows);
  for (const std::string& row : rows) std::printf("%s  %s\n", &row == &rows.back() ? "step" : "load", row.c_str());
}

}  // namespace

int main(int argc, char**) {
  const std::vector<double> load(8, 2800);  // microseconds
  if (argc > 1) {                           // --show
    show(load, 1800, 0, 1);
    show(load, 1800, 1, 1);
    show(load, 1800, 4, 2);
  }
  const double alone = end_of(load, 1800, 0, 1), thread = end_of(load, 1800, 1, 1), two = end_of(load, 1800, 4, 2);
  std::printf("8 batches, 2800 us to load and 1800 to compute: %g us, a thread ahead %g, two threads %g\n", alone,
              thread, two);
  const auto start = std::chrono::steady_clock::now();
  bool works = overlapped(8, std::chrono::microseconds(2800), std::chrono::microseconds(1800));
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  std::printf("with a thread, and sleeping: %.0f us on this machine\n", taken.count());
  for (const int depth : {2, 4, 8, 16}) {
    const double waited = stall(3, static_cast<size_t>(depth)), derived = 3 / (2 * (depth - 0.4) * 3);  // s^2 = 3
    std::printf("loads of 0 to 6 ms, steps of 3, depth %d: waits %.3f ms, derived %.3f\n", depth, waited, derived);
    works = works && std::abs(waited / derived - 1) < 0.05;
  }
  return works && alone == 8 * (2800 + 1800) && thread == 8 * 2800 + 1800 && two == 2800 + 8 * 1800 ? 0 : 1;
}
