"""Prefill and decode of a model, step by step."""

import contextlib
import inspect
import math
import time

import torch
import transformers


def cache_argument(model):
    """What this transformers calls the cache that a model is called with."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class Generation:
    """One sequence: its prompt, and the tokens that the model draws after it."""

    def __init__(self, model, tokens, options):
        self.model = model
        self._cache_argument = cache_argument(model)
        self.tokens = tokens.to(model.device).unsqueeze(0)
        self.chunk = options.chunk or len(tokens)
        self.temperature = options.temperature
        self.generator = torch.Generator(model.device).manual_seed(options.seed)
        self.loss = math.nan  # mean over the prompt's last tokens, nats
        self.loss_tokens = 0
        self.decoded = []  # drawn so far

    def prefill(self, progress):
        """Runs the prompt in a new cache; returns the seconds."""
        self.cache = transformers.DynamicCache(config=self.model.config)
        length = self.tokens.shape[1]
        self._synchronize()
        begin = time.perf_counter()
        for first in range(0, length, self.chunk):
            progress.at(first, length)
            part = self.tokens[:, first : first + self.chunk]
            kept = min(part.shape[1], 1025)
            logits = self._forward(part, logits_to_keep=kept)
        self._synchronize()
        seconds = time.perf_counter() - begin
        self.loss_tokens = kept - 1
        if self.loss_tokens:
            self.loss = torch.nn.functional.cross_entropy(
                logits[0, :-1].float(), part[0, -self.loss_tokens :]
            ).item()
        self.next = self._choose(logits)
        self.decoded = [self.next.item()]
        return seconds

    def decode(self, steps, marker=contextlib.nullcontext, progress=None):
        """Decodes, each step in a marker(step); returns the seconds of each step."""
        seconds = []
        for step in range(steps):
            if progress:
                progress.at(step, steps)
            begin = time.perf_counter()
            with marker(step):
                logits = self._forward(self.next)
                self.next = self._choose(logits)
                self.decoded.append(self.next.item())  # as generate() does to look for the end
            seconds.append(time.perf_counter() - begin)
        return seconds

    def _forward(self, tokens, **more):
        cache = {self._cache_argument: self.cache}
        return self.model(input_ids=tokens, use_cache=True, **cache, **more).logits

    def _choose(self, logits):
        last = logits[:, -1].float()
        if self.temperature <= 0:
            return last.argmax(-1, keepdim=True)
        return torch.multinomial((last / self.temperature).softmax(-1), 1, generator=self.generator)

    def _synchronize(self):
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()
