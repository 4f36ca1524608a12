#include "engine/captured_work.h"

#include "engine/check.h"

namespace hs {

CapturedWork::CapturedWork(Device device) : runtime_(runtime(device)), pool_(make_memory_pool(device)) {
  if (device == Device::cpu) fail(ExitCode::usage, "--graph on: the cpu captures no graphs; use --graph off");
}

CapturedWork::~CapturedWork() {
  if (graph_) runtime_.destroy_graph(graph_);
}

void CapturedWork::run(const std::function<void()>& work) {
  if (!graph_) {
    const PoolScope scope(pool_);
    if (!has_run_) {
      work();
      has_run_ = true;
      return;
    }
    runtime_.begin_capture();
    try {
      work();
    } catch (...) {
      runtime_.end_capture(false);
      throw;
    }
    graph_ = runtime_.end_capture(true);
  }
  runtime_.replay(graph_);
}

}  // namespace hs
