"""What an answer may use without being flagged, by full path. What is not here is flagged; it may be honest, too."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _words(
    """
    abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex delattr dict dir display
    divmod enumerate filter float format frozenset get_ipython getattr hasattr hash help hex id int isinstance
    issubclass iter len list map max memoryview min next object oct open ord pow print property range repr reversed
    round set setattr slice sorted staticmethod str sum super tuple type zip Ellipsis False None NotImplemented True
    breakpoint
    """
)
"""Builtins other than errors and warnings."""

TYPES = frozenset(f"fakegpu_lab.{name}" for name in ("Trace", "Comparison", "Compiled", "Planned"))
"""Classes of this package: an answer writes them into annotations, and asks `isinstance` for them."""

MAKE_OR_REACH = _words(
    "breakpoint classmethod delattr display get_ipython getattr hasattr help open setattr super type"
)
"""Those of them that a pickle may not bring."""

MODULES = _words(
    """
    __future__ abc argparse array base64 bisect calendar cmath collections colorsys contextlib copy csv cycler
    dataclasses datetime decimal difflib enum fnmatch fractions functools gc glob gzip hashlib heapq html io IPython
    itertools json locale logging math numbers operator os pathlib pdb platform pprint random re secrets shutil
    statistics string struct sys tempfile textwrap time timeit typing typing_extensions uuid warnings zipfile zlib
    einops fakegpu_lab matplotlib mpl_toolkits numpy opt_einsum pandas plotly rich scipy seaborn sympy tabulate torch
    tqdm yaml
    """
)
"""Modules that honest answers import, with what is public in them (`public.refused`); those of the lesson join them."""

THREADS = _words("threading concurrent asyncio multiprocessing queue joblib torch.multiprocessing")
"""Modules that a lesson allows by ``allow: [threading]``."""

PARTS = {
    "argparse": _words("ArgumentParser ArgumentDefaultsHelpFormatter RawDescriptionHelpFormatter ArgumentTypeError "
                       "Namespace SUPPRESS REMAINDER"),
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
    "gc": frozenset({"collect"}),
    "logging": _words(
        """
    getLogger basicConfig debug info warning error critical exception log disable captureWarnings StreamHandler
    FileHandler NullHandler Handler Formatter Filter Logger LoggerAdapter NOTSET DEBUG INFO WARNING ERROR CRITICAL
    WARN FATAL root getLevelName addLevelName shutdown
    """
    ),
    "enum": _words("Enum IntEnum StrEnum Flag IntFlag auto unique member nonmember"),
    "IPython": _words("display"),
    "pdb": _words("set_trace"),
    "numba": _words("cuda types float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 boolean"),
    "numba.cuda": _words(
        """
    jit grid gridsize threadIdx blockIdx blockDim gridDim laneid warpsize shared local const atomic random syncthreads
    syncthreads_count syncthreads_and syncthreads_or syncwarp shfl_sync shfl_up_sync shfl_down_sync shfl_xor_sync
    all_sync any_sync eq_sync ballot_sync match_any_sync match_all_sync activemask lanemask_lt threadfence
    threadfence_block threadfence_system fma cbrt popc brev clz ffs selp nanosleep as_cuda_array to_device device_array
    device_array_like pinned pinned_array mapped_array managed_array synchronize stream default_stream event
    event_elapsed_time get_current_device select_device is_available reduce Reduce fp16
    """
    ),
    "numba.cuda.random": _words(
        """
    create_xoroshiro128p_states xoroshiro128p_uniform_float32 xoroshiro128p_uniform_float64
    xoroshiro128p_normal_float32 xoroshiro128p_normal_float64
    """
    ),
    "numba.types": _words("float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 boolean"),
    "triton.language": _words(
        """
    program_id num_programs arange zeros zeros_like full cat join split permute trans reshape view expand_dims broadcast
    broadcast_to ravel interleave dot dot_scaled load store make_block_ptr advance make_tensor_descriptor
    load_tensor_descriptor store_tensor_descriptor flip where swizzle2d abs cdiv ceil clamp cos div_rn erf exp exp2 fdiv
    floor fma log log2 maximum minimum rsqrt sigmoid sin softmax sqrt sqrt_rn umulhi argmax argmin max min reduce sum
    xor_sum associative_scan cumprod cumsum histogram sort gather topk atomic_add atomic_and atomic_cas atomic_max
    atomic_min atomic_or atomic_xchg atomic_xor randint4x randint rand randn range static_range debug_barrier
    max_constancy max_contiguous multiple_of assume static_print static_assert device_print device_assert constexpr
    tensor dtype pointer_type block_type int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32
    float64 float8e4nv float8e5 float8e4b15 void extra math
    """
    ),
    "triton.language.math": (_MATH := _words(
        """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh div_rn erf erfc exp exp10 exp2 expm1 fabs fdiv floor
    fma fmod hypot isinf isnan lgamma log log10 log1p log2 pow rint round rsqrt sin sinh sqrt sqrt_rn tan tanh tgamma
    trunc umulhi
    """
    )),
    "triton.language.extra": _words("libdevice"),
    "triton.language.extra.libdevice": _MATH,
    "triton": _words("Config autotune cdiv heuristics jit language next_power_of_2 testing"),
    "triton.testing": _words("Benchmark assert_close do_bench perf_report"),
    "string": _words("ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits punctuation "
                     "printable whitespace Template"),
    "operator": _words(
        """
    itemgetter add sub mul truediv floordiv mod pow neg matmul lt le eq ne gt ge and_ or_ not_ xor abs
    """
    ),
    "sympy": _words(
        """
    Abs Add Derivative E Eq Expr Float Function I Integer Integral Limit Matrix Max Min Mul N Piecewise Poly Pow Product
    Rational Sum Symbol ceiling cos diff exp expand factor factorial floor init_printing integrate latex limit log
    nsolve oo pi pprint series simplify sin solve solveset sqrt summation symbols tan together zoo
    """
    ),
    "einops": _words("asnumpy einsum layers pack parse_shape rearrange reduce repeat unpack"),
    "matplotlib": _words(
        """
    animation cm collections colormaps colors dates figure gridspec image lines offsetbox patches pyplot rc rcParams
    style ticker transforms use
    """
    ),
    "mpl_toolkits": _words("axes_grid1 mplot3d"),
    "opt_einsum": _words("contract contract_expression contract_path"),
    "pandas": _words(
        """
    Categorical DataFrame Index IndexSlice Interval MultiIndex NA NaT RangeIndex Series Timedelta Timestamp concat
    crosstab cut date_range describe_option factorize get_dummies isna isnull json_normalize melt merge notna notnull
    option_context options pivot pivot_table qcut read_csv read_json read_table reset_option set_option timedelta_range
    to_datetime to_numeric to_timedelta unique
    """
    ),
    "plotly": _words("colors express graph_objects graph_objs offline subplots"),
    "plotly.colors": _words("cyclical diverging hex_to_rgb qualitative sample_colorscale sequential"),
    "einops.layers": frozenset({"torch"}),
    "rich": _words("box columns console markdown panel print progress rule syntax table text tree"),
    "scipy": _words("constants fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats"),
    "seaborn": _words(
        """
    barplot boxplot catplot color_palette countplot despine displot ecdfplot heatmap histplot jointplot kdeplot lineplot
    lmplot pairplot pointplot regplot relplot scatterplot set_context set_palette set_style set_theme stripplot
    swarmplot violinplot
    """
    ),
    "tabulate": _words("tabulate simple_separated_format tabulate_formats"),
    "typing_extensions": _words(
        """
    Annotated Any Callable ClassVar Concatenate Final Generic Iterable Iterator List Dict Literal LiteralString Mapping
    NamedTuple Never NotRequired Optional ParamSpec Protocol ReadOnly Required Self Sequence Set Tuple Type TypeAlias
    TypeGuard TypeIs TypeVar TypeVarTuple TypedDict Union Unpack assert_never assert_type cast deprecated final overload
    override reveal_type runtime_checkable
    """
    ),
    "tqdm": _words("tqdm trange auto notebook autonotebook"),
    "tqdm.auto": (_BARS := _words("tqdm trange")), "tqdm.notebook": _BARS, "tqdm.autonotebook": _BARS,
    "yaml": _words("safe_load safe_load_all safe_dump safe_dump_all dump dump_all YAMLError SafeLoader SafeDumper"),
    "fakegpu_lab": _words(
        """
    advise clock compare compiled course disable draw enable expect host_work machine panel plan record reset run_ranks
    snapshot Comparison Compiled FakeGpuError Planned Trace __version__
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
}  # fmt: skip
"""Of these modules, what an answer may use."""

