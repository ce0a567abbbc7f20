"""A GPT of 8 billion parameters, trained as on a card; prints what it saw as one line of JSON.

The dimensions are Llama 3's. Four acts: a step of AdamW in bfloat16, which fits on 80 GB; a batch whose logits do not
fit; float32, where the optimizer's states do not fit, with gradients laid out plainly, and after a real backward.
"""

import json
import re
import resource
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, KV_HEADS, HIDDEN, VOCABULARY = 32, 4096, 32, 8, 14336, 128256


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        narrow = WIDTH // HEADS * KV_HEADS
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = nn.Linear(WIDTH, narrow, bias=False), nn.Linear(WIDTH, narrow, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (f(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape_as(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.RMSNorm(WIDTH), Attention(), nn.RMSNorm(WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens))))


def build(dtype):
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        return GPT()


def backward(model, batch=1, length=256):
    tokens = torch.randint(VOCABULARY, (batch, length + 1), device="cuda")
    logits = model(tokens[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()


def fits():
    model = build(torch.bfloat16)
    built = torch.cuda.memory_allocated()
    optimizer = torch.optim.AdamW(model.parameters())
    backward(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return {
        "sizes": [p.numel() for p in model.parameters()],
        "built": built,
        "stepped": torch.cuda.memory_allocated(),
        "peak": torch.cuda.max_memory_allocated(),
    }


def out_of_memory(run, told):
    try:
        run()
    except torch.OutOfMemoryError as error:
        return {"error": str(error), "allocated": torch.cuda.memory_allocated(), **told()}
    return {}


def logits():
    model = build(torch.bfloat16)
    entered = []
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: entered.append(name))
    tokens = torch.zeros(64, 4096, dtype=torch.long, device="cuda")
    with torch.inference_mode():
        return out_of_memory(lambda: model(tokens), lambda: {"entered": entered[-1]})


def states(gradients):
    model = build(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    if gradients:
        backward(model)
    else:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    return out_of_memory(optimizer.step, lambda: {"states": [len(s) for s in optimizer.state.values()]})


def peak_of_host():
    """Bytes of main memory that this program held at most.

    Linux's ru_maxrss begins at what the process held that started this one; VmHWM does not.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


acts = {"fits": fits, "logits": logits, "plain": lambda: states(False), "trained": lambda: states(True)}
seen = {}
for name in sys.argv[1:] or acts:
    seen[name] = acts[name]()
    torch.cuda.empty_cache()
seen["memory"] = torch.cuda.mem_get_info()
seen["host"] = peak_of_host()
print(json.dumps(seen))
