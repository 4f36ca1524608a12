// ONNX: a model as a graph that other runtimes execute (onnx.ai, docs/model_files.md).
//
// The graph is what the model calls: one image runs through it with a spy on the kernel slots (engine/kernel.h), and
// each call becomes a node. So every model can be exported whose kernels are known here, and a model needs no code for
// it.
#pragma once

#include <string>

#include "models/model_file.h"

namespace hs {

// The file's bytes. Input "images": f32 (N, rows, columns, channels), normalised as for the model itself; output
// "logits": f32 (N, classes); N is free. Of a model of a text: input "tokens": i64 (N, context), output "logits": f32
// (N, context, classes). Dropout is left out. The description is in the file's metadata. Throws Error (usage) that
// names a kernel or a shape that has no counterpart here.
std::string to_onnx(Module& model, const ModelDescription& description);

}  // namespace hs
