"""The command: runs a model on a prompt, decodes, and records."""

import argparse
import os
import pathlib
import shlex
import statistics
import sys
import time

import torch
import transformers

from .description import describe_machine, text_config
from .errors import CaptureError
from .generation import Generation
from .gpu_timeline import timeline
from .library import KEY, QUERY, VALUE, Library, read
from .progress import Progress
from .recorder import record

def _layer_list(text):
    layers = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        try:
            layers.extend(range(int(first), int(last or first) + 1))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"'{part}' is no layer or range: write 0-3,5"
            ) from None
    return layers


def _parse(arguments):
    parser = argparse.ArgumentParser(
        prog="stallcast_capture",
        description="Runs a model on a prompt and decodes; records its queries, keys and values.",
    )
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--model", help="folder or name of the model")
    given.add_argument("--gguf", metavar="FILE", help="the model as a GGUF file (packages gguf, accelerate)")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--tokens", metavar="FILE", help="file of little-endian token ids")
    source.add_argument(
        "--prompt-text", metavar="FILE", help="text file, split by the model's tokenizer"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the .kvt file to write")

    text = parser.add_argument_group("which tokens")
    text.add_argument(
        "--token-bytes", type=int, choices=[2, 4], default=2, help="bytes of an id (2)"
    )
    text.add_argument(
        "--offset", type=int, default=0, metavar="N", help="first token of the prompt (0)"
    )
    text.add_argument("--prompt", type=int, metavar="N", help="tokens of the prompt (all)")
    text.add_argument(
        "--decode", type=int, default=256, metavar="N", help="tokens to decode (256)"
    )
    text.add_argument(
        "--temperature", type=float, default=0.8, metavar="T", help="0: the likeliest token (0.8)"
    )
    text.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (0)")
    text.add_argument("--text", metavar="FILE", help="keep the decoded text in this file")

    kept = parser.add_argument_group("what is recorded")
    kept.add_argument(
        "--layers", type=_layer_list, metavar="LIST", help="layers to record, as 0-3,5 (all)"
    )
    kept.add_argument(
        "--values",
        type=_layer_list,
        default=[],
        metavar="LIST",
        help="layers whose values to record (none)",
    )
    kept.add_argument(
        "--query-window",
        type=int,
        default=64,
        metavar="N",
        help="last prompt tokens whose queries are kept (64)",
    )
    kept.add_argument(
        "--timeline",
        metavar="FILE",
        help="also record the GPU's timeline of 64 steps, without tensors, to this .kvt",
    )
    kept.add_argument("--name", default="", help="name of the model in the file")
    kept.add_argument("--provenance", default="", help="who captured this, and from what")

    how = parser.add_argument_group("how the model runs")
    how.add_argument(
        "--chunk", type=int, default=0, metavar="N", help="prompt tokens a call (0: all at once)"
    )
    how.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cuda or cpu (a GPU where there is one)",
    )
    how.add_argument(
        "--dtype",
        choices=["auto", "bfloat16", "float16", "float32"],
        default="auto",
        help="of the weights (auto: as stored)",
    )
    how.add_argument("--attention", default="sdpa", help="attention implementation (sdpa)")
    how.add_argument(
        "--baseline",
        action=argparse.BooleanOptionalAction,
        help="time steps without recording too (on a GPU)",
    )
    how.add_argument(
        "--check",
        action="store_true",
        help="read the file back and compare its keys and values with the model's cache",
    )
    return parser.parse_args(arguments)


def _source(options):
    """The model's place, and what from_pretrained() needs to find it there."""
    if options.gguf:
        folder, name = os.path.split(os.path.abspath(options.gguf))
        if not os.path.isfile(options.gguf):
            raise CaptureError("no such file", options.gguf, "name a GGUF file")
        return folder, {"gguf_file": name}
    return options.model, {}


