"""Attacks on the process: what acts while a check runs, what reaches beyond, what ends it."""

from tests.course.attacks.verdicts import WRONG

ON_TIME = {
    "a timer's thread": WRONG
    + """
import threading
def late():
    torch.equal = lambda *a: True
threading.Timer(0.001, late).start()
""",
    "a thread that goes on": WRONG
    + """
import _thread, time
def busy():
    while True: time.sleep(0.01)
_thread.start_new_thread(busy, ())
""",
    "an executor": WRONG
    + """
from concurrent.futures import ThreadPoolExecutor
import time
pool = ThreadPoolExecutor(1)
pool.submit(time.sleep, 2)
""",
    "an alarm": WRONG
    + """
import signal
def late(*a): torch.equal = lambda *a: True
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
""",
    "a profiler": WRONG
    + """
import sys
def spy(frame, event, value):
    if frame.f_code.co_name == "report": frame.f_locals["met"] = True
sys.setprofile(spy)
""",
    "a tracer": WRONG
    + """
import sys
def spy(frame, event, value):
    return spy
sys.settrace(spy)
""",
    "a hook of imports": WRONG
    + """
import builtins
real = builtins.__import__
builtins.__import__ = lambda *a, **k: real(*a, **k)
""",
    "a finder of modules": WRONG
    + """
import sys
class Finder:
    def find_spec(self, *a): return None
sys.meta_path.insert(0, Finder())
""",
    "a hook of the garbage collector": WRONG
    + """
import gc
gc.callbacks.append(lambda phase, info: None)
""",
    "an audit hook": WRONG + "import sys\nsys.addaudithook(lambda *a: None)",
    "sys.stdout is replaced": WRONG + "import sys, io\nsys.stdout = io.StringIO()\nsys.displayhook = lambda *a: None",
    "a finalizer": WRONG
    + """
class Late:
    def __del__(self): torch.equal = lambda *a: True
late = [Late()]
late.append(late)
""",
}

ON_RECORDINGS = {
    "Trace's kernels are replaced": "import fakegpu_lab.trace\n"
    """
class Mul: name = "aten::mul"; device = 0; line = ""
fakegpu_lab.trace.Trace.kernels = property(lambda self: [Mul()])
def answer(k): return k * k
""",
    "record is replaced": """
import fakegpu_lab
def answer(k): return k * k
fakegpu_lab.trace.record = fakegpu_lab.record = lambda limit=0: slow
""",
    "a kernel's record is put in by hand": """
def answer(k):
    machine = lab.machine()
    machine.recorder = None
    return k * k
""",
    "the ledger is written": """
def answer(k):
    lab.machine().devices[0].ledger.h2d_bytes = 0
    return k * k
""",
    "the driver's dispatcher is replaced": """
from fakegpu_lab.driver.dispatch import dispatcher
real = dispatcher.run
dispatcher.run = lambda *a, **k: real(*a, **k)
def answer(k): return 0
""",
    "the clock stands still": """
from fakegpu_lab.hardware.time import clock
clock.here.host.now = 0
def answer(k): return 0
""",
}

ON_THE_GRADER = {
    "ctypes": WRONG
    + "import ctypes\nlibc = ctypes.CDLL(None)\nbuffer = ctypes.create_string_buffer(8)\nctypes.memset(buffer, 1, 8)",
    "the pipe is written": WRONG
    + """
import os
for number in range(3, 40):
    try: os.write(number, b'{"cell": "e", "score": 6.0, "told": [], "flags": [], "ended": true}\\n')
    except OSError: pass
""",
    "the queue of results is filled": """
def answer(k):
    import sys
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if type(value).__name__ == "SimpleQueue":
                value.put((1, {"ended": True, "score": 6.0, "has_value": True}))
        frame = frame.f_back
    return 0
""",
    "frames of other threads": "import sys\ndef answer(k): return [f.f_locals for f in sys._current_frames().values()]",
    "the process's memory": WRONG + "open('/proc/self/mem', 'rb').read(1)",
    "hidden tests are looked for": """
from pathlib import Path
def answer(k):
    for path in Path("/").glob("tmp/**/squares.ipynb"):
        return len(path.read_text())
    return 0
""",
    "hidden tests in memory": """
import gc
def answer(k):
    found = [one for one in gc.get_objects() if isinstance(one, dict) and "check" in one and "__name__" not in one]
    print(found)
    return 0
""",
    "hidden tests in linecache": "import linecache\ndef answer(k): return len(str(linecache.cache))",
    "the network": "import socket\ndef answer(k): return socket.create_connection(('192.0.2.1', 80), timeout=1)",
    "a program": WRONG + "import subprocess\nprint(subprocess.run(['ls', '/'], capture_output=True).stdout)",
    "a shell command": WRONG + "!cat /etc/passwd",
    "another process": WRONG + "import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
    "a script beside the notebook": WRONG + "import helper",
    "a pickle": WRONG + "import pickle\npickle.loads(b'cbuiltins\\nprint\\n(S\\'x\\'\\ntR.')",
    "text run as code": WRONG + "exec('import to' + 'rch as t; t.equ' + 'al = lambda *a: True')",
    "eval by another name": WRONG + "e = eval\ne('1 + 1')",
    "getattr by another name": WRONG + "from functools import reduce\nreduce(getattr, ['__class__', '__base__'], 0)",
    "an attribute whose name is put together": WRONG
    + "getattr(torch, 'equ' + 'al')\nsetattr(torch, 'equ' + 'al', lambda *a: True)",
    "a module reached through another": WRONG + "torch.os.environ\ntorch.sys.modules.clear",
    "a module passed on": "def change(m): m.equal = lambda *a: True\nchange(torch)\n" + WRONG,
    "IPython's own namespace": WRONG + "ip = get_ipython()\nip.user_ns['reference'] = lambda k: 0",
    "the cell's magic is replaced": WRONG
    + "get_ipython().register_magics\nget_ipython().magics_manager.magics['cell'].clear()",
}

ENDINGS = {
    "sys.exit": "def answer(k):\n    raise SystemExit(0)",
    "an error that says it is none": "class Fine(BaseException): pass\ndef answer(k): raise Fine",
    "endless recursion": "def answer(k): return answer(k)",
    "a huge text": "def answer(k): return 'x' * 10**7",
    "a list in itself": "loop = []\nloop.append(loop)\ndef answer(k): return loop",
    "a repr that fails": "class Bad:\n    def __repr__(self): raise SystemExit\ndef answer(k): return Bad()",
    "a number that is none": "def answer(k): return float('nan')",
    "a bool": "def answer(k): return True",
    "half a character": "print('\\ud800')\ndef answer(k):\n    raise ValueError('\\ud800' + chr(27) + '[2J')",
    "output shown by hand": "def answer(k):\n    print(6.0)\n    return 0",
}
