"""Do a backward in two parts: the gradient of a stage's input now, the gradients of its weights later.

The stage before waits for the input gradient (I); nobody waits for the weight gradients (W), so zero-bubble
schedules use them to fill bubbles (Qi et al. 2023). In the autograd graph the nodes on a way from the output
to the input form the spine; weights hang off it. I runs the spine only and notes, for each joint (a spine
node from which something hangs), the gradient that arrived there. W then lets each joint compute only what
goes off the spine. So every product is computed once, for any module, and the graph lives until W.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Edge = tuple[Node, int]


class _Joint(NamedTuple):
    """A spine node, where its branches leave the spine, and the gradients that arrive at it (filled by I)."""

    node: Node
    branches: dict[int, Edge]
    arrived: list[Tensor | None]


class WeightGradients:
    """The W that an I left to do; `accumulate` does it and lets go of the graph."""

    def __init__(self, joints: list[_Joint], ready: list[tuple[Edge, Tensor]]) -> None:
        self._joints = joints
        self._ready = ready

    def accumulate(self) -> None:
        """Add the weight gradients to `.grad` of the parameters, once."""
        joints, self._joints = self._joints, []
        gradients, self._ready = self._ready, []
        shared = _shared(joints)
        for joint in joints:
            gradients.extend(_off_spine(joint, shared))
        if gradients:
            edges, values = zip(*gradients, strict=True)
            torch.autograd.backward([GradientEdge(*edge) for edge in edges], values)


def input_gradient(
    output: Tensor, gradient: Tensor, source: Tensor | None
) -> tuple[Tensor | None, WeightGradients]:
    """Return d(output)/d(source) times `gradient`, and the weight gradients as work for later.

    `gradient` has the shape of `output`; `source` is a leaf that requires a gradient, or None on the first
    stage, where nobody waits for an input gradient: there W is the whole backward.
    """
    root = get_gradient_edge(output)
    start: Edge = (root.node, root.output_nr)
    spine = {} if source is None else _spine(root.node, get_gradient_edge(source).node)
    if source is None or not spine.get(root.node):
        return None, WeightGradients([], [(start, gradient)])
    joints = [joint for node in spine if spine[node] for joint in _joints(node, spine)]
    handles = [joint.node.register_prehook(_note(joint.arrived)) for joint in joints]
    (result,) = torch.autograd.grad([output], [source], [gradient], retain_graph=True)
    for handle in handles:
        handle.remove()
    return result, WeightGradients(joints, [])


def _note(arrived: list[Tensor | None]) -> Callable[[tuple[Tensor, ...]], None]:
    def hook(gradients: tuple[Tensor, ...]) -> None:
        arrived[:] = gradients

    return hook


def _children(node: Node) -> list[Node]:
    return [child for child, _ in node.next_functions if child is not None]


def _spine(root: Node, target: Node) -> dict[Node, bool]:
    """Return for each node below `root` whether it leads to `target`; no recursion, graphs are deep."""
    leads: dict[Node, bool] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        below = _children(node)
        fresh = [child for child in below if child not in leads]
        if node not in leads and fresh:
            leads.setdefault(node, False)
            stack.extend(fresh)
            continue
        stack.pop()
        leads[node] = node is target or any(leads[child] for child in below)
    return leads


def _joints(node: Node, spine: dict[Node, bool]) -> list[_Joint]:
    branches = {
        index: (child, number)
        for index, (child, number) in enumerate(node.next_functions)
        if child is not None and not spine[child]
    }
    return [_Joint(node, branches, [])] if branches else []


def _shared(joints: list[_Joint]) -> set[Node]:
    """Return the off-spine nodes that more than one joint leads to, such as a weight used twice."""
    count: Counter[Node] = Counter()
    for joint in joints:
        seen: set[Node] = set()
        stack = [child for child, _ in joint.branches.values()]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(_children(node))
        count.update(seen)
    return {node for node, times in count.items() if times > 1}


def _off_spine(joint: _Joint, shared: set[Node]) -> list[tuple[Edge, Tensor]]:
    """Return the gradients that leave the spine at this joint.

    Asked for these edges alone, the engine computes nothing else. To a shared weight there is a second way,
    along the spine and through the next joint, which would count it twice: there the joint itself is called,
    which computes its part of the input gradient again.
    """
    if any(child in shared for child, _ in joint.branches.values()):
        results = cast(Callable[..., Any], joint.node)(*joint.arrived)
        outputs = results if isinstance(results, tuple) else (results,)
        found = [(edge, _reduced(outputs[index], edge)) for index, edge in joint.branches.items()]
    else:
        given = [(index, value) for index, value in enumerate(joint.arrived) if value is not None]
        edges = list(dict.fromkeys(joint.branches.values()))
        values = torch.autograd.grad(
            [GradientEdge(joint.node, index) for index, _ in given],
            [GradientEdge(*edge) for edge in edges],
            [value for _, value in given],
            allow_unused=True,
        )
        found = list(zip(edges, values, strict=True))
    return [(edge, value) for edge, value in found if value is not None]


def _reduced(value: Tensor | None, edge: Edge) -> Tensor | None:
    """Sum over what was broadcast, as the engine does between nodes."""
    node, number = edge
    return None if value is None else value.sum_to_size(node._input_metadata[number].shape)
