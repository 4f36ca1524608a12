// Files that other programs open, and theirs: by the Python packages that they are meant for, where these are installed
// (tests/models/interchange.py).
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/ambient.h"
#include "engine/files/npy.h"
#include "engine/random.h"
#include "kernels/cast/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/examples/op_table.h"
#include "kernels/relu/relu.h"
#include "models/files/model_file.h"
#include "tests/support/python.h"
#include "tests/support/random_tensor.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace {

using namespace hs;
using namespace hs::test;

std::string quoted(const std::filesystem::path& path) { return " '" + path.string() + "'"; }

std::string hex_of(const Tensor& tensor) {
  std::string text;
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw_data());
  for (size_t i = 0; i < tensor.bytes(); ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

TEST_CASE("safetensors: the package reads what is written here, and the other way round") {
  if (!python_has("safetensors numpy")) return;
  const TemporaryFolder folder;
  const std::vector<NamedTensor> tensors = {
      {"a", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})}, {"half", Tensor::from<Half>({Half(1), Half(2)}, {2})},
      {"bf", Tensor::from<BFloat16>({BFloat16(1)}, {1, 1})},  {"double", Tensor::from<double>({1e300}, {1})},
      {"int", Tensor::from<int32_t>({-1, 2, 3}, {3})},        {"byte \"\u00e9\"", Tensor::from<uint8_t>({1, 255}, {2})},
      {"scalar", Tensor::from<float>({std::nanf("")}, {})},   {"empty", Tensor::zeros({0, 3}, DType::f32)}};
  const Metadata metadata = {{"model", "mlp"}, {"note", "two\nlines, \"quoted\", \u00e9"}};
  write_safetensors(folder / "a", tensors, metadata);
  const ChildResult result = run_python("tensors" + quoted(folder / "a") + quoted(folder / "b"));
  REQUIRE(result.status == 0);
  const auto seen = nlohmann::json::parse(result.output);
  for (const auto& [key, text] : metadata) CHECK(seen.at("metadata").at(key) == text);
  CHECK(seen.at("tensors").size() == tensors.size());
  const SafetensorsFile again(folder / "b");
  CHECK(again.metadata() == Metadata{{"by", "the package"}});
  CHECK(again.entries().size() == tensors.size() - 1);
  for (const auto& [name, tensor] : tensors) {
    CAPTURE(name);
    const auto& entry = seen.at("tensors").at(name);
    std::vector<int64_t> shape;
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) shape.push_back(tensor.shape()[axis]);
    CHECK(entry.at(1) == shape);
    CHECK(entry.at(2) == hex_of(tensor));
    if (tensor.dtype() == DType::bf16) continue;
    REQUIRE(again.find(name) != nullptr);
    const Tensor read = again.read(*again.find(name));
    CHECK(read.dtype() == tensor.dtype());
    CHECK(read.shape() == tensor.shape());
    CHECK(hex_of(read) == hex_of(tensor));
  }
}

struct Case {
  std::string model;
  ModelSizes sizes;
  std::filesystem::path file(const TemporaryFolder& folder, const char* what) const {
    return folder / fmt::format("{}-{}-{}", model, sizes.channels, what);
  }
  bool is_text() const { return sizes.input == InputKind::tokens; }
  ModelDescription description() const {
    return {model, sizes, is_text() ? PixelScale{0, 1} : PixelScale{0.1307f, 0.3081f}, "a set",
            is_text() ? Vocabulary{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} : Vocabulary()};
  }
};

std::vector<Case> models() {
  std::vector<Case> all = {{"char_gpt", {1, 17, 1, 11, 2, InputKind::tokens, 32, 4}}};
  for (const std::string& name : model_names(InputKind::images)) {
    for (const int64_t channels : {1, 3}) all.push_back({name, {.channels = channels, .blocks = 3}});
  }
  return all;
}

// Writes images, or tokens, to `path` as the tensor x.
Tensor write_input(const std::filesystem::path& path, const ModelSizes& sizes) {
  Tensor x;
  if (sizes.input == InputKind::images) {
    x = random_tensor({5, sizes.rows, sizes.columns, sizes.channels}, 1, -0.5, 2.5);
  } else {
    std::vector<int32_t> tokens;
    for (uint64_t i = 0; i < 3 * 16; ++i) {
      tokens.push_back(static_cast<int32_t>(random_bits({5, RandomPurpose::synthetic, 1, 2, 0}, i) % 11));
    }
    x = Tensor::from(tokens, {3, 16});
  }
  write_safetensors(path, {{"x", x}});
  return x;
}

void check_close(const Tensor& ours, const std::filesystem::path& file) {
  const SafetensorsFile theirs(file);
  const Tensor expected = theirs.read(*theirs.find("logits"));
  const examples::Comparison result =
      examples::compare(examples::to_numbers(ours), examples::to_numbers(expected), {0, 1e-4, 0});
  CHECK_MESSAGE(result.passed, result.summary);
}

