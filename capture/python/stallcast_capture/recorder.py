"""Records one sequence of a model."""

import contextlib
import ctypes
import os
import warnings

import torch

from .attention import AttentionHook
from .channel import Channel
from .description import Description, rotations, text_config
from .errors import CaptureError
from .experts import ExpertCounts
from .layers import LayerAttention, attending_layers
from .library import DTYPES, KEY, QUERY, VALUE, Attention, Experts, Library, Options, encoded

# A forward hook must return None, which the NVTX calls do not.


def _nvtx_push(name):
    def push(*_):
        torch.cuda.nvtx.range_push(name)

    return push


def _nvtx_pop(*_):
    torch.cuda.nvtx.range_pop()


class Recorder:
    """Records one sequence of a model between __enter__ and __exit__; see record()."""

    def __init__(
        self,
        model,
        path,
        layers=None,
        query_window=64,
        values=(),
        prompt_tokens=None,
        name="",
        provenance="",
        parameters=None,
    ):
        self.model = model
        self.path = os.fspath(path)
        config = text_config(model)
        if getattr(config, "kv_lora_rank", None):
            raise CaptureError(
                f"{config.model_type} has latent attention (MLA)",
                "model",
                "its cache holds one latent vector a token for all heads, which no method here "
                "replays: capture a model whose cache holds keys and values by head",
            )
        attending = attending_layers(config)
        self.layers = sorted(set(attending if layers is None else layers))
        self.values = sorted(set(values))
        for layer in [*self.layers, *self.values]:
            if not 0 <= layer < config.num_hidden_layers:
                raise CaptureError(
                    f"no layer {layer}",
                    "layers, values",
                    f"give 0 to {config.num_hidden_layers - 1}",
                )
            if layer not in attending:
                raise CaptureError(
                    f"layer {layer} is of kind {config.layer_types[layer]} and has no keys",
                    "layers",
                    f"record {','.join(map(str, attending))}",
                )
        if not self.layers:
            raise CaptureError("no layers to record", "layers", "name at least one")
        if not set(self.values) <= set(self.layers):
            raise CaptureError(
                "values asked for layers that are not recorded",
                "values",
                "name these layers in `layers` too",
            )
        self.query_window = query_window
        self.prompt_tokens = prompt_tokens
        self.tokens = 0  # recorded so far
        self.decoding = False
        self.turns = []  # [tokens of the prompt, tokens decoded after it]
        self._name = name
        self._provenance = provenance
        self._parameters = {
            "layers": ",".join(map(str, self.layers)),
            "values": ",".join(map(str, self.values)),
            "query_window": query_window,
            "attention": config._attn_implementation,
            **(parameters or {}),
        }
        self._absent = sorted(set(range(config.num_hidden_layers)) - set(attending))
        self._described = set()  # layers whose attention the file knows
        self._wanted = frozenset(self.layers)
        self._wanted_values = frozenset(self.values)
        self._modules = frozenset(map(id, model.modules()))
        self._step = None  # the rows of the running step, by layer
        self._step_tokens = 0
        self._handles = []
        self._hook = None
        self._experts = None
        self._recorder = None

    def __enter__(self):
        device = next(self.model.parameters()).device
        self._device = device
        self._nvtx = device.type == "cuda"
        self._library = Library()
        description = Description(
            self.model, device, self._name, self._provenance, self._parameters
        )
        self._frequencies = self._current_frequencies()
        options = Options(self.query_window, 64, 256 << 20)
        recorder = ctypes.c_void_p()
        self._library.recorder_open(
            os.fsencode(self.path),
            ctypes.byref(description.info),
            ctypes.byref(options),
            ctypes.byref(recorder),
        )
        self._recorder = recorder
        try:
            self._channel = Channel(self._library, recorder, device)
            self._attach()
            self._describe()
        except BaseException:
            self._detach()
            self._free()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self._detach()
        try:
            if kind is None:
                self._finish()
            else:
                # The file keeps what arrived, and reads as truncated.
                with contextlib.suppress(Exception):
                    self._channel.drain()
        finally:
            self._free()

    def expert_counts(self):
        """How often each layer's router chose each expert: [(layer, tokens of the prompt by expert,
        decoded tokens by expert)]; empty where the model has no experts."""
        return self._experts.counts()

    def set_parameter(self, name, value):
        """Adds to the parameters in the file's description."""
        self._library.recorder_set_parameter(self._recorder, encoded(name), encoded(value))

    def _describe(self):
        """What is known of the model before it runs."""
        for layer in self._absent:
            self._set_attention(layer, Attention(absent=1))
        if self._experts.shape:
            count, chosen, width = self._experts.shape
            self._library.recorder_set_experts(
                self._recorder,
                ctypes.byref(Experts(count=count, per_token=chosen, intermediate=width)),
            )

    def _set_attention(self, layer, attention):
        self._library.recorder_set_attention(self._recorder, layer, ctypes.byref(attention))

    def _finish(self):
        self._channel.drain()
        for layer, prompt, decode in self.expert_counts():
            numbers = ctypes.c_int64 * len(prompt)
            self._library.recorder_set_expert_use(
                self._recorder, layer, len(prompt), numbers(*prompt), numbers(*decode)
            )
        if self.turns and not self.decoding:
            self._library.recorder_begin_decode(self._recorder, self.tokens)
        if len(self.turns) > 1:
            # The decode steps that are replayed are those after the last prompt.
            turns = ", ".join(f"{prompt}+{decoded}" for prompt, decoded in self.turns)
            self.set_parameter("turns", turns)
        if self._frequencies != self._current_frequencies():
            self.set_parameter("rope_changed", "the inverse frequencies changed during the run")
        self._library.recorder_close(self._recorder)

    def _free(self):
        if self._recorder is not None:
            self._library.free(self._recorder)
            self._recorder = None

    def _current_frequencies(self):
        return [frequencies.tolist() for _, frequencies in rotations(self.model)]

    def _attach(self):
        config = text_config(self.model)
        decoder = next(
            (
                m
                for m in self.model.modules()
                if isinstance(m, torch.nn.ModuleList) and len(m) == config.num_hidden_layers
            ),
            [],
        )
        self._experts = ExpertCounts(config, decoder, self._device)
        self._hook = AttentionHook(self.model, self._attention)
        self._handles.append(
            self.model.register_forward_pre_hook(self._begin_step, with_kwargs=True)
        )
        self._handles.append(self.model.register_forward_hook(self._end_step))
        if self._nvtx:
            for index, layer in enumerate(decoder):
                self._handles.append(
                    layer.register_forward_pre_hook(_nvtx_push(f"stallcast layer {index}"))
                )
                self._handles.append(layer.register_forward_hook(_nvtx_pop))

    def _detach(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._experts is not None:
            self._experts.remove()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @torch.compiler.disable
    def _begin_step(self, module, arguments, keywords):
        self._step = {}
        self._step_tokens = 0
        self._channel.wait_for_copies()
        # "cache" in newer versions of transformers.
        cache = keywords.get("cache", keywords.get("past_key_values"))
        # A static cache counts on the device: asking it every step would stall the model.
        length = cache.get_seq_length() if cache is not None else 0
        if self.tokens == 0 or isinstance(length, int):
            length = int(length)
            if length != self.tokens:
                raise CaptureError(
                    f"the model's cache holds {length} tokens, {self.tokens} are recorded",
                    self.path,
                    "record one sequence a file, from its first token, with use_cache=True and "
                    "without rolling tokens back",
                )
        mask = keywords.get("attention_mask")
        if (
            self.tokens == 0
            and isinstance(mask, torch.Tensor)
            and mask.dim() == 2
            and not mask.all()
        ):
            raise CaptureError(
                "the prompt is padded", "attention_mask", "pass one prompt without padding"
            )
        if self._nvtx:
            torch.cuda.nvtx.range_push(f"stallcast step at token {self.tokens}")

    def _attention(self, base, module, query, key, value, *arguments, **keywords):
        layer = getattr(module, "layer_idx", None)
        if layer in self._wanted and id(module) in self._modules:
            self._take(layer, query, key, value, keywords)
        return base(module, query, key, value, *arguments, **keywords)

    @torch.no_grad()
    def _take(self, layer, query, key, value, keywords):
        place = f"layer {layer}, token {self.tokens}"
        if self._step is None:
            raise CaptureError(
                "attention ran outside a call of the recorded model",
                place,
                "call the model that was given to record()",
            )
        if layer in self._step:
            raise CaptureError(
                "a layer computes attention twice in a step",
                place,
                "that is differential or cross-attention, which no method here replays: capture a "
                "decoder without it",
            )
        if query.dim() != 4 or query.shape[0] != 1:
            raise CaptureError(
                f"queries have the shape {list(query.shape)}",
                place,
                "run one sequence: batch 1, one beam",
            )
        if not query.dtype == key.dtype == value.dtype or query.dtype not in DTYPES:
            raise CaptureError(
                f"element types {query.dtype}, {key.dtype}, {value.dtype}",
                place,
                "run the model in bfloat16, float16 or float32",
            )
        if query.device != self._device:
            raise CaptureError(
                f"the layer runs on {query.device}, the model starts on {self._device}",
                place,
                "put the whole model on one device",
            )
        count = query.shape[2]
        if not self._step:
            self._start(count)
        if layer not in self._described:
            self._described.add(layer)
            attention = LayerAttention(text_config(self.model), layer, query, key, keywords)
            self._set_attention(layer, attention.structure())
            if attention.soft_cap and self._parameters["attention"] == "sdpa":
                warnings.warn(
                    "the model caps its logits, which sdpa attention leaves out: "
                    'load it with attn_implementation="eager"',
                    stacklevel=2,
                )
        # The new tokens are the last ones (a sliding window's cache has dropped the oldest), except
        # in a static cache, which is padded behind them.
        start = min(self.tokens, key.shape[2] - count)
        wanted = self._step[layer] = [(QUERY, query[0]), (KEY, key[0, :, start : start + count])]
        if layer in self._wanted_values:
            wanted.append((VALUE, value[0, :, start : start + count]))
        if count > 1 or not self.decoding:
            for kind, tensor in wanted:
                skipped = 0
                if kind == QUERY and not self.turns:
                    skipped = max(0, count - self.query_window)
                if skipped < count:
                    self._channel.send(kind, layer, self.tokens + skipped, tensor[:, skipped:])
            self._step[layer] = ()  # holds no memory of the model

    def _start(self, count):
        """Settles whether a step of `count` tokens is prompt or decoding."""
        self._step_tokens = count
        known = self.prompt_tokens  # where given, of the first prompt
        if self.turns or known is None:
            decodes = count == 1 and self.tokens > 0
        else:
            decodes = self.tokens == known
            if not decodes and self.tokens + count > known:
                raise CaptureError(
                    f"a step takes tokens {self.tokens} to {self.tokens + count}, across the end "
                    f"of the prompt of {known}",
                    "prompt_tokens",
                    "give the prompt's true length",
                )
        if decodes and not self.decoding:
            self.turns.append([self.tokens - sum(map(sum, self.turns)), 0])
            self.prompt_tokens = self.tokens
            self._channel.begin_decode(self.tokens)
        self.decoding = decodes
        if decodes:
            self.turns[-1][1] += count

    @torch.compiler.disable
    @torch.no_grad()
    def _end_step(self, module, arguments, output):
        step, self._step = self._step, None
        missing = self._wanted.difference(step)
        if missing:
            raise CaptureError(
                f"layers {sorted(missing)} did not call the attention interface",
                self.path,
                "record layers of softmax attention only",
            )
        if self.decoding and self._step_tokens == 1:
            parts = [
                (kind, layer, tensor[:, 0])
                for layer, tensors in step.items()
                for kind, tensor in tensors
            ]
            self._channel.stage(self.tokens, parts)
        self._experts.end_step(self.decoding)
        self.tokens += self._step_tokens
        self._channel.poll()
        if self._nvtx:
            torch.cuda.nvtx.range_pop()


def record(
    model,
    path,
    layers=None,
    query_window=64,
    values=(),
    prompt_tokens=None,
    name="",
    provenance="",
    parameters=None,
):
    """A context manager that records what `model` computes inside it into the file `path`.

    layers: whose queries and keys are kept, all by default; values: whose values are kept too.
    prompt_tokens: needed only where the prompt comes in several calls, of which one has one token;
    else the prompt ends before the first call of one token. name, provenance, parameters: texts for
    the file's description. Raises CaptureError."""
    return Recorder(
        model, path, layers, query_window, values, prompt_tokens, name, provenance, parameters
    )
