"""The Python module: values, lifetimes, trainings with the program's bits, and a line for every mistake.

    python -m unittest discover python/tests    with the module installed; HALFSTEP_BENCH names the program
"""
import ast
import gc
import inspect
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from contextlib import redirect_stdout

import numpy as np

import halfstep as hs

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
BENCH = os.environ.get("HALFSTEP_BENCH", str(TOP / "build/release/bench/halfstep-bench"))
random = np.random.default_rng(1)


def values(*shape):
    return random.standard_normal(shape).astype("float32")


def leaf(array):
    tensor = hs.Tensor(array)
    tensor.set_requires_grad(True)
    return tensor


class Net(hs.Module):
    def __init__(self, hidden=32):
        super().__init__()
        keys = hs.LayerKeys(1)
        self.conv = hs.Conv2d(1, 4, keys)
        self.linear = hs.Linear(13 * 13 * 4, hidden, keys)
        self.head = hs.Head(hidden, 10, keys)

    def forward(self, x):
        return self.head(hs.relu(self.linear(hs.flatten(hs.relu(hs.max_pool2d(self.conv(x), 2, 2))))))


def digits(count=640, seed=1, **options):
    return hs.Loader(hs.synthetic_digits(seed, count), **{"batch": 64, **options})


class Case(unittest.TestCase):
    def line(self, kind, function, *expected):
        """function() throws an exception of this kind, whose one line has these parts."""
        with self.assertRaises(kind) as caught:
            function()
        said = str(caught.exception)
        self.assertNotIn("\n", said)
        for part in expected:
            self.assertIn(part, said)


