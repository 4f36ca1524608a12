// Trained models in files: every model comes back with the same outputs, bit for bit, and a file that does not fit is
// refused with what does not, before anything is copied. And NumPy's arrays, which an export writes and a data set is.
#include "models/files/model_file.h"

#include <cmath>
#include <cstring>

#include "engine/ambient.h"
#include "engine/files/npy.h"
#include "models/layers.h"
#include "tests/support/bad_input.h"
#include "tests/support/random_tensor.h"

namespace {

using namespace hs;
using namespace hs::test;

std::vector<float> logits(StagedModel& model, const ModelSizes& sizes) {
  const Inference scope;
  return model.forward(random_tensor({3, sizes.rows, sizes.columns, sizes.channels}, 1, 0)).to_vector<float>();
}

TEST_CASE("every model comes back with its description and the same outputs") {
  const TemporaryFolder folder;
  for (const std::string& name : model_names(InputKind::images)) {
    for (const ModelSizes& sizes : {ModelSizes{.blocks = 3}, ModelSizes{20, 31, 3, 7, 2}}) {
      CAPTURE(name);
      const auto path = folder / name;
      const auto model = make_model(name, 7, sizes);
      const ParameterArena arena(*model);  // as after training: parameters are slices
      save_model(path, *model, {name, sizes, {0.1307f, 0.3081f}, "mnist"});
      const LoadedModel loaded = load_model(path);
      CHECK(loaded.description.model == name);
      CHECK(loaded.description.data == "mnist");
      CHECK(loaded.description.scale.mean == 0.1307f);
      CHECK(loaded.description.scale.deviation == 0.3081f);
      CHECK(loaded.description.sizes.rows == sizes.rows);
      CHECK(loaded.description.sizes.columns == sizes.columns);
      CHECK(loaded.description.sizes.channels == sizes.channels);
      CHECK(loaded.description.sizes.classes == sizes.classes);
      CHECK(logits(*loaded.model, sizes) == logits(*model, sizes));
      CHECK(logits(*loaded.model, sizes) != logits(*make_model(name, 0, sizes), sizes));
    }
  }
}

// A model of one's own, in an arena.
struct Net : Module {
  LayerKeys keys;
  Linear first{4, 3, keys}, second{3, 2, keys};
  explicit Net(uint64_t seed) : keys(seed) { add_child("first", first), add_child("second", second); }
  Tensor forward(const Tensor& x) override { return second.forward(first.forward(x)); }
};

std::vector<float> all_values(Module& module) {
  std::vector<float> all;
  for (const NamedParameter& parameter : module.parameters()) {
    for (const float value : parameter.value->to_vector<float>()) all.push_back(value);
  }
  return all;
}

TEST_CASE("a module of one's own, and what does not fit it") {
  const TemporaryFolder folder;
  const auto path = folder / "net.safetensors";
  Net net(1), other(2);
  const ParameterArena arena(other);
  write_safetensors(path, parameters_of(net));
  REQUIRE(all_values(net) != all_values(other));
  load_parameters(other, SafetensorsFile(path));
  CHECK(all_values(net) == all_values(other));
  Net third(3);
  save(third, path);
  load(net, path);
  load(other, path);
  CHECK(all_values(net) == all_values(third));

  const Tensor weight = Tensor::zeros({4, 3}, DType::f32), bias = Tensor::zeros({3}, DType::f32);
  const Tensor last = Tensor::zeros({3, 2}, DType::f32), last_bias = Tensor::zeros({2}, DType::f32);
  const auto refused = [&](const std::vector<NamedTensor>& tensors, const std::string& part) {
    write_safetensors(path, tensors);
    check_refused(outcome_of([&] { load_parameters(other, SafetensorsFile(path)); }), ExitCode::checkpoint,
                  path.string() + ": its tensors do not fit the model: ", part);
    CHECK(all_values(net) == all_values(other));
  };
  const NamedTensor a = {"first.weight", weight}, b = {"first.bias", bias}, c = {"second.weight", last},
                    d = {"second.bias", last_bias};
  refused({a, b, c}, "model: second.bias is missing");
  refused({a, b, c, d, {"third", bias}}, "model: third is no parameter of it");
  refused({{"first.weight", Tensor::zeros({3, 4}, DType::f32)}, b, c, d},
          "model: first.weight is F32(3, 4), expected F32(4, 3)");
  refused({{"first.weight", Tensor::zeros({12}, DType::f32)}, b, c, d}, "first.weight is F32(12), expected F32(4, 3)");
  refused({a, {"first.bias", Tensor::zeros({3}, DType::f16)}, c, d}, "first.bias is F16(3), expected F32(3)");
  refused({{"x", bias}, {"y", bias}},
          "model: first.weight is missing; first.bias is missing; second.weight is missing; second.bias is missing; x "
          "is no parameter of it; and 1 more");
  // The last tensor is damaged: nothing of the others has been copied.
  write_safetensors(path, {{"first.weight", weight}, b, c, d});
  Bytes bytes = read_bytes(path);
  bytes.back() ^= 1;
  write_bytes(path, bytes);
  check_refused(outcome_of([&] { load_parameters(other, SafetensorsFile(path)); }), ExitCode::checkpoint, path.string(),
                "has the CRC32C");
  CHECK(all_values(net) == all_values(other));
}

TEST_CASE("metadata that lie") {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  const auto model = make_model("mlp", 1);
  const Metadata good = describe({"mlp", {}, {0.1f, 0.3f}, "mnist"});
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& part) {
    Metadata changed = good;
    changed[key] = value;
    if (value == "none") changed.erase(key);
    CAPTURE(key);
    CAPTURE(value);
    write_safetensors(path, parameters_of(*model), changed);
    check_refused(outcome_of([&] { load_model(path); }), ExitCode::checkpoint, path.string() + ": ", part, 16 * mib);
  };
  for (const auto& [key, value] : good) {
    if (key != "layout") refused(key, "none", "its metadata have no " + key);
  }
  refused("format", "pt", "its format is pt, expected halfstep model");
  refused("version", "2", "written by version 2 of the format, this program reads up to 1; update it");
  refused("version", "0", "its metadata have the version 0, expected 1 to");
  refused("model", "resnet", "a model resnet, expected one of char_gpt, deep_cnn, mlp, mnist_cnn, mnist_cnn_large");
  refused("model", "\x1b[2J", "a model \\x1b[2J, expected");
  refused("model", "mnist_cnn", "its tensors do not fit the model: conv1.weight is missing");
  refused("rows", "27", "linear1.weight is F32(784, 500), expected F32(756, 500)");
  for (const char* number : {"", "x", "-28", "0", "513", "28.0", " 28", "28 ", "9223372036854775808", "1e1"}) {
    refused("rows", number, "its metadata have the rows ");
  }
  refused("classes", "1001", "its metadata have the classes 1001, expected 1 to 1000");
  for (const char* number : {"nan", "inf", "", "0", "-1", "1e39", "0x1"})
    refused("deviation", number, "the deviation ");

