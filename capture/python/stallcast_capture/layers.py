"""What each layer's attention does, as the model calls it."""

import ctypes

from .library import Attention

ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")


def attending_layers(config):
    """The layers that have keys; others mix tokens in another way."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return [layer for layer, kind in enumerate(kinds) if kind in ATTENDING]


class LayerAttention:
    """One layer's attention, from its first call: the arguments that the model gives its attention
    function, and where it gives none, the configuration."""

    def __init__(self, config, layer, query, key, keywords):
        kinds = getattr(config, "layer_types", None)
        kind = kinds[layer] if kinds else ""
        window = keywords.get("sliding_window")
        if kind == "sliding_attention" and not window:
            window = getattr(config, "sliding_window", None)
        chunk = getattr(config, "attention_chunk_size", None)
        sinks = keywords.get("s_aux")
        self.window = int(window or 0)
        self.chunk = int(chunk or 0) if kind == "chunked_attention" else 0
        self.soft_cap = float(keywords.get("softcap") or 0)
        self.scale = float(keywords.get("scaling") or 0)
        self.sinks = [] if sinks is None else sinks.double().flatten().tolist()
        self.query_heads, self.kv_heads = query.shape[1], key.shape[1]
        self.head_dim = query.shape[3]

    def structure(self):
        sinks = (ctypes.c_double * len(self.sinks))(*self.sinks)
        return Attention(
            window=self.window,
            chunk=self.chunk,
            soft_cap=self.soft_cap,
            softmax_scale=self.scale,
            query_heads=self.query_heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            sink_count=len(self.sinks),
            sinks=sinks,
        )
