"""A line to type in that edits in the order typed."""

from __future__ import annotations

from textual import events
from textual.binding import Binding
from textual.widgets import Input

EDITS = {
    key.strip(): binding.action
    for binding in Input.BINDINGS
    if isinstance(binding, Binding) and binding.action != "submit"
    for key in binding.key.split(",")
}
"""What the keys that edit do, by key."""


class TypedInput(Input):
    """`Input` types letters at once, but its other keys first travel up to the app as bindings do.

    Of keys that come together (a slow link sends them in one packet) a letter so overtakes the backspace
    before it: "4", backspace, "3" left "4". Here both act as they come.
    """

    async def _on_key(self, event: events.Key) -> None:
        """Do at once what a key that edits does."""
        action = EDITS.get(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            await self.run_action(action)
