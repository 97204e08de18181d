"""The workbench: command line, view models, panes and screens. It never loads torch."""
