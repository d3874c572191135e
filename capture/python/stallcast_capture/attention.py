"""Puts a function in place of a model's attention."""

import sys

import torch
import transformers

from .description import text_config
from .errors import CaptureError


class AttentionHook:
    """Puts `function(base, module, ...)` in place of the attention implementation that the model
    uses, under the same name, so that masks and kernels are chosen as before."""

    def __init__(self, model, function):
        if not hasattr(transformers, "AttentionInterface"):
            raise CaptureError(
                "this transformers has no AttentionInterface",
                transformers.__version__,
                "install 4.51 or newer",
            )
        self._name = text_config(model)._attn_implementation or "eager"
        if self._name == "eager" and not hasattr(transformers.AttentionInterface, "get_interface"):
            # Models of these versions call their own function without asking the table.
            raise CaptureError(
                f"eager attention cannot be recorded with transformers {transformers.__version__}",
                "attn_implementation",
                'load the model with "sdpa", or install transformers 5',
            )
        self._function = function
        interfaces = {
            id(interface): interface
            for interface in map(self._interface_of, model.modules())
            if interface is not None
        }
        if not interfaces:
            raise CaptureError(
                f"{type(model).__name__} computes attention in code of its own, not through "
                "transformers' attention interface, so a hook cannot see it",
                "model",
                "capture a model of another architecture: most recent ones use the interface",
            )
        shared = transformers.AttentionInterface._global_mapping
        self._mappings = [shared] + [
            interface._local_mapping
            for interface in interfaces.values()
            if self._name in interface._local_mapping
        ]
        self._originals = [mapping.get(self._name) for mapping in self._mappings]
        self._wrappers = [self._wrap(original) for original in self._originals]
        for mapping, wrapper in zip(self._mappings, self._wrappers):
            mapping[self._name] = wrapper

    @staticmethod
    def _interface_of(module):
        if not hasattr(module, "layer_idx"):
            return None
        return getattr(sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS", None)

    def _wrap(self, original):
        @torch.compiler.disable
        def attention(module, *arguments, **keywords):
            # "eager" is not in the table: each modelling file has its own.
            base = original or sys.modules[type(module).__module__].eager_attention_forward
            return self._function(base, module, *arguments, **keywords)

        return attention

    def remove(self):
        # Another recorder may have come in between, which calls this one's wrapper until it ends.
        self._function = lambda base, module, *arguments, **keywords: base(
            module, *arguments, **keywords
        )
        for mapping, original, wrapper in zip(self._mappings, self._originals, self._wrappers):
            if mapping.get(self._name) is not wrapper:
                continue
            if original is None:
                mapping.pop(self._name, None)
            else:
                mapping[self._name] = original
