// Stream capture and graphs. A node is a piece of work with the nodes it must come after; which those are follows from
// the stream order and from events, so that capture may fork into other streams and must join them again. A replay
// runs the nodes one after another, in the order of capture, or in a random one that the dependencies allow.
#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "internal.h"

struct CUgraphNode_st {
  hs::emulator::Work work;
  std::vector<int> after;
};
struct CUgraph_st {
  std::vector<CUgraphNode_st> nodes;
};
struct CUgraphExec_st {
  CUgraph_st graph;  // a copy: the graph may be destroyed before
};

namespace hs::emulator {

struct Capture {
  CUgraph_st* graph = nullptr;  // null once it has ended
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalid = false;
  std::map<cudaStream_t, std::vector<int>> last;  // per stream: what its next node comes after
};

namespace {

auto& captures = *new std::vector<std::unique_ptr<Capture>>;  // ended ones stay, for events that point to them
auto& graphs = *new std::set<CUgraph_st*>;
auto& executables = *new std::set<CUgraphExec_st*>;

void end(Capture& capture) {
  capture.last.clear();
  capture.graph = nullptr;
}

}  // namespace

Capture* capture_of(cudaStream_t stream) {
  for (auto& capture : captures) {
    if (capture->graph && capture->last.count(stream)) return capture.get();
  }
  return nullptr;
}

cudaError_t add_node(Capture* capture, cudaStream_t stream, Work work) {
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  capture->graph->nodes.push_back({std::move(work), capture->last[stream]});
  capture->last[stream] = {static_cast<int>(capture->graph->nodes.size()) - 1};
  return cudaSuccess;
}

std::vector<int> frontier(Capture* capture, cudaStream_t stream) { return capture->last[stream]; }

cudaError_t join(Capture* capture, cudaStream_t stream, const std::vector<int>& nodes) {
  if (!capture->graph) return cudaErrorCapturedEvent;  // that capture is over
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  Capture* own = capture_of(stream);
  if (own && own != capture) {
    own->invalid = capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  std::vector<int>& last = capture->last[stream];
  for (int node : nodes) {
    if (std::find(last.begin(), last.end(), node) == last.end()) last.push_back(node);
  }
  return cudaSuccess;
}

cudaError_t forbid_in_capture(cudaStream_t stream) {
  if (Capture* capture = capture_of(stream)) capture->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t forbid_in_any_capture() {
  cudaError_t error = cudaSuccess;
  for (auto& capture : captures) {
    if (!capture->graph) continue;
    capture->invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t unsafe_in_capture() {
  cudaError_t error = cudaSuccess;
  for (auto& capture : captures) {
    if (!capture->graph || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != std::this_thread::get_id()) continue;
    capture->invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

void forget_captures() {
  for (auto& capture : captures) {
    if (graphs.erase(capture->graph)) delete capture->graph;
    end(*capture);
  }
}

}  // namespace hs::emulator

using namespace hs::emulator;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api([&] {
    if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
    if (capture_of(stream)) return cudaErrorIllegalState;
    auto capture = std::make_unique<Capture>();
    capture->graph = *graphs.insert(new CUgraph_st).first;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->last[stream] = {};
    captures.push_back(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return api([&] {
    if (!is_live(stream) || !graph) return cudaErrorInvalidValue;
    *graph = nullptr;
    Capture* capture = capture_of(stream);
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != stream) {
      capture->invalid = true;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    // Every node must come before the end of the origin stream: what forked off has to be joined again.
    const std::vector<CUgraphNode_st>& nodes = capture->graph->nodes;
    std::vector<bool> joined(nodes.size());
    for (int node : capture->last[stream]) joined[static_cast<size_t>(node)] = true;
    for (size_t i = nodes.size(); i-- > 0;) {
      if (!joined[i]) continue;
      for (int before : nodes[i].after) joined[static_cast<size_t>(before)] = true;
    }
    const bool all = std::find(joined.begin(), joined.end(), false) == joined.end();
    const bool invalid = capture->invalid;
    if (all && !invalid) {
      *graph = capture->graph;
    } else {
      graphs.erase(capture->graph);
      delete capture->graph;
    }
    end(*capture);
    return invalid ? cudaErrorStreamCaptureInvalidated : all ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return api([&] {
    if (!is_live(stream) || !status) return cudaErrorInvalidValue;
    const Capture* capture = capture_of(stream);
    *status = !capture           ? cudaStreamCaptureStatusNone
              : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return api([&] {
    if (!graphs.count(graph) || !executable) return cudaErrorInvalidValue;
    *executable = *executables.insert(new CUgraphExec_st{*graph}).first;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return api([&] {
    if (!executables.count(executable)) return cudaErrorInvalidValue;
    if (!is_live(stream)) return cudaErrorInvalidResourceHandle;
    if (capture_of(stream)) return forbid_in_capture(stream);  // child graphs are not emulated
    const std::vector<CUgraphNode_st>& nodes = executable->graph.nodes;
    std::vector<bool> taken(nodes.size());
    for (size_t count = 0; count < nodes.size(); ++count) {
      std::vector<size_t> able;
      for (size_t i = 0; i < nodes.size() && (options().delay_streams || able.empty()); ++i) {
        const auto done = [&](int before) { return taken[static_cast<size_t>(before)]; };
        if (!taken[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(), done)) able.push_back(i);
      }
      const size_t next = able.size() == 1 ? able[0] : able[randomness()() % able.size()];
      taken[next] = true;
      if (const cudaError_t error = enqueue(stream, nodes[next].work)) return error;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api([&] {
    if (graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return api([&] {
    if (executables.erase(executable) == 0) return cudaErrorInvalidValue;
    delete executable;  // queued nodes hold copies of their work
    return cudaSuccess;
  });
}
