// The graph is what the model calls: one image runs through it with a spy on the kernel slots (engine/kernel.h), and
// each call becomes a node. So every model can be exported whose kernels are known here, and a model needs no code for
// it.
#include <cmath>
#include <map>

#include "engine/ambient.h"
#include "engine/check.h"
#include "engine/files/protobuf.h"
#include "kernels/batch_norm2d/batch_norm2d.h"
#include "kernels/causal_attention/causal_attention.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/global_average_pool2d/global_average_pool2d.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"
#include "models/files/model_file.h"

namespace hs {
namespace {

using namespace protobuf;

// Numbers of fields and enums are those of onnx.proto.
constexpr int64_t ir_version = 8, opset = 17, float_type = 1, int64_type = 7;

std::string attribute(std::string_view name, int64_t value) {
  return field(5, field(1, name) + number_field(3, value) + number_field(20, 2));
}
std::string float_attribute(std::string_view name, float value) {
  return field(5, field(1, name) + float_field(2, value) + number_field(20, 1));
}
std::string attribute(std::string_view name, const std::vector<int64_t>& values) {
  std::string message = field(1, name);
  for (const int64_t value : values) message += number_field(8, value);
  return field(5, message + number_field(20, 7));
}

std::string tensor_message(std::string_view name, const Tensor& values) {
  std::string message;
  for (int axis = 0; axis < values.shape().rank(); ++axis) message += number_field(1, values.shape()[axis]);
  const std::string_view bytes(static_cast<const char*>(values.raw_data()), values.bytes());
  return message + number_field(2, float_type) + field(8, name) + field(9, bytes);
}

// A scalar without dims, otherwise a vector.
std::string integers_message(std::string_view name, const std::vector<int64_t>& values, bool is_scalar) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return (is_scalar ? "" : number_field(1, std::ssize(values))) + number_field(2, int64_type) + field(8, name) +
         field(9, bytes);
}

// A ValueInfoProto; the first dimension has a name instead of a size.
std::string value_message(std::string_view name, std::initializer_list<int64_t> dims, int64_t type = float_type) {
  std::string shape = field(1, field(2, "N"));
  for (const int64_t dim : dims) shape += field(1, number_field(1, dim));
  return field(1, name) + field(2, field(1, number_field(1, type) + field(2, shape)));
}

// (KH*KW*C, OC) -> (OC, C, KH, KW)
Tensor to_onnx_layout(const Tensor& weight, const Conv2dSizes& s) {
  const std::vector<float> from = weight.to_vector<float>();
  std::vector<float> to(from.size());
  for (int64_t tap = 0; tap < s.KH * s.KW; ++tap) {
    for (int64_t c = 0; c < s.C; ++c) {
      for (int64_t oc = 0; oc < s.OC; ++oc) {
        to[static_cast<size_t>((oc * s.C + c) * s.KH * s.KW + tap)] =
            from[static_cast<size_t>((tap * s.C + c) * s.OC + oc)];
      }
    }
  }
  return Tensor::from(to, {s.OC, s.C, s.KH, s.KW});
}

class Graph {
 public:
  Graph(Module& model, const Tensor& input, InputKind kind) : is_text_(kind == InputKind::tokens) {
    for (const NamedTensor& parameter : parameters_of(model)) {
      values_[parameter.tensor.raw_data()] = {parameter.name, parameter.tensor, Layout::as_here, true};
    }
    set(input, is_text_ ? "tokens" : "images");
  }

