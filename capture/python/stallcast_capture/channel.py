"""Brings rows from the model's memory to the writer."""

import collections
import ctypes

import torch

from .library import DTYPES, Rows

STAGED_STEPS = 16  # decode steps that share one copy to the host
STAGE_SLOTS = 4
PIECE_BYTES = 16 << 20  # of a prompt's tensor, copied to the host at once
PIECE_SLOTS = 3


@torch.inference_mode(False)
def _buffer(shape, dtype, **where):
    """A tensor that can be written inside and outside of inference mode."""
    return torch.empty(shape, dtype=dtype, **where)


class Channel:
    """Brings rows to the writer in order.

    On CUDA, rows are copied to pinned buffers on a stream of their own, and handed over once their
    event has passed; a bounded number of buffers is in flight. On the CPU they are handed over at
    once."""

    def __init__(self, library, recorder, device):
        self._library = library
        self._recorder = recorder
        self._device = device
        self._cuda = device.type == "cuda"
        self._rows = Rows()
        self._waiting = collections.deque()  # (event or None, function to hand over), in order
        self._stages = None  # decode: a ring of (device buffer, host buffer)
        self._layout = None  # what a stage's row holds: [(kind, layer, heads)]
        self._steps = 0  # staged in the current stage
        self._turn = 0
        self._first_token = 0
        if self._cuda:
            self._stream = torch.cuda.Stream(device)
            self._copied = torch.cuda.Event()
            self._pieces = collections.deque(
                _buffer(PIECE_BYTES, torch.uint8, pin_memory=True) for _ in range(PIECE_SLOTS)
            )

    def wait_for_copies(self):
        """Makes the model's stream wait for copies out of its memory, before it reuses it."""
        if self._cuda:
            torch.cuda.current_stream(self._device).wait_event(self._copied)

    def send(self, kind, layer, first_token, tensor):
        """Sends [heads, tokens, dim]."""
        self._submit_stage()
        if not self._cuda:
            self.poll()
            if tensor.stride(2) != 1:
                tensor = tensor.contiguous()
            self._write(kind, layer, first_token, tensor, tensor.stride(0), tensor.stride(1))
            return
        heads, tokens, dim = tensor.shape
        step = max(1, PIECE_BYTES // (heads * dim * tensor.element_size()))
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        tensor.record_stream(self._stream)
        for start in range(0, tokens, step):
            part = tensor[:, start : start + step]
            buffer = self._take_piece()
            size = part.numel() * part.element_size()
            host = buffer[:size].view(tensor.dtype).view(part.shape)
            with torch.cuda.stream(self._stream):
                host.copy_(part, non_blocking=True)
                event = torch.cuda.Event()
                event.record(self._stream)
                self._copied = event

            def hand_over(first=first_token + start, host=host, buffer=buffer):
                self._write(kind, layer, first, host, host.stride(0), host.stride(1))
                self._pieces.append(buffer)

            self._waiting.append((event, hand_over))

    def stage(self, first_token, parts):
        """Stages one decoded token: [(kind, layer, [heads, dim])], the same list every time."""
        layout = [(kind, layer, part.shape[0]) for kind, layer, part in parts]
        if layout != self._layout:
            self._submit_stage()
            self._make_stages(layout, parts[0][2])
        if self._steps == 0:
            self._first_token = first_token
            self._free_stage()
        target = self._stages[self._turn][0][self._steps]
        torch.cat([part for _, _, part in parts], out=target)
        self._steps += 1
        if self._steps == STAGED_STEPS:
            self._submit_stage()

    def begin_decode(self, prompt_tokens):
        self._waiting.append(
            (None, lambda: self._library.recorder_begin_decode(self._recorder, prompt_tokens))
        )

    def poll(self):
        """Hands over what has arrived."""
        while self._waiting and (self._waiting[0][0] is None or self._waiting[0][0].query()):
            self._waiting.popleft()[1]()

    def drain(self):
        """Hands over everything."""
        self._submit_stage()
        while self._waiting:
            self._hand_over_oldest()

    def _hand_over_oldest(self):
        event, hand_over = self._waiting.popleft()
        if event is not None:
            event.synchronize()
        hand_over()

    def _take_piece(self):
        while not self._pieces:
            self._hand_over_oldest()
        return self._pieces.popleft()

    def _make_stages(self, layout, like):
        self.drain()
        self._layout = layout
        shape = (STAGED_STEPS, sum(heads for _, _, heads in layout), like.shape[1])
        self._stages = []
        self._busy = [False] * STAGE_SLOTS
        for _ in range(STAGE_SLOTS):
            host = _buffer(shape, like.dtype, pin_memory=self._cuda)
            device = _buffer(shape, like.dtype, device=like.device) if self._cuda else host
            self._stages.append((device, host))

    def _free_stage(self):
        while self._busy[self._turn]:
            self._hand_over_oldest()

    def _submit_stage(self):
        if self._steps == 0:
            return
        turn, steps, first = self._turn, self._steps, self._first_token
        device, host = self._stages[turn]
        event = None
        if self._cuda:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                host[:steps].copy_(device[:steps], non_blocking=True)
                event = torch.cuda.Event()
                event.record(self._stream)
                self._copied = event

        def hand_over():
            start = 0
            for kind, layer, heads in self._layout:
                rows = host[:steps, start : start + heads].transpose(0, 1)
                self._write(kind, layer, first, rows, rows.stride(0), rows.stride(1))
                start += heads
            self._busy[turn] = False

        self._busy[turn] = True
        self._waiting.append((event, hand_over))
        self._turn = (turn + 1) % STAGE_SLOTS
        self._steps = 0
        if not self._cuda:
            self.poll()

    def _write(self, kind, layer, first_token, tensor, head_stride, token_stride):
        rows = self._rows
        rows.kind, rows.layer, rows.first_token = kind, layer, first_token
        rows.dtype = DTYPES[tensor.dtype]
        rows.heads, rows.tokens, rows.head_dim = tensor.shape
        rows.head_stride, rows.token_stride = head_stride, token_stride
        rows.data = tensor.data_ptr()
        self._library.recorder_write(self._recorder, ctypes.byref(rows))
