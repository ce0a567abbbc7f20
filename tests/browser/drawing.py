"""Reads the figure of memory from its pixels: what somebody sees who looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

TRAINING = """
import torch
import fakegpu_lab as lab
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(6))).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(12):
    torch.cuda.reset_peak_memory_stats()
    model(torch.ones(1024 * (1 + step % 3), 512).to("cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    print("step", lab.snapshot().now_ns, torch.cuda.max_memory_allocated())
"""
"""Twelve steps: of each, when it was over and its true peak."""

_TOPS = """root => {
  const host = document.querySelector(`${root} [data-part=memory] .fg-Chart-host`);
  const canvas = host.querySelector('canvas');
  const { left, top, wide, high, across, most } = JSON.parse(host.dataset.frame);
  const style = getComputedStyle(document.querySelector(root));
  const read = name => {
    const one = document.createElement('canvas').getContext('2d');
    one.fillStyle = style.getPropertyValue(name).trim();
    one.fillRect(0, 0, 1, 1);
    return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const paper = read('--fg-paper');
  // Without "other": the smoothed edges of letters are grey, too.
  const colours = ['parameters', 'optimizer-state', 'workspace', 'gradients', 'activations', 'inputs']
    .map(name => read(`--fg-${name}`));
  // The line between two layers has the colour between the layer's and the paper's.
  const mixed = colours.map(colour => colour.map((part, place) => Math.floor((part + paper[place]) / 2)));
  const known = new Set([...colours, ...mixed].map(String));
  const { data } = canvas.getContext('2d').getImageData(left, top, wide, high);
  const tops = Array.from({ length: wide }, (_, column) => {
    for (let row = 0; row < high; row++) {
      const at = 4 * (row * wide + column);
      if (known.has(String([data[at], data[at + 1], data[at + 2]]))) {
        return row - 1;  // above it is the outline
      }
    }
    return high;
  });
  return { tops, high, across, most };
}"""


def heights(page: Any, root: str, ends: Sequence[int]) -> tuple[list[float], list[float], float]:
    """The highest and the lowest point drawn in each step, in bytes; and the bytes of a row of pixels."""
    seen = page.evaluate(_TOPS, root)
    tops, high, (low, up), most = seen["tops"], seen["high"], seen["across"], seen["most"]
    row = most / high
    drawn = [(high - top) * row for top in tops]

    def column(ns: float) -> int:
        return min(len(drawn), max(0, round((ns - low) / (up - low) * len(drawn))))

    parts = [drawn[column(begin) + 1 : column(end)] for begin, end in zip([0, *ends], ends, strict=False)]
    assert all(len(part) > 8 for part in parts), "each step is some pixels wide"
    return [max(part) for part in parts], [min(part) for part in parts], row


def assert_true_peaks(page: Any, root: str, printed: str) -> None:
    """The figure has a tooth for each step of `TRAINING`, as high as the step's peak, to two pixels."""
    told = [line.split()[1:] for line in printed.splitlines() if line.startswith("step")]
    ends, peaks = [int(end) for end, _ in told], [int(peak) for _, peak in told]
    assert len(peaks) == 12
    most, least, row = heights(page, root, ends)
    off = [round((drawn - peak) / row, 1) for drawn, peak in zip(most, peaks, strict=True)]
    assert all(abs(pixels) <= 2 for pixels in off), f"drawn higher or lower than the steps' peaks, px: {off}"
    valleys = [below < 0.8 * above for above, below in zip(most[1:], least[1:], strict=True)]
    assert all(valleys), "between two teeth the curve falls"
