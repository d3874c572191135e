"""Counts how often each expert of a mixture is chosen."""

import torch

from .description import experts_of


class ExpertCounts:
    """Counts on the model's device, of prompt and decoded tokens apart. Where a layer has no router
    that is known, it counts nothing."""

    def __init__(self, config, decoder, device):
        self.shape = experts_of(config)
        self.layers = []  # that have a router
        self._handles = []
        if self.shape is None:
            return
        count, chosen, _ = self.shape
        for layer, block in enumerate(decoder):
            for module in block.modules():
                weight = getattr(module, "weight", None)
                if isinstance(weight, torch.Tensor) and weight.shape == (count, config.hidden_size):
                    hook = self._hook(len(self.layers), chosen)
                    self._handles.append(module.register_forward_hook(hook))
                    self.layers.append(layer)
                    break
        with torch.inference_mode(False):
            shape = (len(self.layers), count)
            self._step = torch.zeros(shape, dtype=torch.int64, device=device)
            self._counts = torch.zeros((2, *shape), dtype=torch.int64, device=device)

    def _hook(self, index, chosen):
        @torch.compiler.disable
        @torch.no_grad()
        def count(module, arguments, output):
            parts = output if isinstance(output, tuple) else (output,)
            picked = next(
                (
                    part
                    for part in parts
                    if isinstance(part, torch.Tensor)
                    and not part.is_floating_point()
                    and part.shape[-1] == chosen
                ),
                None,
            )
            if picked is None:  # a plain linear layer: the largest logits are taken behind it
                picked = parts[0].topk(chosen, dim=-1).indices
            picked = picked.flatten()
            self._step[index].scatter_add_(0, picked.long(), torch.ones_like(picked, dtype=torch.int64))

        return count

    def end_step(self, decoding):
        """Takes what the step counted for decoded tokens, or for the prompt's."""
        if self.layers:
            self._counts[int(decoding)] += self._step
            self._step.zero_()

    def counts(self):
        """By layer: (layer, of the prompt by expert, of decoded tokens by expert)."""
        if not self.layers:
            return []
        prompt, decode = self._counts.tolist()
        return list(zip(self.layers, prompt, decode))

    def remove(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