SUBMODULES = {
    "torch": _words(
        """
    accelerator amp amp.grad_scaler autograd autograd.forward_ad autograd.function autograd.functional
    autograd.grad_mode autograd.graph autograd.profiler backends compiler cuda distributed distributions fft func
    functional linalg masked
    nested nn optim profiler random special sparse testing utils.benchmark utils.checkpoint utils.data
    utils.data.distributed utils.dlpack utils.flop_counter utils.tensorboard utils version
    """
    ),
    "numpy": _words("fft linalg ma polynomial random typing dtypes exceptions strings char"),
}
"""Submodules of libraries of which most do not concern an answer; those below `WHOLE` are in addition."""

WHOLE = ("torch.backends", "torch.cuda", "torch.distributed", "torch.distributions", "torch.nn", "torch.optim",
         "torch.profiler", "torch.autograd.profiler", "numpy.polynomial", "numpy.random")  # fmt: skip
"""Modules whose public submodules are allowed, but for `HIDDEN`."""

HIDDEN = _words(
    """
    torch.nn.modules.module torch.cuda.jiterator torch.cuda.tunable torch.cuda.CUDAPluggableAllocator
    torch.cuda.memory.CUDAPluggableAllocator torch.cuda.memory.change_current_allocator
    torch.cuda.change_current_allocator torch.distributed.rpc torch.distributed.elastic torch.distributed.launch
    torch.distributed.launcher torch.distributed.run torch.distributed.checkpoint torch.distributed.nn
    torch.distributed.autograd torch.distributed.argparse_util torch.distributed.remote_device
    torch.distributed.FileStore torch.distributed.HashStore torch.distributed.TCPStore torch.distributed.PrefixStore
    torch.autograd.function.once_differentiable.__wrapped__ torch.classes torch.ops
    torch.segment_reduce torch.get_device_module
    torch.sparse_csr_tensor torch.sparse_csc_tensor torch.sparse_bsr_tensor torch.sparse_bsc_tensor
    torch.sparse_compressed_tensor torch.sparse.check_sparse_tensor_invariants
    numpy.ctypeslib numpy.f2py numpy.frompyfunc.__call__ numpy.get_include numpy.random.bit_generator
    dataclasses.make_dataclass functools.singledispatch functools.singledispatchmethod logging.config
    logging.handlers typing.get_type_hints typing.ForwardRef typing.evaluate_forward_ref
    collections.abc.ByteString json.tool html.parser
    matplotlib.style.core rich.console.get_ipython
    torch.initial_seed torch.random.initial_seed torch.cuda.initial_seed torch.cuda.random.initial_seed
    """
)
"""Parts of allowed modules that run text, load code, or reach what is not theirs, such as what a check has drawn."""

