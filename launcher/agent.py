"""The agent: one warm process a node that runs torchrun's own elastic agent. The torch part.

Started by `launcher.client`, or by hand: `python -m launcher.agent [--preload MODULE]`, requests on stdin,
replies on stdout (see `launcher.protocol`). It starts a forkserver that preloads torch and what labs need,
then one collector, and serves runs one after another, each with fresh processes.

torch is imported inside functions: multiprocessing may run this module again in a rank.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import logging
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from launcher import lifeline, rank, torchrun
from launcher.blame import SERVER_GONE
from launcher.channel import temporary_root
from launcher.collector_client import CollectorClient
from launcher.control import RunControl
from launcher.forked import forking
from launcher.protocol import Warm
from launcher.rundir import ProcessId
from launcher.service import Launch, Service
from launcher.stores import Stores

if TYPE_CHECKING:
    from torch.multiprocessing.spawn import ProcessContext

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
LOCAL_ADDRESS = "127.0.0.1"
MONITOR_INTERVAL_S = 0.05
RENDEZVOUS_TIMEOUT_S = 60
SHUTDOWN_TIMEOUT_S = 3
UNKNOWN_CODE = 255
"""What multiprocessing says of a process whose forkserver is gone; a process may also end with it."""
SERVER_MOMENT_S = 0.5
"""So long a forkserver may take from closing its pipes to its end before it counts as alive."""
BEFORE_LABS = ["launcher.preload", "launcher.rank", "torch.distributed.elastic.multiprocessing.api"]
"""What the forkserver imports before the labs' own module; the last is what a rank unpickles."""
AFTER_LABS = ["launcher.preloaded"]


def start_forkserver(modules: Sequence[str]) -> None:
    """Start the forkserver from the main thread (its life is tied to this thread); it loads by itself.

    On Linux it is forked from this process and so has torch already, shared page by page; elsewhere a fork
    with threads is not safe, and it is an interpreter of its own.
    """
    multiprocessing.forkserver.set_forkserver_preload([*BEFORE_LABS, *modules, *AFTER_LABS])
    if sys.platform != "linux":
        multiprocessing.forkserver.ensure_running()
        return
    with forking():
        multiprocessing.forkserver.ensure_running()


