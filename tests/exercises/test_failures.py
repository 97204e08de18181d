"""What a check says of code that goes wrong in every way: told by name, and on which rank."""

from __future__ import annotations

import pytest

from labs.exercises import Kind, Verdict
from tests.exercises.course import judge_files
from tests.ranks import on_ranks, values

RING, AVERAGE, HALVES = "ring-all-reduce", "average-gradients", "reduce-scatter-all-gather"
LONG_S, SHORT_S = 60.0, 1.0

HEAD = "import sys, time, torch\nimport torch.distributed as dist\n"
RING_FILE = HEAD + "def ring_all_reduce(comms, tensor):\n    rank = comms.rank\n"

FILES: dict[str, tuple[str, str, float]] = {
    "syntax": (RING, "def ring_all_reduce(comms, tensor:\n    return\n", LONG_S),
    "no_python": (RING, "\x00\x01", LONG_S),
    "missing": (RING, "def all_reduce(comms, tensor):\n    return\n", LONG_S),
    "raises_at_import": (RING, "import no_such_module\n", LONG_S),
    "raises_at_import_on_one": (RING, RING_FILE + "if dist.get_rank() == 2:\n    1 / 0\n", LONG_S),
    "leaves_at_import": (RING, "import sys\nsys.exit(0)\n", LONG_S),
    "loops_at_import": (RING, "while True:\n    pass\n", SHORT_S),
    "raises_on_one": (
        RING,
        RING_FILE + "    if rank == 1:\n        tensor[99]\n    comms.barrier()\n",
        LONG_S,
    ),
    "leaves_on_one": (
        RING,
        RING_FILE + "    if rank == 1:\n        sys.exit(0)\n    comms.barrier()\n",
        LONG_S,
    ),
    "loops_on_one": (RING, RING_FILE + "    while rank == 2:\n        pass\n    comms.barrier()\n", SHORT_S),
    "never_sent": (RING, RING_FILE + "    if rank == 2:\n        comms.recv(tensor, 1)\n", LONG_S),
    "never_received": (RING, RING_FILE + "    if rank == 0:\n        comms.send(tensor, 3)\n", LONG_S),
    "receive_first": (
        RING,
        RING_FILE + "    comms.recv(tensor, (rank - 1) % 4)\n    comms.send(tensor, 0)\n",
        LONG_S,
    ),
    "one_never_calls": (RING, RING_FILE + "    if rank != 3:\n        comms.all_reduce(tensor)\n", LONG_S),
    "different_calls": (
        RING,
        RING_FILE + "    comms.barrier() if rank == 3 else comms.all_reduce(tensor)\n",
        LONG_S,
    ),
    "different_sizes": (
        RING,
        RING_FILE + "    comms.all_reduce(torch.zeros(3 if rank == 1 else 2))\n",
        LONG_S,
    ),
    "wrong_order": (
        RING,
        RING_FILE
        + "    if rank == 0:\n        comms.recv(tensor, 1)\n        comms.barrier()\n"
        + "    else:\n        comms.barrier()\n        comms.send(tensor, 0) if rank == 1 else None\n",
        LONG_S,
    ),
    "to_itself": (RING, RING_FILE + "    comms.send(tensor, rank)\n", LONG_S),
    "nothing_returned": (
        "busbw",
        "def bus_bandwidth(op, tensor_bytes, world_size, seconds):\n    pass\n",
        LONG_S,
    ),
    "unwaited": (
        HALVES,
        "def all_reduce(comms, tensor):\n    comms.all_reduce(tensor, async_op=True)\n",
        LONG_S,
    ),
    "slow_but_right": (
        HALVES,
        HEAD
        + "def all_reduce(comms, tensor):\n    time.sleep(0.4 * (comms.rank == 3))\n"
        + "    whole = torch.cat([tensor, torch.zeros(-len(tensor) % 4)])\n"
        + "    piece = whole[: len(whole) // 4].clone()\n"
        + "    comms.reduce_scatter(piece, whole, async_op=True).wait()\n"
        + "    comms.all_gather(whole, piece, async_op=True).wait()\n"
        + "    tensor.copy_(whole[: len(tensor)])\n",
        LONG_S,
    ),
    "ring_by_exchange": (
        RING,
        RING_FILE
        + "    pieces = tensor.tensor_split(4)\n"
        + "    for step in range(6):\n"
        + "        out, into = (rank - step) % 4, (rank - step - 1) % 4\n"
        + "        got = torch.empty_like(pieces[into])\n"
        + "        sends, receives = [(pieces[out], (rank + 1) % 4)], [(got, (rank - 1) % 4)]\n"
        + "        [handle.wait() for handle in comms.exchange(sends, receives)]\n"
        + "        pieces[into].add_(got) if step < 3 else pieces[into].copy_(got)\n",
        LONG_S,
    ),
    "zero_by_views": (
        "shard-the-optimizer",
        "def zero_step(parameters, gradient, momentum, comms, lr, beta):\n"
        "    shard = parameters.view(4, -1)[comms.rank]\n"
        "    mine = gradient.view(4, -1)[comms.rank].clone()\n"
        "    comms.reduce_scatter(mine, gradient, op='avg')\n"
        "    momentum *= beta\n    momentum += mine\n    shard -= lr * momentum\n"
        "    comms.all_gather(parameters, shard)\n",
        LONG_S,
    ),
    "pipeline_back_to_front": (
        "gpipe-backward",
        HEAD
        + "def gpipe(stage, inputs, targets, m, shape, loss_function, comms):\n"
        + "    rank, last, done, losses = comms.rank, comms.rank == 3, [], []\n"
        + "    for i in range(m):\n"
        + "        x = inputs[i] if rank == 0 else torch.empty(shape)\n"
        + "        if rank:\n            comms.recv(x, rank - 1)\n            x.requires_grad_()\n"
        + "        y = stage(x)\n        done.append((x, y))\n"
        + "        if not last:\n            comms.isend(y.detach(), rank + 1).wait()\n"
        + "    for i in reversed(range(m)):\n        x, y = done[i]\n        gradient = torch.empty(shape)\n"
        + "        if last:\n            loss = loss_function(y, targets[i])\n"
        + "            losses.insert(0, float(loss))\n            (loss / m).backward()\n"
        + "        else:\n            comms.recv(gradient, rank + 1)\n            y.backward(gradient)\n"
        + "        if rank:\n            comms.send(x.grad, rank - 1)\n"
        + "    return losses\n",
        LONG_S,
    ),
    "summed_another_way": (
        AVERAGE,
        "def average_gradients(module, comms):\n    handles = [comms.all_reduce(p.grad, async_op=True)\n"
        "        for p in module.parameters() if p.grad is not None]\n    [h.wait() for h in handles]\n",
        LONG_S,
    ),
    "only_the_weights": (
        AVERAGE,
        "def average_gradients(module, comms):\n    for name, p in module.named_parameters():\n"
        "        if name.endswith('weight'):\n            comms.all_reduce(p.grad, op='avg')\n",
        LONG_S,
    ),
}

