"""The Python hook on small random models: what the file holds equals, bit by bit, what the models
handed to their caches and attention functions. With the folder of a real model as argument: the
same on that model."""

import contextlib
import os
import pathlib
import sys
import tempfile
import unittest

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "capture" / "python"))
from stallcast_capture import CaptureError, KEY, QUERY, VALUE, read, record
from stallcast_capture.description import Description

SHAPE = {
    "vocab_size": 128,
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
# Before transformers 5, models called their own eager attention without looking into the table.
ASKS_FOR_EAGER = hasattr(transformers.AttentionInterface, "get_interface")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_model(family, attention="sdpa", dtype=torch.bfloat16, **extra):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SHAPE, **extra)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.to(DEVICE, dtype).eval()


def prompt(length, batch=1):
    return torch.randint(1, 128, (batch, length), generator=torch.Generator().manual_seed(1)).to(
        DEVICE
    )


class Witness:
    """Keeps clones of the keys and values that enter the cache and of the queries that enter the
    attention function: by other ways than the recorder's."""

    def __init__(self, attention="sdpa"):
        self.rows = {}
        self._attention = attention

    def add(self, kind, layer, rows):
        self.rows.setdefault((kind, layer), []).append(rows[0].detach().cpu().clone())

    def tensor(self, kind, layer):
        return torch.cat(self.rows[kind, layer], dim=1)

    def __enter__(self):
        self._update = transformers.Cache.update
        self._mapping = transformers.AttentionInterface._global_mapping
        self._base = self._mapping.get(self._attention)

        def update(cache, keys, values, layer, *rest, **more):
            self.add(KEY, layer, keys)
            self.add(VALUE, layer, values)
            return self._update(cache, keys, values, layer, *rest, **more)

        def attend(module, query, *rest, **more):
            self.add(QUERY, module.layer_idx, query)
            base = self._base or sys.modules[type(module).__module__].eager_attention_forward
            return base(module, query, *rest, **more)

        transformers.Cache.update = update
        self._mapping[self._attention] = attend
        return self

    def __exit__(self, *_):
        transformers.Cache.update = self._update
        if self._base is None:
            del self._mapping[self._attention]
        else:
            self._mapping[self._attention] = self._base


class HookTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.kvt")

    def expect_file(self, witness, layers, values=(), tokens=None, queries_from=0):
        for layer in layers:
            for kind in [QUERY, KEY] + [VALUE] * (layer in values):
                expected = witness.tensor(kind, layer)[:, :tokens]
                first = queries_from if kind == QUERY else 0
                found, found_first = read(self.path, kind, layer)
                self.assertEqual(found_first, first)
                self.assertTrue(torch.equal(found, expected[:, first:]), (kind, layer))

    def expect_error(self, text, action):
        with self.assertRaises(CaptureError) as caught:
            action()
        self.assertIn(text, str(caught.exception))
        self.assertIn("; ", str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def generate(self, model, length=100, new=40, **how):
        return model.generate(prompt(length), max_new_tokens=new, do_sample=False, **how)

    def test_families(self):
        for family in ["llama", "qwen2", "qwen3", "mistral"]:
            for attention in ["sdpa", "eager"]:
                with self.subTest(family=family, attention=attention):
                    extra = {"sliding_window": None} if family == "mistral" else {}
                    model = make_model(family, attention, **extra)
                    if attention == "eager" and not ASKS_FOR_EAGER:
                        self.expect_error("sdpa", record(model, self.path).__enter__)
                        continue
                    with Witness(attention) as witness:
                        with record(model, self.path, values=[1]) as recorder:
                            self.generate(model)
                    self.assertEqual((recorder.prompt_tokens, recorder.tokens), (100, 139))
                    self.expect_file(witness, [0, 1, 2], [1], queries_from=100 - 64)

    def test_element_types(self):
        for dtype in [torch.float16, torch.float32]:
            model = make_model("llama", dtype=dtype)
            with Witness() as witness, record(model, self.path, layers=[1]):
                self.generate(model)
            self.expect_file(witness, [1], queries_from=36)

    def test_recording_changes_no_token(self):
        model = make_model("llama")
        plain = self.generate(model)
        with record(model, self.path):
            recorded = self.generate(model)
        self.assertTrue(torch.equal(plain, recorded))

    def test_static_cache_is_padded(self):
        model = make_model("llama")
        with Witness() as witness, record(model, self.path, values=[0]):
            self.generate(model, cache_implementation="static", disable_compile=True)
        self.expect_file(witness, [0, 1, 2], [0], queries_from=36)

    def test_sliding_window(self):
        for cache in ["dynamic", "static"]:
            with self.subTest(cache=cache):
                model = make_model("mistral", sliding_window=32)
                with Witness() as witness, record(model, self.path):
                    self.generate(model, cache_implementation=cache, disable_compile=True)
                self.expect_file(witness, [0, 1, 2], queries_from=36)

    @torch.no_grad()
    def test_rope_that_layers_do_not_share_is_not_given(self):
        thetas = {"full_attention": 1e6, "sliding_attention": 1e4}
        rope = {
            kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()
        }
        kinds = ["sliding_attention", "sliding_attention", "full_attention"]
        extra = {"rope_parameters": rope, "layer_types": kinds} if ASKS_FOR_EAGER else {}
        model = make_model("gemma3_text", **extra)
        with record(model, self.path) as recorder:
            self.generate(model, 10, 5)
        self.assertEqual(recorder.tokens, 14)
        info = Description(model, torch.device(DEVICE), "", "", {}).info
        self.assertEqual((info.rope_type, info.inverse_frequency_count), (b"several", 0))
        self.assertEqual(info.rope_theta, 0)
        info = Description(make_model("llama"), torch.device(DEVICE), "", "", {}).info
        self.assertEqual((info.rope_type, info.inverse_frequency_count), (b"default", 8))

    def test_prompt_in_portions(self):
        model = make_model("qwen3")
        cache = transformers.DynamicCache(config=model.config)
        tokens = prompt(151)
        with Witness() as witness, record(model, self.path, prompt_tokens=101, query_window=70):
            for part in [*tokens[:, :100].split(30, dim=1), *tokens[:, 100:].split(1, dim=1)]:
                model(input_ids=part, past_key_values=cache)
        self.expect_file(witness, [0, 1, 2], queries_from=101 - 70)

    @torch.no_grad()
    def test_several_decoded_tokens_in_a_step(self):
        model = make_model("llama")
        cache = transformers.DynamicCache(config=model.config)
        with Witness() as witness, record(model, self.path, prompt_tokens=64):
            for part in prompt(64 + 5 + 20 + 3).split([64, *[1] * 5, 20, *[1] * 3], dim=1):
                model(input_ids=part, past_key_values=cache)
        self.expect_file(witness, [0, 1, 2])

    @torch.no_grad()
    def test_a_second_prompt_in_the_cache_is_prompt(self):
        model = make_model("llama")
        cache = transformers.DynamicCache(config=model.config)
        with Witness() as witness, record(model, self.path, query_window=20) as recorder:
            for part in prompt(100 + 6 + 50 + 9).split([100, *[1] * 6, 50, *[1] * 9], dim=1):
                model(input_ids=part, past_key_values=cache)
        self.assertEqual(recorder.turns, [[100, 6], [50, 9]])
        self.assertEqual((recorder.prompt_tokens, recorder.tokens), (156, 165))
        self.expect_file(witness, [0, 1, 2], queries_from=80)

    def test_gradients_may_be_on(self):
        model = make_model("llama")
        cache = transformers.DynamicCache(config=model.config)
        with Witness() as witness, record(model, self.path):
            for part in prompt(70).split([60, *[1] * 10], dim=1):
                model(input_ids=part, past_key_values=cache)
        self.expect_file(witness, [0, 1, 2])

    def test_other_models_pass_by(self):
        model, other = make_model("llama"), make_model("llama")
        with record(model, self.path) as recorder:
            other.generate(prompt(20, batch=3), max_new_tokens=3)
            self.generate(model, 10, 5)
            other.generate(prompt(20, batch=3), max_new_tokens=3)
        self.assertEqual(recorder.tokens, 14)

    def test_nothing_stays_behind(self):
        model = make_model("llama")
        mapping = transformers.AttentionInterface._global_mapping
        before = dict(mapping)
        with contextlib.suppress(KeyboardInterrupt):
            with record(model, self.path):
                self.generate(model, 80, 20)
                raise KeyboardInterrupt
        self.assertEqual(mapping, before)
        self.assertFalse(model._forward_hooks or model._forward_pre_hooks)
        found, _ = read(self.path, KEY, 2)  # what was recorded before the interruption is kept
        self.assertEqual(found.shape[1], 99)

    def test_recorders_may_end_in_any_order(self):
        model, other = make_model("llama"), make_model("llama")
        first = record(model, self.path)
        second = record(other, self.path + ".other")
        first.__enter__()
        second.__enter__()
        self.generate(model, 10, 5)
        first.__exit__(None, None, None)
        self.generate(other, 12, 5)
        second.__exit__(None, None, None)
        self.generate(model, 10, 5)  # what is left in the table passes it by
        self.assertEqual((first.tokens, second.tokens), (14, 16))

    def test_wrong_use(self):
        model = make_model("llama")

        def run(*arguments, **keywords):
            def action():
                with record(model, self.path):
                    model.generate(*arguments, max_new_tokens=3, **keywords)

            return action

        self.expect_error("batch 1", run(prompt(9, batch=2)))
        self.expect_error("batch 1", run(prompt(9), num_beams=2))
        mask = torch.tensor([[0, 0, 1, 1, 1]], device=DEVICE)
        self.expect_error("padded", run(prompt(5), attention_mask=mask))
        self.expect_error("use_cache=True", run(prompt(9), use_cache=False))
        self.expect_error("no layer 3", lambda: record(model, self.path, layers=[3]))
        self.expect_error("no layers", lambda: record(model, self.path, layers=[]))
        self.expect_error("values", lambda: record(model, self.path, layers=[0], values=[1]))
        self.expect_error("/no/such", record(model, "/no/such/folder/x.kvt").__enter__)

        def two_sequences():
            with record(model, self.path):
                self.generate(model, 9, 3)
                self.generate(model, 9, 3)

        self.expect_error("one sequence a file", two_sequences)

        def inner_model():
            with record(model, self.path):
                model.model(prompt(9))

        self.expect_error("call the model that was given", inner_model)

    def test_full_disk(self):
        model = make_model("llama")

        def action():
            with record(model, "/dev/full"):
                self.generate(model)

        self.expect_error("/dev/full", action)

    @unittest.skipIf(len(sys.argv) < 2, "no folder of a real model given")
    def test_real_model(self):
        folder = sys.argv[1]
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").to(DEVICE)
        tokens = (
            torch.frombuffer(
                bytearray(pathlib.Path(folder, "held_tokens_u16.bin").read_bytes()[:1024]),
                dtype=torch.uint16,
            )
            .long()
            .unsqueeze(0)
            .to(DEVICE)
        )
        count = model.config.num_hidden_layers
        with Witness() as witness, record(model, self.path, values=[2]) as recorder:
            out = model.generate(
                tokens,
                max_new_tokens=40,
                min_new_tokens=40,
                do_sample=False,
                return_dict_in_generate=True,
            )
        self.assertEqual(recorder.prompt_tokens, 512)
        self.expect_file(witness, range(count), [2], queries_from=448)
        for layer in range(count):
            kept = out.past_key_values.layers[layer].keys[0].cpu()
            self.assertTrue(torch.equal(read(self.path, KEY, layer)[0], kept))


if __name__ == "__main__":
    torch.set_num_threads(1)  # the models are tiny
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    unittest.main(argv=sys.argv[:1], verbosity=2)