def wait_until_warm() -> None:
    """Wait until the forkserver has imported everything: it forks only then.

    Raises:
        EOFError: the forkserver ended while it was loading.
    """
    process = multiprocessing.get_context("forkserver").Process(target=rank.probe)
    process.start()
    process.join()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rank_environment(control: RunControl, telemetry: dict[str, str]) -> dict[str, str]:
    """Return the variables of a rank, beside those that torchrun sets."""
    return {
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "NCCL_SOCKET_IFNAME": LOOPBACK,
        "OMP_NUM_THREADS": str(max(1, cores() // control.request.world_size)),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_TIMEOUT_S),
        **telemetry,
        **control.request.environment,
    }


class Elastic:
    """torchrun's elastic agent, and the processes that it starts."""

    def __init__(self) -> None:
        import torch.multiprocessing
        from torch.distributed.launcher import api

        # The first record has torch import its compiler, seconds, while the ranks are being ended.
        logging.disable()
        self._api = api
        self._control: RunControl | None = None
        self._codes: dict[int, int] = {}
        self._server: ProcessId | None = None
        self._stores = Stores()
        multiprocessing_api: Any = torch.multiprocessing
        self._start: Callable[..., ProcessContext] = multiprocessing_api.start_processes
        # elastic_launch keeps the pids and exit codes of its ranks to itself, but starts them by this.
        multiprocessing_api.start_processes = self._start_and_keep

    def _start_and_keep(self, *arguments: Any, **options: Any) -> ProcessContext:
        context = self._start(*arguments, **options)
        forkserver: Any = multiprocessing.forkserver
        self._server = lifeline.identify(forkserver._forkserver._forkserver_pid)
        if self._control is not None:
            patient = functools.partial(self._join, self._control, context, context.join)
            context.join = patient  # type: ignore[method-assign]
            self._control.launched([process.pid for process in context.processes])
        return context

    def _join(
        self,
        control: RunControl,
        context: ProcessContext,
        join: Callable[..., bool],
        timeout: float | None = None,
        grace_period: float | None = None,
    ) -> bool:
        """Look after the ranks as torch does, but leave them a moment to report when one has ended.

        At the first non-zero exit code torch ends all others, before they could say what they saw; so it
        looks only when all have ended, or have returned and are waited for (`timeout` None).
        """
        ended = {
            number: process.exitcode
            for number, process in enumerate(context.processes)
            if process.exitcode is not None
        }
        own = {
            number: code
            for number, code in ended.items()
            if number not in self._codes and control.own_end(context.processes[number].pid)
        }
        if UNKNOWN_CODE in own.values() and self._server_went():
            own = {number: SERVER_GONE if code == UNKNOWN_CODE else code for number, code in own.items()}
        self._codes.update(own)
        if timeout is None or len(ended) == len(context.processes):
            return join(timeout, grace_period)
        if any(self._codes.values()):
            control.rank_ended()
        return False

    def _server_went(self) -> bool:
        """Whether the forkserver is gone. One that was killed closes its pipes a moment before it is."""
        return self._server is not None and lifeline.gone_within(self._server, SERVER_MOMENT_S)

    def _config(self, control: RunControl, port: int) -> Any:
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

        known = {field.name for field in dataclasses.fields(self._api.LaunchConfig)}
        newer: dict[str, Any] = {"shutdown_timeout": SHUTDOWN_TIMEOUT_S, "signals_to_handle": "SIGQUIT"}
        return self._api.LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=control.request.world_size,
            run_id=control.request.run_id,
            rdzv_backend="static",
            rdzv_endpoint=f"{LOCAL_ADDRESS}:{port}",
            rdzv_configs={"rank": 0, "timeout": RENDEZVOUS_TIMEOUT_S},
            local_addr=LOCAL_ADDRESS,
            max_restarts=0,
            monitor_interval=MONITOR_INTERVAL_S,
            start_method="forkserver",
            logs_specs=DefaultLogsSpecs(log_dir=os.devnull),  # launcher.rank redirects, on macOS too
            **{name: value for name, value in newer.items() if name in known},
        )

    def launch(self, control: RunControl, telemetry: dict[str, str]) -> dict[int, int]:
        """Run the ranks of one warm run until all are gone; returns the codes of those that ended so."""
        from torch._C._distributed_c10d import TCPStore
        from torch.distributed.elastic.multiprocessing import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        request = control.request
        environment = rank_environment(control, telemetry)
        argument = json.dumps(request.argument)
        self._control, self._codes = control, {}
        # The store that the ranks will meet in, on a port of the system's choice. One node has no others to
        # agree with: torch's static rendezvous takes this store, where its c10d one spends 0.3 to 0.5 s.
        store = self._stores.new(
            lambda: TCPStore(LOCAL_ADDRESS, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        )
        try:
            start = self._api.elastic_launch(self._config(control, store.port), rank.run)
            try:
                start(request.entrypoint, argument, environment, request.folder)
            finally:
                # torch leaves its handler: the signal that breaks a launch would raise in what follows.
                signal.signal(signal.SIGQUIT, _unmoved)
        except (ChildFailedError, SignalException):
            pass  # the codes and the ranks' own events say more
        finally:
            signal.signal(signal.SIGQUIT, _unmoved)
            self._control = None
        return self._codes


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until asked to quit or until stdin ends."""
    began = time.monotonic()
    gc.disable()  # torch's import makes objects by the million and no garbage: a third of its time
    parser = argparse.ArgumentParser(prog="launcher.agent", description="Serve runs.")
    parser.add_argument("--preload", action="append", default=[], help="module for the forkserver to import")
    parser.add_argument("--temp", default="", help="folder for temporary files, removed at the end")
    parser.add_argument("--detached", action="store_true", help="finish the run when stdin ends")
    options = parser.parse_args(arguments)
    _forget_main_module()
    temp = options.temp or tempfile.mkdtemp(prefix="worldsize-", dir=temporary_root())
    tempfile.tempdir = temp
    os.environ["TMPDIR"] = temp
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints here goes to the log, never between the replies
    os.environ[lifeline.AGENT_PID] = str(os.getpid())
    lifeline.adopt_orphans()
    collector = CollectorClient()
    try:
        multiprocessing.resource_tracker.ensure_running()  # before the collector, which spares it
        collector.start()
        service = Service(replies, collector, options.detached)
        service.listen(sys.stdin.buffer)
        signal.signal(signal.SIGQUIT, _unmoved)
        import torch  # noqa: F401  before the forkserver, which is forked with it

        gc.freeze()
        if service.abandoned:  # the workbench is gone again: a run that it has requested is only recorded
            service.serve(lambda _control, _telemetry: {})
            return
        start_forkserver(options.preload)
        launch = _launcher()  # imports what is left here while the forkserver imports the labs there
        gc.freeze()
        gc.enable()
        wait_until_warm()
        service.reply(Warm(seconds=time.monotonic() - began, torch_version=_torch_version()))
        service.serve(launch)
    finally:
        collector.close()
        shutil.rmtree(temp, ignore_errors=True)


def _unmoved(_number: int, _frame: FrameType | None) -> None:
    """Let SIGQUIT pass: it breaks a launch that hangs, and may come when there is none to break.

    Under `torchrun`, and before the first warm launch, it would end the agent. A handler, unlike `SIG_IGN`,
    is not inherited by the commands that the agent starts.
    """


def _launcher() -> Launch:
    elastic = Elastic()

    def launch(control: RunControl, telemetry: dict[str, str]) -> dict[int, int]:
        if control.request.launcher == "torchrun":
            return torchrun.run(control, rank_environment(control, telemetry))
        return elastic.launch(control, telemetry)

    return launch


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def _forget_main_module() -> None:
    """Keep multiprocessing from running this module again in every rank: they need nothing of it."""
    main_module = sys.modules["__main__"]
    main_module.__spec__ = None
    if hasattr(main_module, "__file__"):
        del main_module.__file__


if __name__ == "__main__":
    # At once: unloading torch takes a second, the forkserver ends with this process, and an interpreter that
    # ends in order aborts where a thread still reads stdin.
    status: object = 1
    try:
        main()
        status = 0
    except SystemExit as leaving:  # argparse
        status = leaving.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 1)
