#include "engine/captured_work.h"

#include "engine/check.h"
#include "engine/observe.h"

namespace hs {
CapturedWork::CapturedWork(Device device)
    : device_(device), runtime_(runtime(device)), pool_(make_memory_pool(device)) {
  if (device == Device::cpu) fail(ExitCode::usage, "graph on: the cpu captures no graphs; switch it off");
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
    const Range range("capture");
    runtime_.begin_capture();
    try {
      work();
    } catch (...) {
      runtime_.end_capture(false);
      throw;
    }
    graph_ = runtime_.end_capture(true);
  }
  WorkRange range({device_, Stream::compute, "graph"});
  runtime_.replay(graph_);
  range.end();
}

}  // namespace hs
