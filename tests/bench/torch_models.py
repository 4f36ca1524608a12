"""The other side of tests/bench/torch_models.cpp: bench/peers/torch_models.py against figures of halfstep.

    train WEIGHTS FLAG...    trains from halfstep's file of weights; the epochs and the learning rate of each step, as JSON
    augment FOLDER           writes CIFAR-10's files there and checks batches of them pixel by pixel
"""
import json
import pathlib
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import halfstep_weights
import torch
import torch_models


def arguments(words):
    sys.argv = ["torch_models.py", *words]
    return torch_models.parse_arguments()


def train(weights, *words):
    args = arguments(words)
    torch.set_num_threads(1)
    data = torch_models.MODELS[args.model]

    class Trainer(torch_models.Trainer):
        rates = []

        def fresh_model(self, seed):
            model = super().fresh_model(seed)
            halfstep_weights.load(model, weights)
            return model

        def step(self, index):
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            return super().step(index)

    trainer = Trainer(args, data(args, True), data(args, False))
    trainer.rates.clear()  # those of the warm-up
    print(json.dumps({**trainer.run(args.seed), "rates": trainer.rates}))


def augment(folder):
    side, count = 32, 20
    random.seed(3)
    images = [random.randbytes(3 * side * side) for _ in range(count)]
    records = b"".join(bytes([i % 10]) + image for i, image in enumerate(images))
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        with open(pathlib.Path(folder) / name, "wb") as file:
            file.write(records)
            file.truncate(10000 * (1 + 3 * side * side))
    words = ["--data", folder, "--model", "resnet8", "--channels-last", "--augment"]

    def pixel(image, channel, row, column):
        inside = 0 <= row < side and 0 <= column < side
        value = image[(channel * side + row) * side + column] if inside else 0
        return (value / 255 - torch_models.MEAN) / torch_models.DEVIATION

    def is_moved(x, image, down, right, mirrored):
        """Whether the tensor (3, 32, 32) is the image shifted, then mirrored."""
        return all(abs(x[c, r, k].item() - pixel(image, c, r + down, (side - 1 - k if mirrored else k) + right)) < 1e-5
                   for c in range(3) for r in range(0, side, 5) for k in (0, 1, 7, 30, 31))

    def moves(x, image, shift):
        return [(down, right, mirrored) for down in range(-shift, shift + 1) for right in range(-shift, shift + 1)
                for mirrored in (False, True) if is_moved(x, image, down, right, mirrored)]

    index = torch.arange(count)
    data = torch_models.Images(arguments([*words, "shift=1,flip"]), True)
    assert data.count == 50000
    seen = set()
    for _ in range(10):
        x, labels = data.batch(index)
        assert labels.tolist() == [i % 10 for i in range(count)] and x.is_contiguous(memory_format=torch.channels_last)
        for i in range(count):
            found = moves(x[i], images[i], 1)
            assert len(found) == 1, (i, found)
            seen.update(found)
    assert len(seen) == 18, sorted(seen)  # 200 draws miss one of 18 in 1 of 5,000 tries; the seed is fixed
    for name, training in (("shift=0", True), ("shift=2,flip", False)):  # no change, or not in the test
        x, _ = torch_models.Images(arguments([*words, name]), training).batch(index)
        assert all(is_moved(x[i], images[i], 0, 0, False) for i in range(count)), name


if __name__ == "__main__":
    torch.manual_seed(1)
    globals()[sys.argv[1]](*sys.argv[2:])
