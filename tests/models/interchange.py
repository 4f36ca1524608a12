"""The other side of tests/models/interchange.cpp: opens and writes files with the packages that they are meant for.

    has PACKAGE...                exit code 0 if all can be imported
    tensors FILE OUT              the tensors of a safetensors file as JSON, with hexadecimal bytes; OUT: written again
    torch load|save MODEL FILE X OUT ...
                                  PyTorch's model with the weights of FILE, or of its own, which go to FILE; OUT: its
                                  logits for the images or tokens of X. Any number of models
    onnx FILE X OUT ...           the ONNX checker's verdict on FILE, then ONNX Runtime's logits for the images of X
    events FOLDER                 TensorBoard's curves as JSON: by tag, steps and values
    npy FILE ...                  shape, type and bytes of each array as JSON
"""
import importlib
import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))


def has(*packages):
    for package in packages: importlib.import_module(package)


def tensors(path, out):
    import numpy
    from safetensors import deserialize, safe_open
    from safetensors.numpy import save_file
    found = dict(deserialize(pathlib.Path(path).read_bytes()))
    metadata = safe_open(path, "numpy").metadata()
    print(json.dumps({"metadata": metadata,
                      "tensors": {name: [t["dtype"], t["shape"], t["data"].hex()] for name, t in found.items()}}))
    types = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I32": "<i4", "U8": "u1"}  # NumPy has no bf16
    save_file({name: numpy.frombuffer(t["data"], types[t["dtype"]]).reshape(t["shape"])
               for name, t in found.items() if t["dtype"] in types}, out, {"by": "the package"})


def torch_model(name, channels):
    """bench/peers has them, those of MNIST for one channel; deep_cnn, with three blocks, is only here."""
    import torch_models
    from torch import nn
    if name == "deep_cnn": return DeepCnn(channels)
    if name == "resnet8": return ResNet8(channels)
    model = torch_models.DIGIT_MODELS[name]()
    if channels != 1 and name == "mlp": model.linear1 = nn.Linear(784 * channels, 500)
    if channels != 1 and name != "mlp": model.conv1 = nn.Conv2d(channels, 32, 3)
    return model


def DeepCnn(channels):
    import torch.nn.functional as F
    from torch import nn

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(channels, 32, 3, padding=1)
            for b in (1, 2, 3): self.add_module(f"block{b}", nn.Conv2d(32, 32, 3, padding=1))
            self.linear = nn.Linear(1568, 10)

        def forward(self, x):
            x = F.relu(self.conv(x))
            for b in (self.block1, self.block2, self.block3): x = x + F.relu(b(x)) / 3
            return self.linear(F.max_pool2d(x, 4).flatten(1))
    return Deep()


def ResNet8(channels):
    import torch_models
    from torch import nn, rand
    model = torch_models.ResNet8(channels)
    for layer in model.modules():  # as after training: no mean is 0 and no variance is 1
        if not isinstance(layer, nn.BatchNorm2d): continue
        for tensor in layer.state_dict().values():
            if tensor.is_floating_point(): tensor.copy_(rand(len(tensor)) + 0.5)
    return model


def torch(how, *words):
    import halfstep_weights
    from safetensors.torch import load_file, save_file
    from torch import manual_seed, no_grad
    from torch_models import CharGpt
    for name, path, inputs, out in zip(*[iter(words)] * 4):
        manual_seed(1)
        x = load_file(inputs)["x"]
        if name == "char_gpt":  # a small one
            x, model = x.long(), CharGpt(11, 16, 32, 4, 2)
            sizes = {"rows": 1, "columns": 17, "classes": 11, "blocks": 2, "mean": 0, "deviation": 1, "width": 32, "heads": 4,
                     "vocabulary": "6162636465666768696a6b"}
        else:
            x = x.permute(0, 3, 1, 2)
            model, sizes = torch_model(name, x.shape[1]), {"channels": x.shape[1], "blocks": 3}
        model.eval()
        if how == "load": halfstep_weights.load(model, path)
        else: halfstep_weights.save(model, path, name, **sizes)
        with no_grad(): save_file({"logits": model(x).contiguous()}, out)


def onnx(*words):
    import onnx
    import onnxruntime
    from safetensors.numpy import load_file, save_file
    for path, images, out in zip(*[iter(words)] * 3):
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        assert {p.key: p.value for p in model.metadata_props}["format"] == "halfstep model"
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        x, name = load_file(images)["x"], session.get_inputs()[0].name
        if name == "tokens": x = x.astype("int64")
        save_file({"logits": session.run(["logits"], {name: x})[0]}, out)


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(folder, {"scalars": 0})
    found.Reload()
    print(json.dumps({tag: [[e.step, e.value] for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}))


def npy(*paths):
    import numpy
    arrays = [numpy.load(path) for path in paths]
    print(json.dumps([[list(a.shape), a.dtype.str, a.tobytes().hex()] for a in arrays]))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