RUN_TEXT = {
    "timeit.timeit": ("stmt", "setup"),
    "timeit.repeat": ("stmt", "setup"),
    "timeit.Timer": ("stmt", "setup"),
    "torch.utils.benchmark.Timer": ("stmt", "setup", "global_setup"),
    "numba.cuda.jit": ("func_or_sig",),
}
"""Functions that run a text, with their parameters in order: the text is looked at like the rest of the cell."""

DECORATES = frozenset({"numba.cuda.jit"})
"""Those of them that are also written above a function, without a call."""

COPIES_NAMES = {"functools.update_wrapper": 2, "functools.wraps": 1}
"""Functions that copy attributes by their names, with how many arguments they may be given: no lists of names."""

GRAPH = _words("get_gradient_edge metadata next_functions register_prehook")
"""By these, an answer comes to the gradients of tensors that it did not make."""

GENERATES = _words("on_generate_code set_codegen process_inputs process_outputs add_global python_code")
"""By these, a graph of torch.fx is given text of the answer's, which runs."""

PRECISION = _words("set_float32_matmul_precision allow_tf32 fp32_precision")
"""By these, an answer makes products faster than the lesson's, to which it is compared; it may put them back."""

CALLED = _words("fakegpu_lab.enable fakegpu_lab.disable fakegpu_lab.machine torch.load numpy.load")
"""Functions that are only called where their names stand, since it matters what they are given."""

SHOW = _words(
    "print set_title title suptitle set_xlabel xlabel set_ylabel ylabel text annotate write display Markdown Math Latex"
)
"""Functions that show a text as it is: braces in it, such as those of LaTeX, format nothing."""

FORMAT = _words("StrMethodFormatter set_major_formatter set_minor_formatter Formatter TextColumn format_meter")
"""Functions that take a format string."""

