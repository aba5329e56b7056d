"""The command's start: what it answers without torch, and Ctrl-C, which ends it at once while it imports."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import orthornn
from orthornn import cli

START = Path(__file__).parent.parent / "src" / "orthornn_command"
# A stand-in for the package, whose import swallows the exception that Ctrl-C raises, as some of torch's does.
SWALLOWS = """
import signal, time
print("importing", flush=True)
try:
    time.sleep(30 if WAIT else 0)
except KeyboardInterrupt:
    print("swallowed", flush=True)
def main():
    print(getattr(signal.getsignal(signal.SIGINT), "__name__", "ignored"))
    return 7
"""


def start(folder: Path, wait: bool, handler: str = "default_int_handler") -> subprocess.Popen[str]:
    """Return a process that starts the command with the stand-in; the tests may run where Ctrl-C is ignored."""
    (folder / "orthornn" / "cli").mkdir(parents=True)
    (folder / "orthornn" / "__init__.py").write_text("")
    (folder / "orthornn" / "cli" / "__init__.py").write_text(SWALLOWS.replace("WAIT", str(wait)))
    code = f"""
import signal, sys
sys.path[:0] = {[str(folder), str(START.parent)]!r}
sys.argv[1:] = ["doctor"]
signal.signal(signal.SIGINT, signal.{handler})
from orthornn_command import main
sys.exit(main())
"""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a process of Windows cannot be sent Ctrl-C alone")
def test_ctrl_c_ends_the_command_while_it_imports(tmp_path):
    process = start(tmp_path, wait=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (-signal.SIGINT, "")


@pytest.mark.parametrize("ignored", [False, True])
def test_the_command_has_the_handler_that_was_there(ignored, tmp_path):
    process = start(tmp_path, wait=False, handler="SIG_IGN" if ignored else "default_int_handler")
    output, _ = process.communicate(timeout=20)
    assert (process.returncode, output) == (7, f"importing\n{'ignored' if ignored else 'default_int_handler'}\n")


@pytest.mark.parametrize(
    ("words", "chosen", "expected"),
    [
        (["demo"], {}, "passive"),
        (["doctor"], {}, "passive"),
        (["bench", "--quick"], {}, None),
        (["train"], {"OMP_WAIT_POLICY": "active"}, "active"),
        (["train"], {"GOMP_SPINCOUNT": "7"}, None),
    ],
)
def test_threads_that_wait_for_each_other_sleep(words, chosen, expected, tmp_path):
    """The variable is there before anything is imported, which is when torch's library reads it."""
    shows = "import os\nfound = os.environ.get('OMP_WAIT_POLICY')\ndef main():\n    print(found)\n"
    (tmp_path / "orthornn" / "cli").mkdir(parents=True)
    (tmp_path / "orthornn" / "__init__.py").write_text("")
    (tmp_path / "orthornn" / "cli" / "__init__.py").write_text(shows)
    code = (
        f"import sys\nsys.path[:0] = {[str(tmp_path), str(START.parent)]!r}\nfrom orthornn_command import main\nmain()"
    )
    plain = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words], env=plain | chosen, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{expected}\n"


# What Python imports before the first line of a program is not the command's: a .pth file may name anything.
ANSWERS = """
import sys
before = set(sys.modules)
import orthornn_command
status = orthornn_command.main()
heavy = {"torch", "numpy", "orthornn"} & (set(sys.modules) - before)
assert not heavy, heavy
sys.exit(status)
"""

AS_A_MODULE = """import runpy
try:
    runpy.run_module("orthornn", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    status = ended.code"""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 0, "usage: orthornn COMMAND"),
        (("--help",), 0, "usage: orthornn COMMAND"),
        (("-h", "train"), 0, "usage: orthornn COMMAND"),
        (("help",), 0, "usage: orthornn COMMAND"),
        (("--version",), 0, f"orthornn {orthornn.__version__}\n"),
        (("trian", "copying"), 2, "but got 'trian'. Did you mean 'train'?"),
        (("\x1b[2J",), 2, "but got '\\x1b[2J'."),
        (("",), 2, "but got ''."),
    ],
)
def test_what_needs_no_network_imports_none(words, status, said):
    """Neither torch nor NumPy; and the answer is that of the command itself."""
    done = subprocess.run([sys.executable, "-c", ANSWERS, *words], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert said in (done.stderr if status else done.stdout)
    assert not (done.stdout if status else done.stderr)
    whole = io.StringIO()
    with contextlib.redirect_stdout(whole), contextlib.redirect_stderr(whole):
        assert cli.main(words) == status
    assert whole.getvalue() == done.stdout + done.stderr


def test_python_m_orthornn_is_the_same_command():
    """It imports the package first, which imports nothing until a name of it is asked for."""
    code = ANSWERS.replace("import orthornn_command\nstatus = orthornn_command.main()", AS_A_MODULE)
    code = code.replace('"numpy", "orthornn"', '"numpy"')
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"orthornn {orthornn.__version__}\n", "")


def test_the_package_has_its_names_when_they_are_asked_for():
    code = "import sys, orthornn\nassert 'torch' not in sys.modules\n"
    code += "from orthornn import *\nprint(sorted({*orthornn.__all__} - ({*globals()} & {*dir(orthornn)})))\n"
    code += "import orthornn.testing\nassert 'pytest' not in sys.modules  # for whoever tests otherwise"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert orthornn.modules.OrthogonalRNN is orthornn.OrthogonalRNN
    with pytest.raises(AttributeError, match="has no attribute 'OrthogonalNN'"):
        _ = orthornn.OrthogonalNN  # type: ignore[attr-defined]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_answer_that_is_not_taken_is_an_error():
    code = "import sys, orthornn_command; sys.exit(orthornn_command.main())"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "Expected the output to be taken" in done.stderr