  void add(const SpiedCall& one) {
    if (const auto* call = of(conv2d_forward, one)) return add_conv(*call);
    if (const auto* call = of(gemm, one)) return add_gemm(*call);
    if (const auto* call = of(max_pool2d_forward, one)) {
      const std::vector<int64_t> window = {call->window, call->window}, stride = {call->stride, call->stride};
      const std::string attributes = attribute("kernel_shape", window) + attribute("strides", stride);
      return set(call->y, node("MaxPool", {use(call->x, Layout::channels_first)}, attributes), Layout::channels_first);
    }
    if (const auto* call = of(batch_norm2d_forward, one)) return add_batch_norm(*call);
    if (const auto* call = of(global_average_pool2d_forward, one)) {
      const std::string y = node("GlobalAveragePool", {use(call->x, Layout::channels_first)});  // (N, C, 1, 1)
      return set(call->y, node("Flatten", {y}, attribute("axis", 1)));
    }
    if (const auto* call = of(relu_forward, one)) return add_like("Relu", call->x, {}, call->y);
    if (const auto* call = of(add_forward, one)) return add_like("Add", call->a, call->b, call->y);
    if (const auto* call = of(mul_forward, one)) return add_like("Mul", call->a, call->b, call->y);
    if (const auto* call = of(bias_add_forward, one)) {
      return set(call->y, node("Add", {use(call->x), use(call->bias)}), Layout::as_here);
    }
    if (const auto* call = of(scale_forward, one)) {
      return add_like("Mul", call->x, Tensor::from<float>({static_cast<float>(call->factor)}, {}), call->y);
    }
    if (const auto* call = of(embedding_forward, one)) return add_embedding(*call);
    if (const auto* call = of(layer_norm_forward, one)) return add_layer_norm(*call);
    if (const auto* call = of(gelu_forward, one)) return add_gelu(*call);
    if (const auto* call = of(causal_attention_forward, one)) return add_attention(*call);
    fail(ExitCode::usage, "onnx: the model calls the kernel {}, which has no counterpart in models/files/onnx.cpp",
         one.slot.name());
  }

  // A GraphProto.
  std::string message(const Tensor& logits, const ModelDescription& description) {
    nodes_ += field(1, field(1, use(logits)) + field(2, "logits") + field(3, "output") + field(4, "Identity"));
    const ModelSizes& sizes = description.sizes;
    const int64_t classes = logits.shape().back();
    const std::string input = is_text_ ? value_message("tokens", {sizes.context()}, int64_type)
                                       : value_message("images", {sizes.rows, sizes.columns, sizes.channels});
    const std::string output =
        is_text_ ? value_message("logits", {sizes.context(), classes}) : value_message("logits", {classes});
    return nodes_ + field(2, description.model) + initializers_ + field(11, input) + field(12, output);
  }

 private:
  // ONNX has images as (N, C, H, W). They are transposed only between a kernel that needs this and one that does not.
  enum class Layout { as_here, channels_first };
  struct Value {
    std::string name;
    Tensor tensor;  // keeps the memory, so that no other value gets its address
    Layout layout = Layout::as_here;
    bool is_parameter = false;  // that no initializer has been written for
  };

  template <class Call>
  static const Call* of(const Kernel<Call>& slot, const SpiedCall& one) {
    return &one.slot == &slot ? static_cast<const Call*>(one.call) : nullptr;
  }

  std::string node(std::string_view op, const std::vector<std::string>& inputs, const std::string& attributes = {}) {
    std::string message, name = fmt::format("{}_{}", op, ++count_);
    for (const std::string& input : inputs) message += field(1, input);
    nodes_ += field(1, message + field(2, name) + field(3, name) + field(4, op) + attributes);
    return name;
  }

  void set(const Tensor& tensor, const std::string& name, Layout layout = Layout::as_here) {
    values_[tensor.raw_data()] = {name, tensor.detach(), layout, false};
  }

  // The name of the tensor's value in this layout.
  std::string use(const Tensor& tensor, Layout layout = Layout::as_here) {
    const auto found = values_.find(tensor.raw_data());
    if (found == values_.end()) return constant(tensor);  // made outside of any kernel
    Value& value = found->second;
    if (std::exchange(value.is_parameter, false)) initializers_ += field(5, tensor_message(value.name, tensor));
    if (is_text_) return value.name;  // all are (N, T, columns), whatever the kernels take them for
    const bool is_image = value.tensor.shape().rank() == 4, is_flattened = value.tensor.shape() != tensor.shape();
    if (is_flattened) layout = Layout::as_here;
    std::string name = value.name;
    if (is_image && value.layout != layout) {
      const bool to_channels = layout == Layout::channels_first;
      name = node("Transpose", {name},
                  attribute("perm", to_channels ? std::vector<int64_t>{0, 3, 1, 2} : std::vector<int64_t>{0, 2, 3, 1}));
    }
    if (!is_flattened) return name;
    if (tensor.shape().rank() != 2 || tensor.shape()[0] != value.tensor.shape()[0]) {
      fail(ExitCode::usage, "onnx: a reshape from {} to {}, which has no counterpart in models/files/onnx.cpp",
           value.tensor.shape(), tensor.shape());
    }
    return node("Flatten", {name}, attribute("axis", 1));
  }