  refused("type", "u8", "its metadata have the type u8, expected f32");
  refused("columns", "513", "its metadata have the columns 513, expected 1 to 512");
  const ModelSizes vector{.rows = 1, .columns = 600};
  const auto of_vectors = make_model("mlp", 1, vector);
  ModelDescription numbers{"mlp", vector, {0, 1}, ""};
  numbers.type = DType::f32;
  save_model(path, *of_vectors, numbers);
  CHECK(load_model(path).description.type == DType::f32);
  CHECK(load_model(path).description.sizes.columns == 600);
  CHECK(!good.contains("type"));

  const auto small = make_model("mnist_cnn", 1);
  write_safetensors(path, parameters_of(*small), describe({"mnist_cnn", {.rows = 5}, {0, 1}, ""}));
  check_refused(outcome_of([&] { load_model(path); }), ExitCode::checkpoint, path.string() + ": ",
                "are too small for it");
  check_refused(outcome_of([&] {
                  save_model(path, *small, {"mnist_cnn", {.rows = 0}, {0, 1}, ""});
                }),
                ExitCode::usage, "a model's file: ", "0 rows, expected 1 to 512");
}

// A .npy file with this header, as NumPy writes one of version 1, and these values.
Bytes npy_of(const std::string& type, const std::string& shape, const Bytes& values, const char* order = "False") {
  const std::string header = "{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': (" + shape + "), }" +
                             std::string(9, ' ') + "\n";
  return bytes_of("\x93NUMPY") + Bytes{1, 0, static_cast<uint8_t>(header.size()), 0} + bytes_of(header) + values;
}

