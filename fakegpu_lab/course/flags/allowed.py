"""What an answer may use without being flagged: modules, and of a few of them only parts."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = _words(
    """
    __future__ abc argparse array base64 bisect calendar cmath collections colorsys contextlib copy csv cycler
    dataclasses datetime decimal difflib enum fnmatch fractions functools gc glob gzip hashlib heapq html io IPython
    itertools json logging math numbers operator os pathlib platform pprint random re secrets shutil statistics
    string struct sys tempfile textwrap time timeit typing typing_extensions uuid warnings zipfile zlib accelerate
    altair bokeh datasets einops fakegpu_lab ipywidgets lightning matplotlib mpl_toolkits networkx numpy opt_einsum
    pandas peft PIL plotly polars psutil pytorch_lightning rich safetensors scipy seaborn sklearn sympy tabulate
    timm tokenizers torch torchaudio torchinfo torchmetrics torchvision tqdm transformers yaml
    """
)
"""Modules that honest answers import. Any other is flagged; it may be honest, too."""

THREADS = _words("threading concurrent asyncio multiprocessing queue joblib")
"""Modules that a lesson allows by ``allow: [threading]``."""

PARTS = {
    "os": _words(
        """
    path environ getcwd getenv listdir makedirs mkdir remove sep linesep cpu_count getpid name urandom walk
    """
    ),
    "sys": _words(
        """
    version version_info getsizeof maxsize platform stdout stderr argv executable float_info byteorder exit
    getrecursionlimit
    """
    ),
    "gc": _words("collect disable enable"),
    "IPython": _words("display"),
    "operator": _words(
        """
    itemgetter add sub mul truediv floordiv mod pow neg matmul lt le eq ne gt ge and_ or_ not_ xor abs
    """
    ),
    "fakegpu_lab": _words(
        """
    advise clock course disable draw enable expect host_work machine panel plan record reset run_ranks
    snapshot FakeGpuError Planned Trace __version__
    """
    ),
    "fakegpu_lab.course": _words("draw pictures"),
    "fakegpu_lab.course.draw": (_DRAW := _words("Drawing allocator memory_bar pipeline ring roofline shards streams")),
    "fakegpu_lab.course.pictures": frozenset({"journey"}),
    "fakegpu_lab.draw": _DRAW,
    "fakegpu_lab.expect": _words(
        """
    Outcome Said Unmet allocated at_most calls choice close collectives does_not_call dtype equal
    equals_single_device faster_than grad_on_device instance kernels no_races no_sync_in on_device overlaps
    peak_memory raises raises_oom run same_device same_on_every_rank score shape takes transfers true values
    """
    ),
}
"""Of these modules, what an answer may use."""

HIDDEN = _words(
    """
    torch.library torch.overrides torch.hub torch.package torch.fx torch.utils.cpp_extension torch.ops.load_library
    torch.classes.load_library torch.serialization.add_safe_globals numpy.ctypeslib numpy.f2py
    numpy.lib.stride_tricks numpy.testing pandas.eval logging.config string.Formatter torch.nn.modules.module
    """
)
"""Parts of other modules that load or run code, or reach memory."""

MODULE_NAMES = _words(
    """
    os sys gc builtins importlib inspect ctypes threading subprocess pickle marshal socket linecache traceback
    """
)
"""Modules that other modules have as attributes: ``torch.os``."""

OF_FAKEGPU = frozenset({"", "footer", "panel", "profiles", "reset"})
"""What an answer may give to ``%fakegpu`` in addition to the GPUs of the lesson."""

MAGICS = _words(
    """
    matplotlib time timeit fakegpu lesson hint progress predict share exercise check gpuprofile kernel ranks autoreload
    config capture
    pip conda who whos pinfo pinfo2 precision memit memory fakegpu_lab
    """
)
"""IPython's magics; ``load_ext`` and shell commands are looked at by what they name."""

COMMANDS = _words("nvidia-smi pip python3 ls pwd echo date")
"""Programs of shell commands."""

SPECIAL = _words(
    """
    __init__ __call__ __repr__ __str__ __len__ __iter__ __next__ __getitem__ __setitem__ __contains__ __enter__
    __exit__ __post_init__ __name__ __version__ __doc__ __file__ __all__ __slots__ __main__ __annotations__
    """
)
"""Names with double underscores that honest answers have."""

LISTS = _words("parameters named_parameters buffers named_buffers modules named_modules state_dict")
"""Methods by which a module says what it has."""

FRAMES = _words(
    """
    _getframe f_back f_locals f_globals f_builtins f_code tb_frame tb_next gi_frame gi_code cr_frame cr_code
    ag_frame co_code co_consts exc_info get_field
    """
)
SHELL = _words(
    """
    ast_transformers input_transformers_cleanup input_transformers_post magics_manager user_ns user_global_ns
    displayhook display_pub set_custom_exc register_magics showtraceback run_code transform_cell
    """
)
BOOKS = _words(
    """
    allocator cards copy_engines counters default_stream fabric hold keep_host_busy ledger links pinned_memory record_to
    recorder retire roofline set_ordinal set_visible_devices stream_of streams timeline workspaces
    """
)
"""Attributes in which the simulated machine keeps its books."""
ONLY_BOOKS = _words("copy_engines keep_host_busy ledger pinned_memory record_to roofline set_ordinal workspaces")
"""Those of them that nothing else has."""
