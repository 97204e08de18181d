"""The screens: home, lab, run, help. They talk upward to the app by messages."""