TEST_CASE("NumPy's arrays: every type comes back, integers as i32, and what else there is is refused in a line") {
  const DamagedFile file([](const auto& path) { read_npy(path); }, "a.npy");
  for (const Tensor& tensor :
       {Tensor::from<float>({1.5f, -0.0f, std::nanf("7"), 1e-40f}, {2, 2}), Tensor::from<double>({0.1}, {1, 1, 1, 1}),
        Tensor::from<int32_t>({-1, INT32_MAX, INT32_MIN}, {3}), Tensor::from<uint8_t>({0, 255}, {2, 1}),
        Tensor::from<Half>({Half(0.5f)}, {}), Tensor::zeros({0, 3}, DType::f32)}) {
    const Bytes bytes = bytes_of(to_npy(tensor));
    REQUIRE(file.read(bytes).code == ExitCode::ok);
    const Tensor read = read_npy(file.path);
    CHECK(read.to_string() == tensor.to_string());
    CHECK(std::memcmp(read.raw_data(), tensor.raw_data(), tensor.bytes()) == 0);
  }
  const Bytes minus_two = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  for (const auto& [type, size, value] :
       {std::tuple{"'<i8'", 8, -2}, {"'<i2'", 2, -2}, {"'|i1'", 1, -2}, {"'<u2'", 2, 65534}}) {
    CAPTURE(type);
    write_bytes(file.path, npy_of(type, "1,", first_bytes(minus_two, size)));
    CHECK(read_npy(file.path).to_vector<int32_t>() == std::vector<int32_t>{value});
  }
  write_bytes(file.path, npy_of("'|b1'", "2,", {0, 1}));
  CHECK(read_npy(file.path).to_vector<uint8_t>() == std::vector<uint8_t>{0, 1});

  const Bytes good = npy_of("'<f4'", "1, 2", Bytes(8));
  file.check_sizes(good, [](size_t) { return ""; });
  // A flipped bit in the header is refused, or the file is of another kind, or it is in what nobody reads.
  file.check_flips(
      good, good.size() - 8, [](size_t) { return ""; }, [&](const Bytes&) { CHECK(read_npy(file.path).bytes() <= 8); });
  file.check_refused(npy_of("'<f4'", "2, 2", Bytes(8)), "8 bytes of values, which is not what its shape (2, 2) of <f4");
  file.check_refused(npy_of("'<f4'", "0, 4611686018427387904", {}), "0 bytes of values, which is not what");
  file.check_refused(npy_of("'<f4'", "4294967296, 4294967296", {}), "0 bytes of values, which is not what");
  file.check_refused(npy_of("'<f4'", "1, 1, 1, 1, 1", Bytes(4)), "(1, 1, 1, 1, 1), expected at most 4 dimensions");
  file.check_refused(npy_of("'<f4'", "-1", {}), "its shape is (-1), expected");
  file.check_refused(npy_of("'>f4'", "1,", Bytes(4)), "NumPy's type >f4, expected little-endian floats or integers");
  file.check_refused(npy_of("'|O'", "1,", Bytes(4)), "NumPy's type |O, expected");
  file.check_refused(npy_of("'<c8'", "1,", Bytes(8)), "NumPy's type <c8, expected");
  file.check_refused(npy_of("[('a', '<f4')]", "1,", Bytes(4)), "NumPy's type (fields), expected");
  file.check_refused(npy_of("'<f4'", "1, 2", Bytes(8), "True"), "is in Fortran order; in NumPy, save numpy.asc");
  file.check_refused(npy_of("'<i8'", "1,", {0, 0, 0, 0, 1, 0, 0, 0}), "value 0 is 4294967296, which does not fit");
  file.check_refused(npy_of("'<u8'", "1,", minus_two), "value 0 is 18446744073709551614, which does not fit");
}

}  // namespace