def _load_tokens(options, model, tokenizer):
    path = options.tokens or options.prompt_text
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise CaptureError(error.strerror, path, "name a readable file") from None
    if options.tokens:
        dtype = {2: torch.uint16, 4: torch.int32}[options.token_bytes]
        usable = len(data) - len(data) % options.token_bytes
        tokens = (
            torch.frombuffer(bytearray(data[:usable]), dtype=dtype).long()
            if usable
            else torch.tensor([])
        )
    else:
        tokens = tokenizer(data.decode("utf-8", "replace"), return_tensors="pt").input_ids[0]
    count = options.prompt if options.prompt is not None else len(tokens) - options.offset
    if options.offset < 0 or count < 2 or options.offset + count > len(tokens):
        raise CaptureError(
            f"tokens {options.offset} to {options.offset + count} of {len(tokens)}",
            path,
            "choose --offset and --prompt (at least 2) inside the file",
        )
    tokens = tokens[options.offset : options.offset + count]
    vocabulary = text_config(model).vocab_size
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        raise CaptureError(
            f"a token id is not below the vocabulary of {vocabulary}",
            path,
            "use this model's tokens and the right --token-bytes",
        )
    return tokens


def _check(path, recorder, cache):
    """Compares the file with the model's own cache, bit by bit."""
    for layer in recorder.layers:
        kinds = [(KEY, cache.layers[layer].keys)]
        if layer in recorder.values:
            kinds.append((VALUE, cache.layers[layer].values))
        for kind, expected in kinds:
            found, first = read(path, kind, layer)
            expected = expected[0, :, : recorder.tokens].cpu()
            if first != 0 or found.shape != expected.shape or not torch.equal(found, expected):
                raise CaptureError(
                    "the file differs from the model's cache",
                    f"{path}, layer {layer}",
                    "report this as a bug",
                )
        queries, first = read(path, QUERY, layer)
        prompt = recorder.prompt_tokens or recorder.tokens
        if (
            first != max(0, prompt - recorder.query_window)
            or first + queries.shape[1] != recorder.tokens
        ):
            raise CaptureError(
                f"queries cover tokens {first} to {first + queries.shape[1]}",
                f"{path}, layer {layer}",
                "report this as a bug",
            )
    return (
        f"keys of {len(recorder.layers)} layers, values of {len(recorder.values)}, "
        f"{recorder.tokens:,} tokens: equal to the model's cache, bit by bit"
    )


def _change(with_recording, without):
    return (
        f"{1e3 * with_recording:.3f} ms recording, {1e3 * without:.3f} ms without "
        f"({100 * (with_recording / without - 1):+.1f} %)"
    )


def _load(options, what, **how):
    """Loads a part of the model: what.from_pretrained()."""
    place, where = _source(options)
    try:
        return what.from_pretrained(place, **where, **how)
    except torch.OutOfMemoryError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise CaptureError(
            str(error).strip().splitlines()[0],
            options.gguf or options.model,
            "name a folder with config.json and weights, or a GGUF file",
        ) from None


def _load_model(options):
    dtype = "auto" if options.dtype == "auto" else getattr(torch, options.dtype)
    model = _load(
        options,
        transformers.AutoModelForCausalLM,
        attn_implementation=options.attention,
        dtype=dtype,
    ).eval()
    try:
        return model.to(options.device)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError) as error:
        raise CaptureError(
            str(error).splitlines()[0], options.device, "name a device that is there"
        ) from None


def _load_tokenizer(options):
    """Needed for texts alone."""
    if options.prompt_text or options.text:
        return _load(options, transformers.AutoTokenizer)
    return None