OF_CONTEXT = _words("forward backward setup_context jvp vmap")
"""Static methods of an ``autograd.Function``, whose first parameter torch makes for them."""

KEEPS_SELF = _words(
    """
    abstractmethod cache cached_property classmethod compile contextmanager custom_bwd custom_fwd deleter
    enable_grad getter inference_mode lru_cache no_grad override property setter wraps
    """
)
"""Decorators under which a method's first parameter is the object that it is called on."""

MODULE_NAMES = _words(
    """
    os sys gc builtins importlib inspect ctypes threading subprocess pickle marshal socket linecache traceback torch
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
    __exit__ __post_init__ __name__ __version__ __doc__ __file__ __all__ __slots__ __main__ __debug__
    """
)
"""Names with double underscores that honest answers have."""

RECORDS = _words("_asdict _replace _fields _make")
"""Methods of named tuples: public, although they begin with an underscore."""

SETTINGS = ("torch.backends", "matplotlib", "plotly", "warnings.filters")
"""Where an assignment to a module's attribute is how it is meant to be used."""

OF_TENSORS = _words("grad requires_grad data training")
"""Attributes that training sets, of whatever tensor or module."""

CHANGING = _words(
    """
    append clear extend insert pop popitem remove reverse sort update setdefault load_state_dict register_buffer
    register_parameter register_module add_module register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_state_dict_pre_hook apply_ set_ swap_
    """
)
"""Methods that change what they are called on, beside those that end with an underscore."""

PUT_INTO_FIRST = _words(
    "copyto heapify heappush heappushpop insort insort_left insort_right put setattr setitem shuffle"
)
"""Functions that change their first argument."""
WRITERS = _words(
    "dump open save savetxt savez savez_compressed to_csv to_json to_pickle to_parquet tofile write write_bytes "
    "write_text writelines writerow writerows"
)
READERS = _words(
    "fromfile genfromtxt load loads loadtxt memmap open read read_bytes read_csv read_json read_text reader readline "
    "readlines"
)
"""What writes files and what reads them, whatever they are of."""

PASSED_ON = _words("dict enumerate filter frozenset iter list map max min next reversed set sorted sum tuple zip")
"""Builtins whose results have the items of their arguments."""

GIVES_BACK = _words("setdefault pop popleft popitem")
"""Methods of containers that return what was put in, or a default."""

ITEMS_OF = _words(
    """
    parameters named_parameters buffers named_buffers modules named_modules children named_children values items keys
    state_dict get detach view view_as reshape flatten squeeze unsqueeze expand t transpose permute narrow select unbind
    split chunk get_parameter get_buffer get_submodule __getitem__
    """
)
"""Methods whose results are, or hold, what they are called on."""

LISTS = _words("parameters named_parameters buffers named_buffers modules named_modules state_dict")
"""Methods by which a module says what it has."""

IMITATES = _words("int float complex str bytes bool")
"""A class of these can claim to be equal to everything."""

CONTAINERS = _words("list tuple dict set frozenset UserList UserDict UserString OrderedDict defaultdict Counter deque")
"""So can a class of these, with methods of its own for what a check asks: `ASKED`."""

ASKED = _words(
    """
    __getitem__ __iter__ __len__ __contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __getattr__
    __getattribute__ __class__ __instancecheck__ __subclasscheck__ keys values items get
    """
)

FRAMES = _words(
    """
    _getframe f_back f_locals f_globals f_builtins f_code tb_frame tb_next gi_frame gi_code cr_frame cr_code
    ag_frame co_code co_consts exc_info get_field lineno findCaller makeRecord
    """
)
SHELL = _words(
    """
    ast_transformers input_transformers_cleanup input_transformers_post magics_manager user_ns user_global_ns
    displayhook display_pub set_custom_exc register_magics showtraceback run_code transform_cell run_cell
    run_cell_async run_ast_nodes run_ast_async safe_execfile safe_execfile_ipy safe_run_module
    """
)
BOOKS = _words(
    """
    allocator cards copy_engines counters default_stream fabric hold keep_host_busy ledger links peer_links
    pinned_memory record_to recorder retire roofline set_ordinal set_visible_devices stream_of streams timeline
    workspaces
    """
)
"""Attributes in which the simulated machine keeps its books."""
ONLY_BOOKS = _words(
    "copy_engines keep_host_busy ledger peer_links pinned_memory record_to roofline set_ordinal workspaces"
)
"""Those of them that nothing else has."""
