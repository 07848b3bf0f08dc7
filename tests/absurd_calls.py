"""Run by `test_absurd.py` in a process of its own: absurd values for every option and key there is, a fork per call.

The options are read from the commands themselves, so a new one is drawn, too. A call must end with a result or one
sentence, within its memory and processor time, unless it has said how long it will take.
"""

import contextlib
import importlib
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import click

from infoflow import cli
from infoflow.commands import build
from infoflow.construct.catalogue import CONSTRUCTIONS
from infoflow.targets import NAMED

SECONDS, BYTES = 20, 3 << 30
ABSURD = ["-1", "0", "100000", "1000000000", "9223372036854775808", "9" * 400, "9" * 5000, "nan", "inf", "-inf",
          "1e300", "-1e300", "1e-300", "-0.0", "x", "", "0x10", "٣", "1,2", "1..0", "[]"]  # fmt: skip
TARGET, ARCH, SMALL = "pairwise_max:D=1,d=2", "heads=1,1 embed=4", ["--steps", "2", "--samples", "16", "--batch", "4"]
USUAL = {
    "predict": [TARGET, ARCH, "-T", "6"],
    "plan": [TARGET, "-T", "6"],
    "trace": [TARGET, ARCH, "-T", "6"],
    "scale": [TARGET, ARCH, "-T", "4..16"],
    "build": [TARGET, "-T", "6", "--eps", "0.3"],
    "certify": ["none.safetensors"],
    "refute": ["hardmax"],
    "fit": [TARGET, ARCH, "-T", "4", "--seeds", "1", *SMALL, "--validation", "4", "--seconds", "3"],
    "probe": ["none.safetensors"],
    "reproduce": ["none"],
    "forecast": [TARGET, ARCH, "-T", "6", "--epochs", "2"],
    "planted": ["planted", "--count", "1"],
    "targets": [],
    "book": ["infoflow.equation47", "--check"],
    "errata": ["heads"],
}


def everything() -> list[list[str]]:
    """One call for each option of each command, key of a target, word of an architecture, option of a construction,
    with `?` where the absurd value goes."""
    found = []
    for name in cli.COMMANDS:
        if name not in USUAL:
            continue
        command = importlib.import_module(f"infoflow.commands.{name}").command
        command = build.target if name == "build" else command
        for option in command.params:
            if isinstance(option, click.Option) and not option.is_flag:
                found.append([name, *USUAL[name], option.opts[0], *["?"] * option.nargs])
    found += [
        ["predict", f"{name}:{key}=?", ARCH, "-T", "6"] for name, named in NAMED.items() for key in named.defaults
    ]
    words = ("heads", "embed", "width", "positions", "mask", "kv_heads", "rotary")
    found += [["predict", TARGET, f"heads=2,2 embed=4 {word}=?", "-T", "6"] for word in words]
    found += [["scale", TARGET, ARCH, "-T", text] for text in ("?..?", "?..?:?", "?", "8..?:?")]
    for name, listed in CONSTRUCTIONS.items():
        quiet = ["--figures", "no"] if any(option.name == "figures" for option in listed.command_options) else []
        options = (*listed.options, *listed.command_options)
        found += [["build", name, *quiet, f"--{option.name}", "?"] for option in options if option.name != "figures"]
    return found


def ending(words: list[str], folder: str) -> str:
    """How a call went wrong, or nothing."""
    said = Path(folder, ".said")
    child = os.fork()
    if not child:
        run(words, folder, said)
    status = os.waitpid(child, 0)[1]
    text = said.read_text(encoding="utf-8", errors="replace")
    if "takes about" in text:
        return ""
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    if code in (1, 2):
        return "" if text.count("infoflow: ") == 1 and len(text) < 4000 else f"no single sentence: {text[-500:]}"
    return "" if code == 0 else f"exit code {code}: {text[-500:]}"


def run(words: list[str], folder: str, said: Path) -> None:
    """The call itself, in a process that may take so much memory and time and no more."""
    code = 99
    try:
        os.chdir(folder)
        handle = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(handle, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        cli.main(words)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 98
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
    os._exit(code)


def main(seed: int, count: int) -> None:
    for name in (
        "torch",
        "infoflow.train.fit",
        "infoflow.construct.builders",
        "infoflow.report.style",
        "matplotlib.figure",
    ):
        importlib.import_module(name)
    draw = random.Random(seed)
    calls = everything()
    for words in draw.sample(calls, min(count, len(calls))):
        filled = ["".join(draw.choice(ABSURD) if letter == "?" else letter for letter in word) for word in words]
        with tempfile.TemporaryDirectory() as folder:
            wrong = ending(filled, folder)
        if wrong:
            print([word[:60] for word in filled], wrong)
    print(f"{min(count, len(calls))} of {len(calls)} calls")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
