"""What a file says about the model, the machine and the run."""

import contextlib
import ctypes
import datetime
import os
import pathlib
import platform
import subprocess

import torch
import transformers

from .library import Pair, TraceInfo, encoded

def pairs(values):
    array = (Pair * (len(values) + 1))()
    for pair, (name, value) in zip(array, values.items()):
        pair.name, pair.value = encoded(name), encoded(value)
    return array


def _driver_version():
    with contextlib.suppress(OSError, IndexError):
        line = pathlib.Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        return next(word for word in line.split() if word[0].isdigit() and "." in word)
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.split()[0]
    return "unknown"


def _system():
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']} {platform.machine()}"
    except OSError:
        return f"{platform.system()} {platform.machine()}"


def _processor():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def _describe_software(device):
    software = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "os": _system(),
    }
    if device.type == "cuda":
        software["cuda"] = torch.version.cuda or "unknown"
        software["driver"] = _driver_version()
    return software


def describe_machine(device):
    processor = f"{_processor()}, {os.cpu_count()} processors"
    return (
        f"{torch.cuda.get_device_name(device)}; {processor}" if device.type == "cuda" else processor
    )


def text_config(model):
    return model.config.get_text_config(decoder=True)


def rotations(model):
    """How the decoder rotates queries and keys: (module, inverse frequencies), one for all layers,
    one a layer, or one for each kind of layer."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    return [
        (module, buffer)
        for module in (decoder or model).modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    ]


def _rotation(model):
    """That of all layers; (None, None) where there is none or layers differ."""
    found = rotations(model)
    if any(not torch.equal(frequencies, found[0][1]) for _, frequencies in found[1:]):
        return None, None
    return found[0] if found else (None, None)


def _mlp_width(config):
    """Elements between the MLP's layers; of a mixture, those of one expert."""
    names = ["moe_intermediate_size", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"]
    width = next((getattr(config, name) for name in names if getattr(config, name, None)), 0)
    if isinstance(width, (list, tuple)):  # one a layer
        width = width[0] if len(set(width)) == 1 else 0
    if not width and hasattr(config, "n_inner"):
        width = 4 * config.hidden_size  # what GPT-2 means by None
    return width


def experts_of(config):
    """(experts, those a token goes to, elements of one), or None."""
    count = next(
        (
            getattr(config, name)
            for name in ["num_local_experts", "num_experts", "n_routed_experts"]
            if getattr(config, name, None)
        ),
        0,
    )
    chosen = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k", None)
    return (count, chosen, _mlp_width(config)) if count and chosen else None


class Description:
    """A TraceInfo and what it points at."""

    def __init__(self, model, device, name, provenance, parameters):
        config = text_config(model)
        heads = config.num_attention_heads
        rope = getattr(config, "rope_parameters", None) or {}
        rotary, frequencies = _rotation(model)
        several = rotary is None and bool(rotations(model))
        scale = next(
            (
                m.scaling
                for m in model.modules()
                if hasattr(m, "layer_idx") and isinstance(getattr(m, "scaling", None), float)
            ),
            0.0,
        )
        path = getattr(config, "name_or_path", "") or getattr(model.config, "name_or_path", "")
        self.info = TraceInfo(
            model_name=encoded(name or os.path.basename(os.path.normpath(path or config.model_type))),
            layers=config.num_hidden_layers,
            query_heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            hidden=config.hidden_size,
            intermediate=_mlp_width(config),
            vocabulary=config.vocab_size,
            # One angle for all layers would be wrong for some: then none is given.
            rope_theta=0.0
            if several
            else rope.get("rope_theta") or getattr(config, "rope_theta", 0.0) or 0.0,
            rope_type=encoded(
                "several"
                if several
                else rope.get("rope_type", "default") if rotary is not None else "none"
            ),
            rope_attention_scaling=float(getattr(rotary, "attention_scaling", 1.0) or 1.0),
            softmax_scale=scale,
            machine=encoded(describe_machine(device)),
            provenance=encoded(provenance),
            created=encoded(
                datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            ),
        )
        if rotary is not None:
            frequencies = frequencies.double().flatten().tolist()
            self._frequencies = (ctypes.c_double * len(frequencies))(*frequencies)
            self.info.inverse_frequencies = self._frequencies
            self.info.inverse_frequency_count = len(frequencies)
        self._software = pairs(_describe_software(device))
        self._parameters = pairs(parameters)
        self.info.software = self._software
        self.info.parameters = self._parameters