class Tensors(Case):
    def test_share_memory_with_numpy(self):
        for dtype, name in {"float32": "f32", "float16": "f16", "float64": "f64", "int32": "i32", "uint8": "u8"}.items():
            array = np.arange(6).reshape(2, 3).astype(dtype)
            tensor = hs.Tensor(array)
            self.assertEqual((tensor.shape, tensor.dtype, tensor.device, tensor.size), ((2, 3), name, "cpu", 6))
            array[1, 2] = 42
            for back in (tensor.numpy(), np.asarray(tensor), np.from_dlpack(tensor)):
                np.testing.assert_array_equal(back, array)
                self.assertTrue(np.shares_memory(back, array))
        self.assertEqual(hs.Tensor(np.array(7, "float32")).item(), 7)
        self.assertEqual(hs.Tensor(np.zeros((0, 3), "float32")).numpy().shape, (0, 3))
        self.assertEqual(repr(hs.Tensor.zeros([2, 3], "bf16")), "Tensor bf16(2, 3)")

    def test_live_as_long_as_they_are_used(self):
        array = values(100, 100)
        expected, tensor = array.copy(), hs.Tensor(array)
        view = hs.relu(tensor).reshape([10000]).numpy()
        del array
        gc.collect()
        np.testing.assert_array_equal(tensor.numpy(), expected)
        del tensor
        gc.collect()
        np.testing.assert_array_equal(view, np.maximum(expected, 0).ravel())

    def test_refuse_what_cannot_be_shared(self):
        x = values(4, 4)
        read_only = x.copy()
        read_only.flags.writeable = False
        unaligned = np.frombuffer(bytearray(17), "uint8")[1:].view("float32")
        for array, expected in ((x.T, "ascontiguousarray"), (x[:, ::2], "not contiguous"), (read_only, "is read-only"),
                                (x.astype("int64"), "has int64"), (x > 0, "has bool"), (unaligned, "multiple of its element"),
                                (x.astype("complex64"), "has complex64"), ([1.0], "found a list"), (None, "NoneType")):
            self.line(TypeError, lambda: hs.Tensor(array), expected)
        self.line(hs.Error, lambda: hs.Tensor(values(1, 1, 1, 1, 1)), "at most 4")
        tensor = hs.Tensor(x)
        with self.assertRaises(ValueError):
            tensor.numpy()[0, 0] = 1
        self.line(TypeError, hs.cast(tensor, "bf16").numpy, "no bfloat16")
        self.line(ValueError, lambda: hs.cast(tensor, "float32"), "'float32': expected one of f32, f16")
        self.line(TypeError, lambda: hs.relu(x), "found a ndarray, expected a Tensor")
        self.line(TypeError, lambda: tensor + 1, "found a int, expected a Tensor")
        for factor in (x, "2", [2]):
            self.line(TypeError, lambda: tensor * factor, f"found a {type(factor).__name__}, expected a Tensor")
        with self.assertRaises(TypeError):
            x * tensor  # NumPy's product would have no history
        np.testing.assert_array_equal((np.float32(2) * tensor * 3).numpy(), 6 * x)

    def test_have_gradients(self):
        x, w, b = values(5, 3), values(3, 4), values(4)
        tx, tw, tb = map(leaf, (x, w, b))
        y = hs.linear(tx, tw, tb)
        np.testing.assert_allclose(y.numpy(), x @ w + b, rtol=1e-5, atol=1e-6)
        hs.backward(hs.sum(y * y) * 0.5)
        np.testing.assert_allclose(tw.grad.numpy(), x.T @ (x @ w + b), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(tb.grad.numpy(), (x @ w + b).sum(0), rtol=1e-4, atol=1e-5)
        self.assertIsNone(leaf(x).grad)
        again = leaf(x)
        hs.backward(hs.sum(hs.checkpoint(lambda t: hs.relu(hs.linear(t, tw)), again)))
        np.testing.assert_allclose(again.grad.numpy(), (x @ w > 0) @ w.T, rtol=1e-5, atol=1e-6)
        with hs.NoGrad():
            self.assertFalse(hs.relu(tx).requires_grad)

    def test_mistakes_in_ops_are_the_engines_lines(self):
        x = hs.Tensor(values(2, 3))
        self.line(hs.Error, lambda: hs.linear(x, hs.Tensor(values(4, 5))), "linear: weight is (4, 5)")
        self.line(hs.Error, lambda: hs.backward(hs.sum(x)), "history")
        self.line(hs.Error, lambda: hs.softmax_cross_entropy(x, hs.Tensor(np.array([0, 9], "int32"))), "label 9")
        self.line(TypeError, lambda: hs.conv2d(x, x, kernel=3), "there is no option kernel, expected some of kernel_h")
        self.line(TypeError, lambda: hs.conv2d(x, x, stride="2"), "conv2d: stride is a str, expected one like 1")
        y = hs.relu(leaf(values(8)))
        y.fill_zero()
        self.line(hs.Error, lambda: hs.backward(hs.sum(y)), "was modified before backward")
        self.line(hs.Error, lambda: hs.force_variant("relu_forward=none"), "relu_forward")
        self.line(hs.Error, lambda: hs.load_plugin(__file__), "was not built for this library")


class Modules(Case):
    def test_train_in_a_loop(self):
        net, loader = Net(), digits(3200)
        arena = hs.ParameterArena(net)
        self.assertEqual(list(net.parameters()), ["conv.weight", "conv.bias", "linear.weight", "linear.bias", "head.weight", "head.bias"])
        optimizer = hs.make_optimizer(arena, name="adamw", learning_rate=3e-3, schedule={"kind": "cosine", "total_steps": 100})
        scaler = hs.GradScaler(enabled=True)
        for step in range(100):
            with hs.AmbientScope(step=optimizer.step_counter()), hs.Autocast("f16", arena):
                batch = loader.next()
                optimizer.zero_gradients()
                scale = scaler.loss_gradient(1)
                loss = hs.softmax_cross_entropy(net(hs.normalize_image(batch.images, loader.pixel_scale())), batch.labels, scale)
                hs.backward(loss, scale)
                optimizer.step(scaler)
        self.assertEqual(optimizer.steps + scaler.skipped, 100)
        self.assertGreater(hs.evaluate(net, digits(500, 2, shuffle=False))["accuracy"], 0.8)
        with tempfile.TemporaryDirectory() as folder, hs.Inference():
            path, x, other = pathlib.Path(folder, "net.safetensors"), hs.Tensor(values(2, 28, 28, 1)), Net()
            hs.save(net, path)
            hs.load(other, path)
            np.testing.assert_array_equal(other(x).numpy(), net(x).numpy())
            self.line(hs.Error, lambda: hs.load(Net(16), path), "net.safetensors")

    def test_are_kept_by_what_uses_them(self):
        optimizer = hs.make_optimizer(hs.ParameterArena(Net()), name="sgd")
        gc.collect()
        optimizer.step()
        net = Net()
        weight = net.parameters()["conv.weight"]
        arena = hs.ParameterArena(net)
        self.line(hs.Error, lambda: hs.ParameterArena(net), "is in another ParameterArena")
        del arena
        gc.collect()
        self.assertEqual(weight.shape, (9, 4))
        net(hs.Tensor(values(1, 28, 28, 1)))  # the values are there, without their arena
        hs.ParameterArena(net)
        loader = digits()
        gc.collect()
        self.assertEqual(sum(batch.labels.size for batch in loader), 640)

    def test_have_parameters_and_losses_of_their_own(self):
        class Regression(hs.Module):
            def __init__(self):
                super().__init__()
                self.w = self.add_parameter("w", hs.Tensor(np.zeros((2, 1), "float32")))

            def forward(self, x):
                return hs.linear(hs.flatten(x), self.w)

            def loss(self, y, x, targets):
                return hs.mse_loss(y, targets.reshape(y.shape))

        x = values(512, 2)
        source = hs.from_tensors(hs.Tensor(x), hs.Tensor(x @ np.array([2, -3], "float32")))
        train, test = hs.split_samples(source, 0.2)
        net = Regression()
        result = hs.train(net, hs.ParameterArena(net), hs.Loader(train, batch=16), hs.Loader(test, shuffle=False), progress=False,
                          epochs=20, optimizer={"name": "adam", "learning_rate": 0.05})
        self.assertLess(result["epochs"][-1]["test"]["loss"], 1e-3)
        np.testing.assert_allclose(net.w.numpy().ravel(), [2, -3], atol=0.05)

    def test_mistakes_are_lines(self):
        class Lazy(hs.Module):
            def __init__(self): self.linear = hs.Linear(1, 1, hs.LayerKeys(1))

        class Nothing(hs.Module):
            def forward(self, x): pass

        class Twice(Net):
            def __init__(self):
                super().__init__()
                self.conv = self.head

        x, net = hs.Tensor(values(1, 1)), Net()
        self.line(TypeError, Lazy, "Lazy takes no linear; a class of Module calls super().__init__() first")
        self.line(TypeError, lambda: hs.evaluate(Nothing(), digits()), "forward() has returned None")
        self.line(hs.Error, Twice, "conv is registered already")
        self.line(TypeError, lambda: setattr(net, "itself", net), "itself has the module in it")
        self.line(TypeError, lambda: hs.Module()(x), "a class of Module defines forward(self, x)")
        self.assertRaises(TypeError, net.add_child, "tensor", x)
        self.assertRaises(TypeError, net.add_parameter, "array", values(2))
        arena = hs.ParameterArena(net)
        self.line(hs.Error, net.freeze, "is in a ParameterArena already")
        self.line(hs.Error, lambda: net.parameters()["head.weight"].set_requires_grad(False), "freeze() of the module")
        arena.zero_gradients()
        del arena
        self.line(hs.Error, lambda: hs.make_model("lenet"), "mnist_cnn")
        self.line(hs.Error, lambda: hs.make_model("char_gpt", input="tokens", heads=0), "0 heads")
        self.line(hs.Error, lambda: hs.make_optimizer(hs.ParameterArena(Net()), schedule={"every": 0}), "every is 0 steps")
        for option in ("accumulate", "test_every"):
            self.line(hs.Error, lambda: hs.train(net, hs.ParameterArena(net), digits(), digits(), **{option: 0}), f"{option} ")
        self.line(TypeError, lambda: hs.make_model("mlp", hidden=3), "no option hidden")
        self.line(hs.Error, lambda: hs.make_optimizer(hs.ParameterArena(Net()), name="sdg"), "sgd")
        self.line(TypeError, lambda: hs.make_optimizer(hs.ParameterArena(Net()), schedule={"every": 1.5}), "make_optimizer: schedule: every is a float")
        self.line(hs.Error, lambda: hs.from_tensors(x, hs.Tensor(np.array([1, 2], "int32"))), "labels")
        self.line(hs.Error, lambda: hs.Loader(hs.synthetic_digits(1, 10), batch=0), "batch")
        self.line(hs.Error, lambda: hs.open_dataset("/nowhere"), "/nowhere")
        self.line(hs.Error, lambda: hs.load_model(__file__), "test_halfstep.py")


class Trainings(Case):
    def of_python(self, model, batch=64, accumulate=1, **config):
        net = hs.make_model(model)
        arena = hs.ParameterArena(net)
        loaders = [hs.Loader(hs.synthetic_digits(part, count), batch=batch, shuffle=part == 1, prefetch=2, workers=-1, cache="ram")
                   for part, count in ((1, 640), (2, 64))]
        result = hs.train(net, arena, *loaders, progress=False, accumulate=accumulate, **config)
        return hs.sha256(arena), result

    @unittest.skipUnless(os.path.exists(BENCH), "no halfstep-bench")
    def test_have_the_programs_bits(self):
        adam = {"name": "adamw", "learning_rate": 2e-3, "clip": 1, "schedule": {"kind": "cosine", "warmup_steps": 3, "total_steps": 20}}
        for words, call in (
                ("mnist_cnn --epochs 2", {"epochs": 2}),
                ("mnist_cnn --epochs 1 --precision bf16 --batch 16 --accumulate 4", {"epochs": 1, "precision": "bf16", "batch": 16, "accumulate": 4}),
                ("resnet8 --epochs 1 --precision f16", {"epochs": 1, "precision": "f16", "scaler": {"enabled": True}}),
                ("mlp --epochs 2 --optimizer adamw --lr 2e-3 --clip 1 --schedule cosine --warmup 3 --augment shift=2,flip",
                 {"epochs": 2, "optimizer": adam, "augment": {"shift": 2, "flip": True}})):
            model, *flags = words.split()
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "record.json")
                subprocess.run([BENCH, "train", "--data", "synthetic", "--train", "640", "--test", "64", "--quiet", "--model", model,
                                *flags, "--json", path], check=True, stdout=subprocess.DEVNULL)
                row = json.loads(path.read_text())["rows"][0]
            sha256, result = self.of_python(model, **call)
            self.assertEqual(sha256, row["weights_sha256"], words)
            self.assertEqual(result["steps"], row["steps"] if "steps" in row else result["steps"])

    def test_tell_how_far_they_are(self):
        net, seen, said = Net(), [], io.StringIO()
        with redirect_stdout(said):
            result = hs.train(net, hs.ParameterArena(net), digits(), digits(64, 2, shuffle=False), epochs=2,
                              on_step=lambda p: seen.append((p["epoch"], p["step"])), on_epoch=lambda n, r: seen.append(r["test"]))
        self.assertEqual(seen[:10], [(1, step) for step in range(1, 11)])
        self.assertEqual(seen[10], result["epochs"][0]["test"])
        self.assertEqual((result["steps"], result["samples"], len(result["epochs"])), (20, 1280, 2))
        self.assertEqual(len(said.getvalue().splitlines()), 2)
        self.assertIn("epoch 2/2", said.getvalue())
        self.line(TypeError, lambda: hs.train(net, hs.ParameterArena(Net()), digits(), digits(), epoch=3), "no option epoch")

    def test_end_with_what_a_callback_throws(self):
        def stop(progress):
            if progress["step"] == 3: raise KeyError("enough")
        net = Net()
        arena = hs.ParameterArena(net)
        with self.assertRaisesRegex(KeyError, "enough"):
            hs.train(net, arena, digits(), digits(64), on_step=stop, progress=False)
        hs.train(net, arena, digits(), digits(64), epochs=1, progress=False)  # goes on
        self.line(TypeError, lambda: hs.train(net, arena, digits(), digits(64), on_epoch=3, progress=False), "not callable")
        self.line(hs.Error, lambda: hs.train(net, arena, digits(), digits(64), progress=False,
                                             optimizer={"name": "sgd", "learning_rate": 1e30}), "step")

    def test_end_with_ctrl_c_and_leave_other_threads_the_gil(self):
        net, counted, ended = Net(), [0], threading.Event()
        arena = hs.ParameterArena(net)

        def count():
            while not ended.is_set():
                counted[0] += 1
                time.sleep(0.001)
        threading.Thread(target=count).start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what runs in the background
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                hs.train(net, arena, digits(), digits(64), epochs=100000, progress=False)
        finally:
            ended.set()
            signal.signal(signal.SIGINT, before)
        self.assertGreater(counted[0], 20)
        self.assertTrue(np.isfinite(arena.values.numpy()).all())
        hs.train(net, arena, digits(), digits(64), epochs=1, progress=False)

    def test_of_two_threads_take_turns(self):
        expected, _ = self.of_python("mlp", epochs=2)
        hashes = []
        threads = [threading.Thread(target=lambda: hashes.append(self.of_python("mlp", epochs=2)[0])) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        self.assertEqual(hashes, [expected] * 2)


class Processes(Case):
    def in_child(self, work):
        """What work() returned in a forked child, or the line that it threw."""
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            try:
                said = work()
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(write, str(said).encode())
            os._exit(0)
        os.close(write)
        with open(read) as pipe: said = pipe.read()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        return said

    def test_that_fork(self):
        x = values(300, 300)
        train = lambda: Trainings().of_python("mlp", epochs=1)[0]
        self.assertEqual(self.in_child(train), train())
        self.assertEqual(self.in_child(lambda: np.array_equal(hs.relu(hs.Tensor(x)).numpy(), np.maximum(x, 0))), "True")
        net, said = Net(), []
        hs.train(net, hs.ParameterArena(net), digits(), digits(64), epochs=1, progress=False,
                 on_step=lambda p: p["step"] == 5 and said.append(self.in_child(lambda: hs.relu(hs.Tensor(x)))))
        self.assertIn("Error: this process was forked", said[0])
        self.assertNotIn("\n", said[0])

    def test_with_a_second_interpreter(self):
        attempt = f"import sys; sys.path[:] = {sys.path}\ntry: import halfstep\nexcept ImportError as error: print(error, flush=True)"
        code = f"import halfstep, _xxsubinterpreters as s; s.run_string(s.create(), {attempt!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("main interpreter alone", done.stdout)


class Docs(Case):
    def test_stubs_have_every_name_and_every_name_a_docstring(self):
        tree = ast.parse(pathlib.Path(hs.__file__).with_name("_halfstep.pyi").read_text())
        stubbed = {getattr(node, "name", None) or node.target.id for node in tree.body if not isinstance(node, (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign))}
        public = {name for name in dir(hs._halfstep) if not name.startswith("_")}
        self.assertEqual(public - stubbed, set())
        self.assertEqual([name for name in public if not getattr(hs, name).__doc__], [])
        self.assertIn("'learning_rate': 0.001", hs.make_optimizer.__doc__)

    def test_the_page_runs(self):
        text, here = (TOP / "docs/python.md").read_text(), os.getcwd()
        blocks = re.findall(r"^<!-- built: \S+ -->\n```python\n(.*?)^```$", text, re.S | re.M)
        self.assertEqual(len(blocks), text.count("```python"))
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as said:
            os.chdir(folder)
            try:
                exec(compile("\n".join(blocks), "docs/python.md", "exec"), {})
            finally:
                os.chdir(here)
        self.assertIn("accuracy 9", said.getvalue())

    def test_the_notebook_runs(self):
        """Every cell, in a process of its own, on a smaller set."""
        code = """
            import json, os, sys
            from IPython.core.interactiveshell import InteractiveShell
            shell = InteractiveShell.instance()
            for cell in json.load(open("experiment.ipynb"))["cells"]:
                text = "".join(cell["source"]).replace("(2000, 1000, 2)", "(640, 64, 1)")
                if cell["cell_type"] == "code" and not shell.run_cell(text).success: sys.exit(text)
            """
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", inspect.cleandoc(code)], cwd=TOP / "docs", text=True, capture_output=True,
                                  env=os.environ | {"IPYTHONDIR": folder, "HALFSTEP_BENCH": BENCH})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        weights = re.findall(r"^(?:weights|program): (\w{64})$", done.stdout, re.M)
        self.assertEqual((len(weights), len(set(weights))), (2, 1), done.stdout)
        self.assertIn("relu_forward=my_relu: right and", done.stdout)
        self.assertIn("the same weights as with the simple variant: True", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