EXPECTED: dict[str, tuple[Kind, int, str, str]] = {
    # label: kind, rank, part of the message, line
    "syntax": ("file", -1, "SyntaxError in line 1", "syntax.py:1"),
    "no_python": ("file", -1, "null bytes", ""),
    "missing": ("file", -1, "missing.py does not define ring_all_reduce; it defines all_reduce", ""),
    "raises_at_import": ("file", -1, "No module named 'no_such_module'", "raises_at_import.py:1"),
    "raises_at_import_on_one": ("file", 2, "ZeroDivisionError", "raises_at_import_on_one.py:6"),
    "leaves_at_import": ("file", -1, "SystemExit", "leaves_at_import.py:2"),
    "loops_at_import": ("late", -1, "did not come to its end within 1 s", "loops_at_import.py:"),
    "raises_on_one": ("exception", 1, "rank 1 raised IndexError", "raises_on_one.py:6"),
    "leaves_on_one": ("exception", 1, "rank 1 raised SystemExit", "leaves_on_one.py:6"),
    "loops_on_one": ("late", 2, "rank 2 was still running loops_on_one.py:", "loops_on_one.py:"),
    "never_sent": ("stuck", 2, "rank 2 waits in recv from rank 1, which never sent", "never_sent.py:6"),
    "never_received": (
        "stuck",
        0,
        "rank 0 waits in send to rank 3, which never received",
        "never_received.py:6",
    ),
    "receive_first": ("stuck", 0, "a circle of waits", "receive_first.py:5"),
    "one_never_calls": ("stuck", 0, "which rank 3 never called", "one_never_calls.py:6"),
    "different_calls": ("mismatch", 0, "ranks 0, 1, 2: all_reduce (sum) of 8 float32; rank 3: barrier", ""),
    "different_sizes": ("mismatch", 0, "rank 1: all_reduce (sum) of 3 float32", ""),
    "wrong_order": ("stuck", 0, "rank 0 waits in recv from rank 1, rank 1 waits in barrier", ""),
    "to_itself": ("exception", 0, "cannot send to itself", "to_itself.py:5"),
    "nothing_returned": ("differs", 0, "expected 2.51658, got None", ""),
    "unwaited": ("unwaited", 0, "returned without waiting for its all_reduce", "unwaited.py:2"),
    "slow_but_right": ("passed", -1, "right on 4 ranks", ""),
    "ring_by_exchange": ("passed", -1, "right on 4 ranks", ""),
    "zero_by_views": ("passed", -1, "right on 4 ranks", ""),
    "pipeline_back_to_front": ("passed", -1, "right on 4 ranks", ""),
    "summed_another_way": ("differs", 0, "0.weight.grad at [0, 0]: expected -0.866541, got -3.46616", ""),
    "only_the_weights": ("differs", 0, "0.bias.grad at [0]", ""),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """The verdicts of all files, from one launch; every rank must come to the same."""
    folder = tmp_path_factory.mktemp("files")
    files = {}
    for label, (exercise, text, limit_s) in FILES.items():
        path = folder / f"{label}.py"
        path.write_text(text)
        files[str(path)] = (exercise, limit_s)
    ranks = values(on_ranks(4, judge_files, files, lab="bandwidth", limit_s=110.0))
    assert all(each == ranks[0] for each in ranks)
    return dict(ranks[0])


@pytest.mark.parametrize("label", list(FILES))
def test_it_is_told_as_such(told: dict[str, Verdict], label: str) -> None:
    kind, rank, part, line = EXPECTED[label]
    verdict = told[label]
    assert (verdict.kind, verdict.rank) == (kind, rank), verdict
    assert part in verdict.message
    assert verdict.line.startswith(line)
    assert verdict.passed or verdict.meaning


def test_a_mistake_is_recognised_however_it_is_written(told: dict[str, Verdict]) -> None:
    assert told["summed_another_way"].mistake == "summed not averaged"


def test_an_unknown_mistake_gets_no_name_but_a_meaning(told: dict[str, Verdict]) -> None:
    verdict = told["only_the_weights"]
    assert not verdict.mistake
    assert "divided by the number of ranks" in verdict.meaning


def test_a_deadlock_names_what_every_rank_waits_for(told: dict[str, Verdict]) -> None:
    waits = [f"rank {rank}: recv from rank {(rank - 1) % 4}" for rank in range(4)]
    assert told["receive_first"].got == "; ".join(waits)
    assert "nobody ever sends" in told["receive_first"].meaning


def test_exit_codes(told: dict[str, Verdict]) -> None:
    codes = {verdict.kind: verdict.exit_code for verdict in told.values()}
    assert codes == {
        "passed": 0,
        "file": 1,
        "differs": 1,
        "unwaited": 1,
        "late": 3,
        "exception": 3,
        "stuck": 3,
        "mismatch": 3,
    }
