"""Small data sets, in the formats that other people's programs would download.

Their values are made up, but can be learned: the class of a picture is where its bright patch is.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).parents[2]


def text() -> str:
    """Half a megabyte of English: this repository's documentation, several times."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "docs").glob("*.md"))]
    return ("\n".join(pages) * 20)[: 1 << 19]


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` pictures of 28 x 28 grey values, and the class of each, 0 to 9."""
    generator = np.random.default_rng(seed)
    classes = generator.integers(0, 10, count, dtype=np.uint8)
    found = generator.integers(0, 64, (count, 28, 28), dtype=np.uint8)
    for picture, kind in zip(found, classes, strict=True):
        row, column = divmod(int(kind), 5)
        picture[4 + 12 * row :, 2 + 5 * column :][:8, :4] += 160
    return found, classes


def mnist(folder: Path, train: int, test: int) -> None:
    """MNIST's four files, as `torchvision.datasets.MNIST` and `FashionMNIST` look for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", train, 0), ("t10k", test, 1)):
        for kind, values in zip(("images-idx3", "labels-idx1"), pictures(count, seed), strict=True):
            head = np.array([0x0800 + values.ndim, *values.shape], dtype=">i4")
            data = head.tobytes() + values.tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(data)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data, 1))


def shakespeare(folder: Path) -> None:
    """nanoGPT's text, from which its own `prepare.py` makes the rest, and tokens for its GPT-2."""
    (folder / "data/shakespeare_char/input.txt").write_text(text(), encoding="utf-8")
    generator = np.random.default_rng(0)
    for name in ("train", "val"):
        generator.integers(0, 50257, 200_000, dtype=np.uint16).tofile(folder / f"data/openwebtext/{name}.bin")


def boxes(folder: Path, count: int = 16, size: int = 160) -> None:
    """Photographs with a bright box in each, in YOLO's format."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        photograph = generator.integers(0, 96, (size, size, 3), dtype=np.uint8)
        x, y, width, height = (int(value) for value in generator.integers(size // 8, size // 2, 4))
        photograph[y : y + height, x : x + width] += 128
        Image.fromarray(photograph).save(folder / f"images/{index}.jpg")
        box = ((x + width / 2) / size, (y + height / 2) / size, width / size, height / size)
        (folder / f"labels/{index}.txt").write_text("0 " + " ".join(f"{value:.4f}" for value in box) + "\n")
    (folder / "boxes.yaml").write_text(f"path: {folder.resolve()}\ntrain: images\nval: images\nnames:\n  0: box\n")


def chapters(folder: Path) -> None:
    """d2l's chapters on several GPUs as notebooks of their cells for PyTorch, and Fashion-MNIST for them."""
    import nbformat

    cell = re.compile(r"^```\{\.python \.input\}\n#@tab (?:pytorch|all)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    for name, count in {"multiple-gpus": 20000, "multiple-gpus-concise": 256}.items():
        page = (folder / f"chapter_computational-performance/{name}.md").read_text(encoding="utf-8")
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(block) for block in cell.findall(page)])
        where = folder / "notebooks" / name
        mnist(where / "data/FashionMNIST/raw", count, min(count, 512))
        (where / "chapter").mkdir()
        nbformat.write(notebook, where / "chapter" / f"{name}.ipynb")