  Layout layout_of(const Tensor& tensor) const {
    const auto found = values_.find(tensor.raw_data());
    return found == values_.end() ? Layout::as_here : found->second.layout;
  }

  // Element by element, in whatever layout the first input has.
  void add_like(std::string_view op, const Tensor& a, const Tensor& b, const Tensor& y) {
    const Layout layout = layout_of(a);
    std::vector<std::string> inputs = {use(a, layout)};
    if (b.defined()) inputs.push_back(use(b, layout));
    set(y, node(op, inputs), layout);
  }

  void add_conv(const Conv2dForward& call) {
    const Conv2dSizes& s = call.sizes;
    Value& weight = values_.at(call.weight.raw_data());
    const std::string name = weight.name;
    if (std::exchange(weight.is_parameter, false)) {
      initializers_ += field(5, tensor_message(name, to_onnx_layout(call.weight, s)));
    }
    std::vector<std::string> inputs = {use(call.x, Layout::channels_first), name};
    if (call.bias.defined()) inputs.push_back(use(call.bias));
    const std::vector<int64_t> kernel = {s.KH, s.KW}, strides = {s.stride, s.stride}, pads(4, s.padding);
    const std::string attributes =
        attribute("kernel_shape", kernel) + attribute("strides", strides) + attribute("pads", pads);
    set(call.y, node("Conv", inputs, attributes), Layout::channels_first);
  }

  void add_batch_norm(const BatchNorm2dForward& call) {
    std::vector<std::string> inputs = {use(call.x, Layout::channels_first)};
    for (const Tensor* each : {&call.scale, &call.shift, &call.mean, &call.variance}) {
      inputs.push_back(use(*each));
    }
    const std::string attributes = float_attribute("epsilon", static_cast<float>(call.kind.eps));
    set(call.y, node("BatchNormalization", inputs, attributes), Layout::channels_first);
  }

  void add_gemm(const Gemm& call) {
    const GemmOptions& options = call.options;
    if (options.alpha != 1 || options.beta != 0 || options.epilogue == Epilogue::relu_backward) {
      fail(ExitCode::usage, "onnx: a product with alpha, beta or a mask has no counterpart in models/files/onnx.cpp");
    }
    if (is_text_) return add_product(call);
    std::vector<std::string> inputs = {use(call.a), use(call.b)};
    if (call.bias.defined()) inputs.push_back(use(call.bias));
    const std::string y =
        node("Gemm", inputs, attribute("transA", options.transpose_a) + attribute("transB", options.transpose_b));
    set(call.c, options.epilogue == Epilogue::relu ? node("Relu", {y}) : y);
  }

  // ---- of texts: values are (N, T, columns) ----

  std::string constant(const Tensor& values) {
    std::string name = fmt::format("constant_{}", ++count_);
    initializers_ += field(5, tensor_message(name, values));
    return name;
  }
  std::string number(double value) { return constant(Tensor::from<float>({static_cast<float>(value)}, {})); }
  std::string integers(const std::vector<int64_t>& values, bool is_scalar = false) {
    std::string name = fmt::format("constant_{}", ++count_);
    initializers_ += field(5, integers_message(name, values, is_scalar));
    return name;
  }
  std::string transpose(const std::string& x, const std::vector<int64_t>& order) {
    return node("Transpose", {x}, attribute("perm", order));
  }