def _own_command():
    """This command; of absolute paths, which mean nothing on another machine, the last part."""
    return shlex.join(
        os.path.basename(word) if os.path.isabs(word) else word
        for word in [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    )


# Below this mean loss a model continues the text from memory: its attention is not that of a new one.
KNOWN_BY_HEART = 0.5  # nats


def _warn(text):
    print(f"stallcast_capture: warning: {text}", file=sys.stderr)


@torch.inference_mode()
def _record(options):
    if options.decode < 0 or options.chunk < 0 or options.query_window < 0:
        raise CaptureError("a negative number of tokens", "command line", "give 0 or more")
    Library()  # its absence shows before the model is loaded and run
    gpu = timeline(options.timeline, title=_own_command()) if options.timeline else None
    progress = Progress()
    progress("loading the model")
    tokenizer = _load_tokenizer(options)
    model = _load_model(options)
    tokens = _load_tokens(options, model, tokenizer)
    limit = getattr(text_config(model), "max_position_embeddings", None) or sys.maxsize
    if len(tokens) + options.decode > limit:
        raise CaptureError(
            f"{len(tokens)} + {options.decode} tokens, the model has {limit} positions",
            options.gguf or options.model,
            "shorten --prompt or --decode",
        )
    recording = record(
        model,
        options.out,
        layers=options.layers,
        query_window=options.query_window,
        values=options.values,
        prompt_tokens=len(tokens),
        name=options.name or pathlib.Path(options.gguf or "").stem,
        provenance=options.provenance,
        parameters={
            "prompt": len(tokens),
            "decode": options.decode,
            "chunk": options.chunk,
            "tokens_file": os.path.basename(options.tokens or options.prompt_text),
            "offset": options.offset,
            "temperature": options.temperature,
            "seed": options.seed,
            "command": _own_command(),
        },
    )

    # Steps without recording are timed before and after those with, so that a drift shows in both.
    spare = limit - len(tokens) - options.decode
    timed = min(64, options.decode, spare // 2 if options.timeline else spare)
    on_gpu = model.device.type == "cuda"
    if not (on_gpu if options.baseline is None else options.baseline) and not gpu:
        timed = 0
    if options.timeline and not timed:
        raise CaptureError(
            "no steps left to record a timeline of", "--timeline", "lower --decode or --prompt"
        )
    generation = Generation(model, tokens, options)
    without = []
    if timed:
        progress("prefill without recording")
        generation.prefill(progress)  # warm-up
        prefill_without = generation.prefill(progress)
        progress("decoding without recording")
        generation.decode(min(16, timed))  # warm-up
        without = generation.decode(timed)
        generation = Generation(model, tokens, options)
    begin = time.perf_counter()
    with recording as recorder:
        progress("prefill")
        prefill_with = generation.prefill(progress)
        progress("decoding")
        with_recording = generation.decode(options.decode, progress=progress)
        recorder.set_parameter("prompt_loss_nats", f"{generation.loss:.4f}")
        decoded = generation.decoded[: options.decode]
    total = time.perf_counter() - begin
    if timed:
        progress("decoding without recording")
        without += generation.decode(timed)
    if gpu:
        progress("recording the timeline")
        with gpu:
            traced = generation.decode(timed, gpu.step)
    progress.end()
    if options.text:
        pathlib.Path(options.text).write_text(tokenizer.decode(decoded), encoding="utf-8")

    print(f"model    {model.config.model_type}, {describe_machine(model.device)}")
    print(
        f"prompt   {len(tokens):,} tokens; mean loss over its last {generation.loss_tokens:,} "
        f"tokens {generation.loss:.3f} nats"
    )
    if timed:
        print(f"prefill  {_change(prefill_with, prefill_without)}")
        print(
            f"step     {_change(statistics.median(with_recording), statistics.median(without))}, "
            f"medians of {len(with_recording)} and {len(without)}"
        )
    elif with_recording:
        print(f"step     {1e3 * statistics.median(with_recording):.3f} ms recording, median")
    if gpu:
        print(
            f"timeline {options.timeline}: {gpu.stats.rows:,} rows, {gpu.stats.dropped:,} records "
            f"dropped; step {_change(statistics.median(traced), statistics.median(without))}"
        )
    size = os.path.getsize(options.out)
    print(
        f"file     {options.out}: {size / 1e6:.2f} MB, {recorder.tokens:,} tokens, "
        f"layers {','.join(map(str, recorder.layers))}; whole recording {total:.2f} s"
    )
    if options.check:
        print(f"check    {_check(options.out, recorder, generation.cache)}")
    if generation.loss < KNOWN_BY_HEART:
        _warn(
            f"the prompt's loss is {generation.loss:.2f} nats: the model knows this text by heart, "
            "and attends otherwise than to a new one; use a text that it has not seen"
        )


def run(arguments):
    transformers.utils.logging.disable_progress_bar()
    options = _parse(arguments)
    try:
        _record(options)
    except torch.OutOfMemoryError as error:
        raise CaptureError(
            str(error).split(". ")[0],
            "device",
            "shorten --prompt, or run it in parts with --chunk",
        ) from None