// With vectors that differ from those of a new model, where a batch norm's change nothing. Of a text with larger
// weights, so that attention and GELU are not linear.
std::unique_ptr<StagedModel> changed_model(const Case& one) {
  auto model = make_model(one.model, 3, one.sizes);
  uint32_t which = 0;
  for (const NamedParameter& parameter : model->parameters()) {
    if (one.is_text()) parameter.value->copy_from(scale(parameter.value->detach(), 6));
    if (one.is_text() || parameter.value->shape().rank() != 1) continue;
    parameter.value->copy_from(random_tensor(parameter.value->shape(), ++which, 0.5, 1.5));
  }
  return model;
}

Tensor forward(Module& model, const Tensor& images) {
  const Inference scope;
  return model.forward(images);
}

TEST_CASE("PyTorch loads our weights into the same model, and we load PyTorch's") {
  if (!python_has("safetensors torch")) return;
  const TemporaryFolder folder;
  std::string words;
  std::vector<Tensor> inputs, logits;
  for (const Case& one : models()) {
    inputs.push_back(write_input(one.file(folder, "x"), one.sizes));
    const auto model = changed_model(one);
    save_model(one.file(folder, "model"), *model, one.description());
    logits.push_back(forward(*model, inputs.back()));
    words += " " + one.model;
    for (const char* what : {"model", "x", "logits"}) words += quoted(one.file(folder, what));
  }
  REQUIRE(run_python("torch load" + words).status == 0);
  for (size_t i = 0; i < logits.size(); ++i) {
    CAPTURE(models()[i].model);
    check_close(logits[i], models()[i].file(folder, "logits"));
  }
  REQUIRE(run_python("torch save" + words).status == 0);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Case one = models()[i];
    CAPTURE(one.model);
    const LoadedModel theirs = load_model(one.file(folder, "model"));
    CHECK(theirs.description.model == one.model);
    CHECK(theirs.description.scale.mean == one.description().scale.mean);
    CHECK(theirs.description.vocabulary == one.description().vocabulary);
    check_close(forward(*theirs.model, inputs[i]), one.file(folder, "logits"));
  }
}

TEST_CASE("ONNX: the checker accepts every model, and ONNX Runtime gives the same logits, of a text for every token") {
  if (!python_has("safetensors numpy onnx onnxruntime")) return;
  const TemporaryFolder folder;
  std::string words;
  std::vector<Tensor> logits;
  for (const Case& one : models()) {
    const Tensor x = write_input(one.file(folder, "x"), one.sizes);
    const auto model = changed_model(one);
    std::ofstream(one.file(folder, "onnx"), std::ios::binary) << to_onnx(*model, one.description());
    logits.push_back(forward(*model, x));
    for (const char* what : {"onnx", "x", "logits"}) words += quoted(one.file(folder, what));
  }
  REQUIRE(run_python("onnx" + words).status == 0);
  for (size_t i = 0; i < logits.size(); ++i) {
    CAPTURE(models()[i].model);
    check_close(logits[i], models()[i].file(folder, "logits"));
  }
}

TEST_CASE("NumPy opens .npy files") {
  if (!python_has("numpy")) return;
  const TemporaryFolder folder;
  const std::vector<std::pair<Tensor, const char*>> tensors = {{Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}), "<f4"},
                                                               {Tensor::from<Half>({Half(1), Half(2)}, {2}), "<f2"},
                                                               {Tensor::from<double>({1e300}, {1, 1, 1, 1}), "<f8"},
                                                               {Tensor::from<int32_t>({-7}, {}), "<i4"},
                                                               {Tensor::from<uint8_t>({1, 255}, {2}), "|u1"},
                                                               {Tensor::zeros({0, 3}, DType::f32), "<f4"}};
  std::string words;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto path = folder / std::to_string(i);
    std::ofstream(path, std::ios::binary) << to_npy(tensors[i].first);
    words += quoted(path);
  }
  const ChildResult result = run_python("npy" + words);
  REQUIRE(result.status == 0);
  const auto seen = nlohmann::json::parse(result.output);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [tensor, type] = tensors[i];
    std::vector<int64_t> shape;
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) shape.push_back(tensor.shape()[axis]);
    CHECK(seen[i] == nlohmann::json{shape, type, hex_of(tensor)});
  }
}

// Calls what models/files/onnx.cpp does not know, in one way or another.
struct Strange : Module {
  std::function<Tensor(const Tensor&)> work;
  Tensor forward(const Tensor& x) override { return work(x); }
};

TEST_CASE("ONNX: what has no counterpart is refused by name") {
  const auto refused = [](const std::string& part, const std::function<Tensor(const Tensor&)>& work) {
    Strange model;
    model.work = work;
    const std::string message = test::error_of([&] { to_onnx(model, {"mlp", {}, {0, 1}, ""}); });
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  };
  refused("the model calls the kernel cast_forward", [](const Tensor& x) { return cast(x, DType::f16); });
  refused("a reshape from (1, 28, 28, 1) to (7, 112)", [](const Tensor& x) { return relu(x.reshape({7, 112})); });
}

TEST_CASE(".npy files that NumPy need not have written") {
  const TemporaryFolder folder;
  std::ofstream(folder / "a", std::ios::binary) << to_npy(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(std::filesystem::file_size(folder / "a") == 64 * 2 + 24);
  CHECK_THROWS_WITH(to_npy(Tensor::zeros({1}, DType::bf16)),
                    "npy: NumPy has no type for bf16; cast the tensor to f32 first");
}

}  // namespace