  void add_product(const Gemm& call) {
    check(!call.options.transpose_a && call.options.epilogue == Epilogue::none && !call.bias.defined(),
          "onnx: a product of a text's model with a bias, or of a transposed input, has no counterpart");
    const std::string b = use(call.b);
    set(call.c, node("MatMul", {use(call.a), call.options.transpose_b ? transpose(b, {1, 0}) : b}));
  }

  void add_embedding(const EmbeddingForward& call) {
    const std::string rows = node("Gather", {use(call.table), use(call.indices)});
    set(call.y, call.positions.defined() ? node("Add", {rows, use(call.positions)}) : rows);
  }

  void add_layer_norm(const LayerNormForward& call) {
    check(call.epsilon == 1e-5, "onnx: layer_norm with epsilon {}, expected 1e-5, the standard's", call.epsilon);
    std::vector<std::string> inputs = {use(call.x), use(call.scale)};
    if (call.shift.defined()) inputs.push_back(use(call.shift));
    set(call.y, node("LayerNormalization", inputs));
  }

  // x s(2 u) with the logistic function s, as kernels/gelu/gelu.h has it: the standard has no Gelu before opset 20.
  void add_gelu(const GeluForward& call) {
    const std::string x = use(call.x), square = node("Mul", {x, x});
    const std::string factor = node("Add", {node("Mul", {square, number(gelu_cubic)}), number(gelu_linear)});
    set(call.y, node("Mul", {x, node("Sigmoid", {node("Mul", {x, factor})})}));
  }

  void add_attention(const CausalAttentionForward& call) {
    const AttentionSizes s(call.qkv, call.heads);
    const std::string split = node("Reshape", {use(call.qkv), integers({0, 0, 3, s.heads, s.D})});
    const std::string parts = transpose(split, {2, 0, 3, 1, 4});  // (3, N, heads, T, D)
    const auto part = [&](int64_t which) {
      return node("Gather", {parts, integers({which}, true)});  // along the first dimension
    };
    const std::string q = part(0), k = part(1), v = part(2);
    std::vector<float> later(static_cast<size_t>(s.T * s.T));
    for (int64_t i = 0; i < s.T; ++i) {
      for (int64_t j = i + 1; j < s.T; ++j) later[static_cast<size_t>(i * s.T + j)] = -INFINITY;
    }
    const std::string scores = node("MatMul", {q, transpose(k, {0, 1, 3, 2})});
    const std::string scaled = node("Mul", {scores, number(1 / std::sqrt(static_cast<double>(s.D)))});
    const std::string masked = node("Add", {scaled, constant(Tensor::from(later, {s.T, s.T}))});
    const std::string y = transpose(node("MatMul", {node("Softmax", {masked}), v}), {0, 2, 1, 3});
    set(call.y, node("Reshape", {y, integers({0, 0, s.C})}));
  }

  const bool is_text_;
  std::map<const void*, Value> values_;  // by the address of their elements
  std::string nodes_, initializers_;
  int count_ = 0;
};

}  // namespace

std::string to_onnx(Module& model, const ModelDescription& description) {
  const Inference scope;
  ambient().fuse = false;  // one kernel, one node
  const ModelSizes& sizes = description.sizes;
  const bool is_text = model.input_kind() == InputKind::tokens;
  const Tensor input = is_text ? Tensor::zeros({1, sizes.context()}, DType::i32)
                               : Tensor::zeros({1, sizes.rows, sizes.columns, sizes.channels}, DType::f32);
  Graph graph(model, input, model.input_kind());
  const KernelSpy spy = [&](const SpiedCall& call) -> const VariantBase& {
    const VariantBase& variant = call.again();
    graph.add(call);
    return variant;
  };
  const SpyScope every_call(&spy);
  const Tensor logits = model.forward(input);
  std::string message = number_field(1, ir_version) + field(2, "halfstep") +
                        field(7, graph.message(logits, description)) + field(8, number_field(2, opset));
  for (const auto& [key, text] : describe(description)) {
    if (key != "layout") message += field(14, field(1, key) + field(2, text));
  }
  return message;
}

}  // namespace hs
