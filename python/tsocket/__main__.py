# SPDX-License-Identifier: Apache-2.0
"""tsocket serve SCRIPT.py:FUNCTION: serves what a function returns, as a daemon of this machine."""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, List, Optional

from . import __version__
from ._engine import Engine
from .errors import Error
from .producer import Producer

EXIT_FAILED, EXIT_USAGE = 1, 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tsocket", description=__doc__)
    top.add_argument("--version", action="version", version=f"tsocket {__version__}")
    serve = top.add_subparsers(dest="command", required=True).add_parser(
        "serve", help="serve a Python loader", description="Calls FUNCTION of SCRIPT.py (or of a module), without "
        "arguments, and serves the batches of what it returns until all epochs have been read; a Producer or MapProducer "
        "as it is, whatever the options say.")
    serve.add_argument("loader", metavar="SCRIPT.py:FUNCTION")
    serve.add_argument("--name", default="main", help="of the daemon (default %(default)s)")
    serve.add_argument("--stream", default="train", help="of its stream (default %(default)s)")
    serve.add_argument("--fields", help="names of the fields, separated by commas (default image,label for pairs)")
    serve.add_argument("--epochs", type=int, default=0, help="0: for ever (the default)")
    serve.add_argument("--epoch-samples", type=int, help="samples of an epoch (default: what the loader says)")
    serve.add_argument("--max-batch", type=int, help="largest batch of a consumer (default: the loader's)")
    serve.add_argument("--ring", type=int, help="samples in the ring (default: eight of the largest batches)")
    serve.add_argument("--wait-for", type=int, default=0, help="consumers that the first epoch waits for")
    serve.add_argument("--join-grace", type=float, default=5.0, help="seconds it stays for late ones (default %(default)s)")
    serve.add_argument("--exit-when-idle", action="store_true", help="end when the last consumer has left")
    return top


def function_of(text: str) -> Callable[[], Any]:
    """The function that SCRIPT.py:FUNCTION or MODULE:FUNCTION names; SystemExit with a sentence where there is none."""
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        usage(f"{text!r} is not SCRIPT.py:FUNCTION")
    try:
        module = _load_file(where) if where.endswith(".py") else importlib.import_module(where)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        usage(f"{text}: {error}")
    if not callable(getattr(module, name, None)):
        usage(f"{where} has no function {name}")
    return getattr(module, name)


def _load_file(path: str) -> Any:
    """Under its own name, as an import from its folder would, so that workers can unpickle what it defines."""
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def usage(message: str) -> None:
    print(f"tsocket: {message}", file=sys.stderr)
    raise SystemExit(EXIT_USAGE)


def main(arguments: Optional[List[str]] = None) -> int:
    options = parser().parse_args(arguments)
    make = function_of(options.loader)
    try:
        loader = make()
        if isinstance(loader, Engine):
            loader.serve()
            return 0
        Producer(loader, options.name, stream=options.stream,
                 fields=options.fields.split(",") if options.fields else None, epochs=options.epochs or None,
                 epoch_samples=options.epoch_samples, max_batch=options.max_batch, ring=options.ring,
                 wait_for=options.wait_for, join_grace=options.join_grace,
                 exit_when_idle=options.exit_when_idle).serve()
    except Error as error:
        print(f"tsocket: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
