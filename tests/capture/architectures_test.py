"""The hook on tiny models of many architectures, with random weights: recording changes no token,
the file's keys and values are the cache's, and the attention mass that `stallcast predict` gives is
that of the weights which the model's own eager attention computes. What cannot be recorded is
refused for the true reason. $STALLCAST_PROGRAM names the program; without it, no mass is compared.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "capture" / "python"))
from stallcast_capture import CaptureError, KEY, QUERY, VALUE, read, record

PROMPT, DECODE = 97, 24
SINK, BUDGET = 4, 40  # of the method `streaming`
TOKENS = {"bos_token_id": 1, "eos_token_id": 127, "pad_token_id": 0}
SHAPE = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    **TOKENS,
}
SLIDES = {"sliding_window": 32}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
MIXTURE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
OTHER = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
LATENT = {
    **SHAPE,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
del LATENT["head_dim"]

RECORDED = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": SLIDES,
    "gemma": {},
    "gemma2": {**SLIDES, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0},
    "gemma3_text": {**SLIDES, "query_pre_attn_scalar": 16, "layer_types": MIXED},
    "phi3": {},
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512},
    "gpt_neox": {"rotary_pct": 0.25},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**MIXTURE, "num_experts": 4, "decoder_sparse_step": 1},
    "gpt_oss": {**SLIDES, "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": MIXED},
    "qwen3_next": {
        **MIXTURE,
        "num_experts": 4,
        "shared_expert_intermediate_size": 32,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "num_hidden_layers": 4,
    },
    "olmo2": {},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64, "max_position_embeddings": 512},
    "cohere2": SLIDES,
    "starcoder2": {},
    "glm4": {"partial_rotary_factor": 0.5},
    "smollm3": {},
    "llama4_text": {
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 96,
        "attention_chunk_size": 32,
    },
    "exaone4": {**SLIDES, "sliding_window_pattern": 3},
    "nemotron": {},
    "granite": {"attention_multiplier": 0.25},
}
ROUTED = {"mixtral": 2, "qwen3_moe": 2, "gpt_oss": 2, "qwen3_next": 2, "llama4_text": 1}
OWN_CODE = "in code of its own"
REFUSED = {
    "deepseek_v3": (
        {**LATENT, "q_lora_rank": 48, "n_routed_experts": 8, "n_group": 2, "topk_group": 1},
        "latent attention",
    ),
    "deepseek_v2": ({**LATENT, "q_lora_rank": None, "first_k_dense_replace": 3}, "latent attention"),
    "falcon": ({**OTHER, **TOKENS, "alibi": False}, OWN_CODE),
    "bloom": ({**OTHER, **TOKENS, "n_layer": 3, "n_head": 4}, OWN_CODE),
    "diffllama": (SHAPE, "attention twice in a step"),
}


def make(family, settings, attention):
    torch.manual_seed(0)
    try:
        config = transformers.AutoConfig.for_model(family, **settings)
    except ValueError as error:
        raise unittest.SkipTest(f"this transformers has no {family}: {error}") from None
    try:
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    except ValueError as error:
        raise unittest.SkipTest(str(error).split(". ")[0]) from None
    return model.float().eval()


def generate(model):
    prompt = torch.randint(2, 120, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    return model.generate(
        prompt,
        max_new_tokens=DECODE,
        min_new_tokens=DECODE,
        do_sample=False,
        return_dict_in_generate=True,
    )


class OwnWeights:
    """Of each layer and decode step, the share of the model's own attention weights that lies on the
    first SINK tokens and the last BUDGET - SINK: mean over query heads."""

    def __init__(self):
        self.shares = {}

    def __enter__(self):
        self._mapping = transformers.AttentionInterface._global_mapping
        self._before = self._mapping.get("eager")

        def attend(module, query, key, *rest, **more):
            base = self._before or sys.modules[type(module).__module__].eager_attention_forward
            output, weights = base(module, query, key, *rest, **more)
            if query.shape[2] == 1:
                self._add(module.layer_idx, weights[0, :, 0].double())
            return output, weights

        self._mapping["eager"] = attend
        return self

    def __exit__(self, *_):
        if self._before is None:
            del self._mapping["eager"]
        else:
            self._mapping["eager"] = self._before

    def _add(self, layer, weights):
        shares = self.shares.setdefault(layer, [])
        tokens = PROMPT + len(shares) + 1
        hidden = tokens - weights.shape[1]  # a window's cache has dropped the oldest
        kept = torch.arange(hidden, tokens)
        kept = (kept < SINK) | (kept >= tokens - (BUDGET - SINK))
        shares.append((weights[:, kept].sum(1) / weights.sum(1)).mean().item())

    def mean(self):
        return sum(sum(shares) / len(shares) for shares in self.shares.values()) / len(self.shares)


class Architectures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.kvt")

    def expect_cache(self, recorder, cache):
        for layer in recorder.layers:
            for kind, expected in [
                (KEY, cache.layers[layer].keys),
                (VALUE, cache.layers[layer].values),
            ]:
                found, first = read(self.path, kind, layer)
                self.assertEqual((first, found.shape[1]), (0, PROMPT + DECODE - 1))
                kept = expected.shape[2]  # a window's cache has dropped the oldest
                self.assertTrue(torch.equal(found[:, -kept:], expected[0]), (kind, layer))
            found, first = read(self.path, QUERY, layer)
            self.assertEqual(first + found.shape[1], PROMPT + DECODE - 1)

    def predict(self, method):
        program = os.environ.get("STALLCAST_PROGRAM")
        if not program:
            return None
        command = [program, "predict", self.path, "--method", method, "--budget", str(BUDGET)]
        command += ["-p", f"sink={SINK}", "--format", "json", "--no-cache"]
        command += ["--model", "llama-3.1-8b"]  # whose mass it is does not depend on it
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_recorded(self):
        for family, settings in RECORDED.items():
            for attention in ["sdpa", "eager"]:
                with self.subTest(family=family, attention=attention):
                    shape = {**OTHER, **TOKENS} if family in ("gpt2", "opt") else SHAPE
                    if family == "gpt2":
                        shape = {"vocab_size": 128, **TOKENS}
                    model = make(family, {**shape, **settings}, attention)
                    layers = model.config.get_text_config(decoder=True).num_hidden_layers
                    plain = generate(model)
                    everything = range(layers) if family != "qwen3_next" else [3]
                    with OwnWeights() as weights:
                        with record(model, self.path, values=everything) as recorder:
                            recorded = generate(model)
                    self.assertTrue(torch.equal(plain.sequences, recorded.sequences))
                    self.assertEqual(recorder.layers, list(everything))
                    self.expect_cache(recorder, recorded.past_key_values)
                    counts = recorder.expert_counts()
                    for _, prompt, decode in counts:
                        self.assertEqual(sum(prompt), PROMPT * ROUTED[family])
                        self.assertEqual(sum(decode), (DECODE - 1) * ROUTED[family])
                    self.assertEqual(bool(counts), family in ROUTED)
                    if attention == "eager" and (prediction := self.predict("streaming")):
                        self.assertAlmostEqual(prediction["mass"], weights.mean(), delta=1e-4)

    def test_refused(self):
        for family, (settings, reason) in REFUSED.items():
            with self.subTest(family=family):
                model = make(family, settings, "sdpa" if "kv_lora_rank" in settings else "eager")
                with self.assertRaises(CaptureError) as caught:
                    with record(model, self.path):
                        generate(model)
                self.assertIn(reason, str(caught.exception))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # the models are tiny
    transformers.utils.logging.set_verbosity_error()
    unittest.main(verbosity=2)
