"""The command palette: every action with a key where it was opened, each lab, each theme, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from workbench.screens.help import MOVING, SIDEWAYS

if TYPE_CHECKING:
    from workbench.app import WorkbenchApp

Command = tuple[str, str, Callable[[], Any]]


class Actions(Provider):
    """What can be done on the screen below the palette."""

    def _commands(self) -> Iterator[Command]:
        """Name, key and what to call, those of the footer first; each action once, none that only moves."""
        app = cast("WorkbenchApp", self.app)
        seen: set[str] = set()
        bindings = self.screen.active_bindings.values()
        for active in sorted(bindings, key=lambda one: not one.binding.show):
            binding = active.binding
            if not binding.description or binding.system or not active.enabled:
                continue
            if binding.key in MOVING or binding.action in SIDEWAYS:
                continue
            name = binding.tooltip or binding.description
            if name in seen:
                continue
            seen.add(name)
            run = partial(app.run_action, binding.action, active.node)
            yield name, f"key {app.get_key_display(binding)}", run
        for spec in app.labs.values():
            yield f"open lab {spec.id}", spec.title, partial(self._open_lab, spec.id)
        for theme in sorted(app.available_themes):
            yield f"theme {theme}", "colours", partial(setattr, app, "theme", theme)

    def _open_lab(self, lab: str) -> None:
        from workbench.screens.lab import LabScreen

        app = cast("WorkbenchApp", self.app)
        app.push_screen(LabScreen(app.labs[lab]))

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for name, note, run in self._commands():
            yield DiscoveryHit(name, run, help=note)

    async def search(self, query: str) -> Hits:
        """Those whose name has the letters typed, in their order."""
        matcher = self.matcher(query)
        for name, note, run in self._commands():
            score = matcher.match(name)
            if score > 0:
                yield Hit(score, matcher.highlight(name), run, help=note)
