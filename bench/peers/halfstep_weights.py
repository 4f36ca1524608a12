"""Weights between halfstep's model files and PyTorch modules whose layers have the same names. Needs `safetensors`.

halfstep stores a convolution's weight as (KH*KW*C, OC) and a linear one as (in, out), with the pixels in `in` ordered
(H, W, C); PyTorch as (OC, C, KH, KW) and (out, in), ordered (C, H, W). Embeddings are the same in both.
"""
from safetensors import safe_open
from safetensors.torch import load_file, save_file

NOT_STORED = "num_batches_tracked"  # of a batch norm: a count that nothing reads where there is a momentum
TIED = {"lm_head.weight": "transformer.wte.weight"}  # in a file only under the second name
AS_THEY_ARE = {"transformer.wte.weight", "transformer.wpe.weight", *TIED}


def load(module, path):
    """Copies the weights of a file into the module."""
    metadata = safe_open(path, "pt").metadata()
    tensors, channels = load_file(path), 1 if "vocabulary" in metadata else int(metadata["channels"])
    tensors |= {name: tensors[tied] for name, tied in TIED.items() if tied in tensors}
    for name, to in module.state_dict().items():
        if name.endswith(NOT_STORED):
            tensors[name] = to
            continue
        if name in AS_THEY_ARE: continue
        if to.dim() == 4: tensors[name] = tensors[name].reshape(*to.shape[2:], to.shape[1], len(to)).permute(3, 2, 0, 1)
        if to.dim() == 2: tensors[name] = tensors[name].reshape(-1, channels, len(to)).permute(2, 1, 0).flatten(1)
        channels = {4: len(to), 2: 1}.get(to.dim(), channels)  # of what the next layer gets
    module.load_state_dict(tensors)


def save(module, path, model, rows=28, columns=28, channels=1, classes=10, blocks=64, mean=0.1307, deviation=0.3081,
         **more):
    """Writes the module's weights as halfstep's `model`. Its input is (pixels / 255 - mean) / deviation. more: metadata,
    of a model of a text `width`, `heads` and `vocabulary`."""
    metadata = {"format": "halfstep model", "version": 1, "model": model, "data": "PyTorch", "rows": rows,
                "columns": columns, "channels": channels, "classes": classes, "blocks": blocks, "mean": mean,
                "deviation": deviation, **more}
    tensors = {}
    for name, t in module.state_dict().items():
        if name.endswith(NOT_STORED): continue
        if name in TIED: continue
        if name in AS_THEY_ARE: tensors[name] = t
        elif t.dim() == 4: tensors[name] = t.permute(2, 3, 1, 0).reshape(-1, len(t))
        elif t.dim() == 2: tensors[name] = t.reshape(len(t), channels, -1).permute(2, 1, 0).reshape(-1, len(t))
        else: tensors[name] = t
        channels = {4: len(t), 2: 1}.get(t.dim(), channels)
    save_file({name: t.contiguous() for name, t in tensors.items()}, path, {k: str(v) for k, v in metadata.items()})
